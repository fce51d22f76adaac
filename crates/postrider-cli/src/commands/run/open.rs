//! Opens the database of a component.

use super::shared_database::STORE_CONNECTIONS;
use crate::{
    config::DatabaseSection,
    database::{Database, Way},
    open_database::OpenDatabase,
    problem::{Code, Problem},
};
use postrider::{Error, postgres::PostgresStore, schema::Schema};

/// Opens the database and validates its tables. With `migrate`, creates and upgrades the tables first.
pub(super) async fn open(section: &DatabaseSection, migrate: bool) -> Result<OpenDatabase, Problem> {
    let database = section.database();
    let opened = match (database, migrate) {
        (Database::Postgres { .. }, _) => {
            OpenDatabase::existing_with(database, Some(STORE_CONNECTIONS)).await?
        }
        (Database::File(_), true) => OpenDatabase::open(database).await.map_err(|problem| {
            problem.with_advice("set url to a path in an existing directory that this user may write to")
        })?,
        (Database::File(_), false) => OpenDatabase::existing(database).await.map_err(|problem| {
            problem.with_advice("set url to an existing database, or create it: postrider run --migrate")
        })?,
    };
    let validate = async {
        if migrate {
            migrate_up(&opened).await?;
        }
        opened.backend().validate().await
    };
    let problem = match validate.await {
        Ok(drifts) => match &drifts[..] {
            [] => return Ok(opened),
            [first, rest @ ..] => {
                let more = if rest.is_empty() { String::new() } else { format!(", and {} more", rest.len()) };
                let what = format!("{database}: the tables do not match this version: {first}{more}");
                Problem::new(what, advice(database, migrate)).with_code(Code::Schema)
            }
        },
        Err(error) => opened.problem(&error),
    };
    opened.close().await;
    Err(problem)
}

/// Creates and upgrades the tables. Migrations hold a session-level lock, and a pooler in transaction mode shares sessions: they use
/// the direct connection of `listen_url`, or are skipped.
async fn migrate_up(opened: &OpenDatabase) -> Result<(), Error> {
    let Database::Postgres { client, way, .. } = opened.database() else {
        return opened.backend().migrate().await;
    };
    match way {
        Way { behind_pooler: false, .. } => opened.backend().migrate().await,
        Way { listen_url: Some(url), .. } => {
            let server = PostgresStore::connect((**client).clone().with_url(url)).await?;
            let migrated = server.migrate().await;
            server.close().await;
            migrated
        }
        Way { listen_url: None, .. } => Ok(()),
    }
}

/// What to do about tables that do not match, after `migrated` or without.
fn advice(database: &Database, migrated: bool) -> &'static str {
    match database.way() {
        Way { behind_pooler: true, listen_url: None } => {
            "migrate past the pooler: postrider migrate up --db with the server's own address; \
             or set listen_url to that address and run postrider run --migrate"
        }
        _ if migrated => {
            "run postrider migrate validate for all differences; tables of a newer version need a newer postrider"
        }
        _ => "create or upgrade the tables: postrider run --migrate",
    }
}
