//! The privileges of each role, and no more.
//!
//! The role that runs the migrations owns everything and needs no grant. The others get the privileges that are printed here: a
//! plain list of `GRANT` statements, for the owner to read and run. A grant applies only to existing objects, so print and run them
//! again after every migration.
//!
//! Functions with the owner's privileges do what a role may cause but not do itself: staging checks the message first, an
//! operator's action writes its audit row, and retention drops only the partitions of past days.

use super::{PostgresNames, PostgresStore, names};
use postrider_core::Invalid;
use std::{fmt, str::FromStr};

/// A role in Postrider: a set of privileges for one kind of process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    /// Stages through plain SQL, in any language: the functions `stage` and `cancel_timer`, the view `outbox`, and triggers
    /// made with `stage_changes`. It has no privilege on any table.
    Producer,
    /// Stages through [`PostgresOutbox`](super::PostgresOutbox), which inserts into `ready` directly because that is faster: it may
    /// insert the columns of a message there, and read the names of queues and the idle workers. It has the privileges of a
    /// producer, too.
    RustProducer,
    /// Stages recurring messages: has the privileges of a Rust producer, and reads and records the ticks of schedules. Grant a worker
    /// that also schedules both roles.
    Scheduler,
    /// Admits received messages through [`PostgresInbox`](super::PostgresInbox): it may call the function that inserts deduplication
    /// records, without a privilege on their table; and it counts deliveries. Grant a consumer that also stages a producer's role, too,
    /// and a program that dead-letters and replays messages those of a Rust producer and a worker.
    Consumer,
    /// Claims, renews, settles, prunes, registers as idle, and declares queues; completes follow-ups and appends to the ledger. It
    /// cannot change a payload, except to erase that of a finished follow-up; nor act as an operator, read the ledger or alter tables.
    Worker,
    /// Reads everything, and requeues, discards, releases, pauses, resumes and erases through functions that write the audit table; it
    /// appends to the ledger. It cannot write to any table.
    Operator,
    /// Reads everything, payloads included.
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

    /// The name of the role: `worker`, `rust-producer`, …
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

    /// The grants in addition to usage on the schema, one statement per line.
    pub(super) fn privileges(self) -> impl Iterator<Item = &'static str> {
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
            Invalid::rule("role", format!("{name:?} is unknown; use one of {names}"))
        })
    }
}

/// The part of each statement before `to`, one per line.
const PRODUCER: &str = "\
execute on function {contract}, {cancel_timer}, {stage_changes}
execute on function {stage}(text, bytea, text, text, text, text, text, jsonb, uuid, timestamptz, interval, text, text, text, text, text)
execute on function {stage}(text, text, text, text, text, text, text, jsonb, uuid, timestamptz, interval, text, text, text, text, text)
execute on function {stage}(text, jsonb, text, text, text, text, text, jsonb, uuid, timestamptz, interval, text, text, text, text, text)
insert, select on {outbox}
";

/// Without the columns of the lease and the counters, which only claimers write.
const RUST_PRODUCER: &str = "\
execute on function {stage_many}, {stage_new}
insert (queue, ordered, fair, key, message_id, payload, event_type, content_type, tenant, subject, headers) on {ready}
select (id, name, ordered, fair) on {queue}
select (queue, until) on {idle}
usage on sequence {message_position}
";

const SCHEDULER: &str = "\
select, insert, update on {schedule}
";

const CONSUMER: &str = "\
execute on function {admit}
select, insert, update, delete on {inbox_count}
";

/// To lock a row, a role needs the privilege to update one of its columns.
const WORKER: &str = "\
execute on function {queue_id}, {declare_queue}, {mark_fair}, {claim_lanes}, {settle_lanes}, {survey_tenants}, {partition_changes}, {change_partition}, {finish_follow_up}, {append_ledger}
select on {queue}, {pause}
select, insert, delete on {ready}, {scheduled}
update (token, lease_until, attempts, deliveries, isolated, first_failed_at, due_at, last_error, ordered, fair, key) on {ready}
update (due_at) on {scheduled}
select, delete on {timer}, {archive_rest}, {inbox}, {inbox_count}
select, insert, delete on {dead}, {saga_log}
update (payload, content_type) on {dead}
insert on {archive}
select, insert, update, delete on {lane}, {idle}
usage, select on sequence {message_position}
usage on sequence {turn}
";

const READ_ONLY: &str = "\
select on {queue}, {ready}, {scheduled}, {timer}, {dead}, {archive}, {archive_rest}, {lane}, {idle}, {audit}, {schedule}, {inbox}, {inbox_count}, {ledger}, {ledger_head}, {saga_log}, {pause}
";

const OPERATOR: &str = "\
execute on function {requeue}, {discard}, {replay}, {audit_replay}, {release_key}, {drop_timer}, {erase_subject}, {pause_work}, {resume_work}, {append_ledger}, {declare_queue}, {mark_fair}, {partition_changes}, {change_partition}
";

impl PostgresStore {
    /// The statements that grant the login role `name` the privileges of `role`, for the owner of the tables to run.
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
    /// When the name is not `[a-z_][a-z0-9_]*` of at most 63 bytes, or is reserved by PostgreSQL.
    pub fn grants(&self, role: Role, name: &str) -> Result<String, Invalid> {
        grants(&self.inner.names, role, name)
    }
}

fn grants(names: &PostgresNames, role: Role, name: &str) -> Result<String, Invalid> {
    names::check("role", name)?;
    if name.len() > names::IDENTIFIER_BYTES {
        let rule = format!("is {} bytes long; PostgreSQL keeps 63", name.len());
        return Err(Invalid::rule("role", rule));
    }
    // PostgreSQL reads "public" as every role, quoted or not.
    if matches!(name, "public" | "none") || name.starts_with("pg_") {
        return Err(Invalid::rule("role", format!("{name:?} is reserved by PostgreSQL; name a login role")));
    }
    let mut sql = format!("grant usage on schema \"{}\" to \"{name}\";\n", names.schema());
    for privilege in role.privileges() {
        sql.push_str(&format!("grant {} to \"{name}\";\n", names.render(privilege)));
    }
    Ok(sql)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_use_schema_and_prefix() {
        let names = PostgresNames::new("shop", "pr_").unwrap();
        let sql = grants(&names, Role::ReadOnly, "watcher").unwrap();
        assert!(sql.starts_with("grant usage on schema \"shop\" to \"watcher\";\n"), "{sql}");
        assert!(sql.contains("\"shop\".\"pr_ready\""), "{sql}");
        assert!(sql.lines().all(|line| line.ends_with(" to \"watcher\";")), "{sql}");
    }

    #[test]
    fn grants_for_invalid_role_names_are_refused() {
        let long = "r".repeat(64);
        for name in ["", "a\"b", "a; drop table x", "Upper", "public", "none", "pg_monitor", "a b", &long] {
            assert!(grants(&PostgresNames::default(), Role::Worker, name).is_err(), "{name:?}");
        }
    }
}
