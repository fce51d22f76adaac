//! What each role needs, and no more.
//!
//! Whoever runs the migrations owns everything and needs no grant. The others get what is printed here: a plain list of
//! `GRANT` statements, for the owner to read and run. A grant knows only what exists, so print and run them again after
//! every migration.
//!
//! Functions do with the owner's rights what a role may cause but not do itself: staging checks the message first, an
//! operator's action writes its audit row, and retention drops only days that are over.

use super::{Names, PostgresStore, names};
use postrider_core::Invalid;
use std::{fmt, str::FromStr};

/// Who connects to the database, and what for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    /// Stages through plain SQL, in any language: the functions `stage` and `cancel_timer`, the view `outbox`, and triggers
    /// made with `stage_changes`. It has no right on any table.
    Producer,
    /// Stages through [`PostgresOutbox`](super::PostgresOutbox), which writes into `ready` itself because that is faster: it
    /// may insert there, into the columns of a message alone, and read the names of queues and who sleeps. It may do
    /// what a producer may, too.
    RustProducer,
    /// Stages recurring messages: what a Rust producer may, and reads and records the ticks of schedules. A worker that
    /// also schedules is granted both roles.
    Scheduler,
    /// Admits what it has received, through [`PostgresInbox`](super::PostgresInbox): it may run the function that marks, and has no right
    /// on the table; and it counts deliveries. A consumer that also stages is granted a producer's role, too, and the program that parks
    /// and replays messages those of a Rust producer and a worker.
    Consumer,
    /// Claims, renews, settles, prunes, sleeps, and declares queues; lands follow-ups and appends to the ledger. It cannot change a
    /// payload, but for forgetting that of what has ended; nor act as an operator, read the ledger or alter anything.
    Worker,
    /// Reads everything, and requeues, discards, releases, pauses, resumes and erases through functions that write the audit; it appends to the ledger.
    /// It writes to no table.
    Operator,
    /// Reads everything, payloads among it.
    ReadOnly,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 7] = [
        Self::Producer,
        Self::RustProducer,
        Self::Scheduler,
        Self::Consumer,
        Self::Worker,
        Self::Operator,
        Self::ReadOnly,
    ];

    /// Its name: `worker`, `rust-producer`, …
    pub const fn name(self) -> &'static str {
        match self {
            Self::Producer => "producer",
            Self::RustProducer => "rust-producer",
            Self::Scheduler => "scheduler",
            Self::Consumer => "consumer",
            Self::Worker => "worker",
            Self::Operator => "operator",
            Self::ReadOnly => "read-only",
        }
    }

    /// What is granted besides the use of the schema, a statement each.
    pub(super) fn rights(self) -> impl Iterator<Item = &'static str> {
        let parts: &[&str] = match self {
            Self::Producer => &[PRODUCER],
            Self::RustProducer => &[PRODUCER, RUST_PRODUCER],
            Self::Scheduler => &[PRODUCER, RUST_PRODUCER, SCHEDULER],
            Self::Consumer => &[CONSUMER],
            Self::Worker => &[WORKER],
            Self::Operator => &[READ_ONLY, OPERATOR],
            Self::ReadOnly => &[READ_ONLY],
        };
        parts.iter().flat_map(|part| part.lines())
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = Invalid;

    fn from_str(name: &str) -> Result<Self, Invalid> {
        Self::ALL.into_iter().find(|role| role.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Invalid::rule("role", format!("{name:?} is none of {names}"))
        })
    }
}

/// What comes before `to`, a statement a line.
const PRODUCER: &str = "\
execute on function {contract}, {cancel_timer}, {stage_changes}
execute on function {stage}(text, bytea, text, text, text, text, text, jsonb, uuid, timestamptz, interval, text, text, text, text, text)
execute on function {stage}(text, text, text, text, text, text, text, jsonb, uuid, timestamptz, interval, text, text, text, text, text)
execute on function {stage}(text, jsonb, text, text, text, text, text, jsonb, uuid, timestamptz, interval, text, text, text, text, text)
insert, select on {outbox}
";

