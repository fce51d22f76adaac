//! Opening the database of a part.

use crate::{
    config::DatabaseSection,
    database::{Database, Way},
    opened::Opened,
    problem::{Code, Problem},
};
use postrider::{Error, postgres::PostgresStore, schema::Schema};

/// Opens it, with its tables as this version needs them; made and updated first where that is asked for.
pub(super) async fn open(section: &DatabaseSection, migrate: bool) -> Result<Opened, Problem> {
    let database = section.database();
    let opened = match (database, migrate) {
        (Database::Postgres { .. }, _) => Opened::existing(database).await?,
        (Database::File(_), true) => Opened::open(database).await.map_err(|problem| {
            problem.helped_by("give a url whose folder is there, and that this user may write to")
        })?,
        (Database::File(_), false) => Opened::existing(database).await.map_err(|problem| {
            problem.helped_by(
                "give the url of a database that is there, or let it be made: postrider run --migrate",
            )
        })?,
    };
    let ready = async {
        if migrate {
            migrated(&opened).await?;
        }
        opened.schema().validate().await
    };
    let problem = match ready.await {
        Ok(drifts) => match &drifts[..] {
            [] => return Ok(opened),
            [first, rest @ ..] => {
                let more = if rest.is_empty() { String::new() } else { format!(", and {} more", rest.len()) };
                let what = format!("{database}: its tables are not those of this version: {first}{more}");
                Problem::new(what, advice(database)).coded(Code::Schema)
            }
        },
        Err(error) => opened.problem(&error),
    };
    opened.close().await;
    Err(problem)
}

/// Makes and updates the tables. The lock under which that happens belongs to a session, and a pooler lends that to others: it goes
/// past it, or does not happen.
async fn migrated(opened: &Opened) -> Result<(), Error> {
    match opened.database().way() {
        Way { behind_pooler: false, .. } => opened.schema().migrate().await,
        Way { listen_url: Some(url), .. } => {
            let server = PostgresStore::connect(&url).await?;
            let migrated = server.migrate().await;
            server.close().await;
            migrated
        }
        Way { listen_url: None, .. } => Ok(()),
    }
}

fn advice(database: &Database) -> &'static str {
    match database.way() {
        Way { behind_pooler: true, listen_url: None } => {
            "make and update them past the pooler: postrider migrate up --db with the server's own address; \
             or give that as listen_url, and run postrider run --migrate"
        }
        _ => "make and update them: postrider run --migrate",
    }
}
