//! `[databases.…]`: the databases that messages are staged in.

use super::{
    key,
    key_type::{Key, TableType, ValueType},
    secret::Secret,
    section::Section,
    table::Table,
    value::Mistake,
};
use crate::{
    brokers,
    database::{Database, Way},
};
use postrider::{Invalid, postgres::connect_options};

pub(super) const DATABASE: TableType = TableType::Section { keys, check };

const SERVERS: &str = "PostgreSQL servers";
const CA_FILE: &str = "CA bundle (PEM); selects `sslmode=verify-full`";
/// Longer than the server lets a statement run.
const REQUEST_TIMEOUT: &str = "\"70s\"";

#[derive(Debug, Clone)]
pub(crate) struct DatabaseSection {
    database: Database,
    section: Section,
}

fn keys() -> Vec<Key> {
    let mut keys = vec![
        Key::new("url", "\"shop.db\"", ValueType::Database)
            .required()
            .rule(|path, url| match url.parse::<Database>() {
                Ok(_) => Ok(()),
                Err(help) => Err(Mistake::new(format!("invalid {path}"), help)),
            })
            .about("URL of a PostgreSQL database, `postgres://…`, or path of a SQLite file"),
        Key::flag("behind_pooler")
            .only_for(SERVERS)
            .about("The URL points to a pooler in transaction mode, such as PgBouncer"),
        Key::new("listen_url", "\"postgres://server:5432/shop\"", ValueType::Url)
            .rule(|path, url| match url.parse() {
                Ok(Database::Postgres { .. }) => Ok(()),
                _ => Err(Mistake::new(
                    format!("{path} is not the URL of a PostgreSQL server"),
                    "write the server's own address, such as postgres://server:5432/shop",
                )),
            })
            .only_for(SERVERS)
            .about("The server's own URL, past the pooler, for notifications (LISTEN) and `--migrate`; without it a daemon behind a pooler polls"),
    ];
    keys.extend(key::client(CA_FILE, REQUEST_TIMEOUT).map(|key| key.only_for(SERVERS)));
    keys
}

fn check(table: &Table<'_>, section: &mut Section) {
    let url = section.secret("url").map(Secret::reveal);
    match url.map(str::parse) {
        Some(Ok(Database::File(_))) => {}
        Some(Ok(Database::Postgres { .. })) => {
            if let Err(error) = check_client(section) {
                let what = format!("{}: {}", table.path(error.field()), error.problem());
                table.report(table.line(), what, "correct the file, or the keys of the section");
            }
            return;
        }
        _ => return,
    }
    for key in keys() {
        let Some(databases) = key.only_for else { continue };
        section.remove(key.name);
        for name in key.names().iter().filter(|name| table.has(name)) {
            let what = format!("{} does not apply to a SQLite file", table.path(name));
            table.report(table.line_of(name), what, format!("remove it: it is for {databases}"));
        }
    }
}

/// The certificates and the URLs fit each other.
fn check_client(section: &Section) -> Result<(), Invalid> {
    let client = brokers::client(section)?;
    connect_options(&client)?;
    // The rule of the key reports any other URL.
    let listen = section.secret("listen_url").map(Secret::reveal);
    if let Some(url) = listen.filter(|url| matches!(url.parse(), Ok(Database::Postgres { .. }))) {
        connect_options(&client.with_url(url))
            .map_err(|error| Invalid::new("listen_url", error.problem().clone()))?;
    }
    Ok(())
}

impl DatabaseSection {
    pub(super) fn new(section: Section) -> Option<Self> {
        let database = match section.secret("url")?.reveal().parse().ok()? {
            Database::Postgres { .. } => Database::server(brokers::client(&section).ok()?).ok()?,
            file @ Database::File(_) => file,
        };
        let way = Way {
            behind_pooler: section.flag("behind_pooler"),
            listen_url: section.secret("listen_url").map(|url| url.reveal().to_owned()),
        };
        Some(Self { database: database.reached(way), section })
    }

    pub(crate) fn database(&self) -> &Database {
        &self.database
    }
}

impl PartialEq for DatabaseSection {
    fn eq(&self, other: &Self) -> bool {
        self.section == other.section
    }
}