/// Not the lease, nor the counters: those are the claimers'.
const RUST_PRODUCER: &str = "\
execute on function {stage_many}, {stage_new}
insert (queue, ordered, fair, key, message_id, payload, event_type, content_type, tenant, subject, headers) on {ready}
select (id, name, ordered, fair) on {queue}
select (queue, until) on {sleeper}
usage on sequence {place}
";

const SCHEDULER: &str = "\
select, insert, update on {schedule}
";

const CONSUMER: &str = "\
execute on function {admit}
select, insert, update, delete on {inbox_count}
";

/// Locking a row takes the right to update one of its columns.
const WORKER: &str = "\
execute on function {queue_id}, {declare_queue}, {line_up}, {claim_lanes}, {settle_lanes}, {survey_tenants}, {drop_days}, {is_last}, {append_ledger}
select on {queue}, {pause}
select, insert, delete on {ready}, {later}
update (token, lease_until, attempts, deliveries, due_at, last_error, ordered, fair, key) on {ready}
update (due_at) on {later}
select, delete on {timer}, {archive_rest}, {inbox}, {inbox_count}
select, insert, delete on {dead}, {saga_log}
update (payload, content_type) on {dead}
insert on {archive}
select, insert, update, delete on {lane}, {sleeper}
usage, select on sequence {place}
usage on sequence {turn}
";

const READ_ONLY: &str = "\
select on {queue}, {ready}, {later}, {timer}, {dead}, {archive}, {archive_rest}, {lane}, {sleeper}, {audit}, {schedule}, {inbox}, {inbox_count}, {ledger}, {ledger_head}, {saga_log}, {pause}
";

const OPERATOR: &str = "\
execute on function {requeue}, {discard}, {replay}, {note_replay}, {release_key}, {drop_timer}, {erase_subject}, {pause_work}, {resume_work}, {append_ledger}, {declare_queue}, {line_up}
";

impl PostgresStore {
    /// The statements that let the login role `name` be a `role` of this store, for the owner of the tables to run.
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// use postrider_stores::postgres::{PostgresStore, Role};
    ///
    /// let store = PostgresStore::connect("postgres://localhost/shop").await?;
    /// println!("{}", store.grants(Role::Producer, "shop_web")?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When the name is not `[a-z_][a-z0-9_]*` of at most 63 bytes, or is one that PostgreSQL keeps for itself.
    pub fn grants(&self, role: Role, name: &str) -> Result<String, Invalid> {
        grants(&self.inner.names, role, name)
    }
}

fn grants(names: &Names, role: Role, name: &str) -> Result<String, Invalid> {
    names::check("role", name)?;
    if name.len() > names::IDENTIFIER_BYTES {
        let rule = format!("is {} bytes long; PostgreSQL keeps 63", name.len());
        return Err(Invalid::rule("role", rule));
    }
    // To PostgreSQL "public" is everybody, quoted or not.
    if matches!(name, "public" | "none") || name.starts_with("pg_") {
        return Err(Invalid::rule("role", format!("{name:?} is reserved by PostgreSQL; name a login role")));
    }
    let mut sql = format!("grant usage on schema \"{}\" to \"{name}\";\n", names.schema());
    for right in role.rights() {
        sql.push_str(&format!("grant {} to \"{name}\";\n", names.render(right)));
    }
    Ok(sql)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_name_the_schema_and_the_prefix() {
        let names = Names::new("shop", "pr_").unwrap();
        let sql = grants(&names, Role::ReadOnly, "watcher").unwrap();
        assert!(sql.starts_with("grant usage on schema \"shop\" to \"watcher\";\n"), "{sql}");
        assert!(sql.contains("\"shop\".\"pr_ready\""), "{sql}");
        assert!(sql.lines().all(|line| line.ends_with(" to \"watcher\";")), "{sql}");
    }

    #[test]
    fn hostile_role_names_are_refused() {
        let long = "r".repeat(64);
        for name in ["", "a\"b", "a; drop table x", "Upper", "public", "none", "pg_monitor", "a b", &long] {
            assert!(grants(&Names::default(), Role::Worker, name).is_err(), "{name:?}");
        }
    }
}
