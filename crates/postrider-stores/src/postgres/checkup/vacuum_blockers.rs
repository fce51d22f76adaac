//! Sessions, prepared transactions and replication slots that keep vacuum from removing dead rows.
//!
//! A session holds back vacuum in its own database alone. A slot holds it back in every database, by the oldest row that a standby
//! sees, and keeps the WAL that its consumer has yet to read, until the disk is full.

use super::super::PostgresStore;
use postrider_core::{Error, Finding};
use std::time::Duration;

const SESSIONS: &str = "select a.pid, a.application_name, a.state, extract(epoch from clock_timestamp() - a.xact_start)::float8 \
    from pg_stat_activity a where a.datname = current_database() and a.pid <> pg_backend_pid() \
      and a.backend_type = 'client backend' and a.xact_start < clock_timestamp() - $1 * interval '1 s' order by a.xact_start";

const PREPARED: &str = "select p.gid, extract(epoch from clock_timestamp() - p.prepared)::float8 from pg_prepared_xacts p \
    where p.database = current_database() and p.prepared < clock_timestamp() - $1 * interval '1 s' order by p.prepared";

const SLOTS: &str = "select s.slot_name::text, s.active, coalesce(age(s.xmin), 0), \
      coalesce(case when not pg_is_in_recovery() then pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn) end, 0)::int8 \
    from pg_replication_slots s";

const NO_STATS_ROLE: &str =
    "select quote_ident(current_user) where not pg_has_role(current_user, 'pg_read_all_stats', 'usage')";

/// As many transactions as a busy server makes within minutes.
const OLD_XMIN: i32 = 1_000_000;
const MUCH_WAL: i64 = 4 << 30;

type Session = (i32, String, String, f64);
type Slot = (String, bool, i32, i64);

pub(super) async fn findings(store: &PostgresStore, longest: Duration) -> Result<Vec<Finding>, Error> {
    let names = &store.inner.names;
    let [sessions, prepared, slots, no_stats_role] =
        [sql!(SESSIONS), sql!(PREPARED), sql!(SLOTS), sql!(NO_STATS_ROLE)].map(|sql| names.sql(&sql));
    let longest = longest.as_secs_f64();
    let mut findings = Vec::new();
    let open: Vec<Session> = store.facts(sessions.query().bind(longest)).await?;
    findings.extend(open.iter().map(session));
    let open: Vec<(String, f64)> = store.facts(prepared.query().bind(longest)).await?;
    findings.extend(open.iter().map(prepared_transaction));
    let slots: Vec<Slot> = store.facts(slots.query()).await?;
    findings.extend(slots.iter().filter_map(slot));
    let no_stats_role: Vec<(String,)> = store.facts(no_stats_role.query()).await?;
    findings.extend(no_stats_role.iter().map(|(role,)| {
        Finding::note("not_visible", format!("role {role}"))
            .because("it may not see the transactions of other roles, one of which may hold back vacuum")
            .fixed_by(format!("grant pg_read_all_stats to {role};"))
    }));
    Ok(findings)
}

const LEADS_TO: &str = "vacuum cannot remove messages that were settled since, and every claim takes longer";

fn session((pid, application, state, seconds): &Session) -> Finding {
    let who = if application.is_empty() { "a client without application_name" } else { application.as_str() };
    let subject = format!("session {pid}");
    let (finding, what) = match state.starts_with("idle in transaction") {
        true => {
            (Finding::warning("idle_in_transaction", subject), "does nothing in a transaction that is open")
        }
        false => (Finding::warning("long_transaction", subject), "runs a transaction that is open"),
    };
    finding
        .because(format!("{who} {what} for {seconds:.0} s: {LEADS_TO}"))
        .fixed_by(format!("select pg_terminate_backend({pid});"))
}

fn prepared_transaction((gid, seconds): &(String, f64)) -> Finding {
    Finding::warning("prepared_transaction", format!("transaction {gid}"))
        .because(format!(
            "it was prepared {seconds:.0} s ago, and neither committed nor rolled back: {LEADS_TO}"
        ))
        .fixed_by(format!("rollback prepared '{}';", gid.replace('\'', "''")))
}

fn slot((name, is_active, xmin_age, bytes): &Slot) -> Option<Finding> {
    let what = if *xmin_age > OLD_XMIN {
        format!("its consumer still sees rows from {xmin_age} transactions ago: {LEADS_TO}")
    } else if !is_active && *bytes > MUCH_WAL {
        format!(
            "it is inactive, and keeps {} GiB of WAL for its consumer, until the disk is full",
            bytes >> 30
        )
    } else {
        return None;
    };
    Some(
        Finding::warning("replication_slot_lag", format!("slot {name}"))
            .because(what)
            .fixed_by(format!("select pg_drop_replication_slot('{}');", name.replace('\'', "''"))),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_is_reported_for_old_xmin_or_much_wal() {
        let of =
            |active, age, bytes| slot(&("standby".to_owned(), active, age, bytes)).map(|finding| finding.fix);
        assert_eq!(of(true, 0, i64::MAX), None);
        assert_eq!(of(false, 1000, 1 << 20), None);
        let fix = Some("select pg_drop_replication_slot('standby');".to_owned());
        assert_eq!((of(false, 0, 5 << 30), of(true, OLD_XMIN + 1, 0)), (fix.clone(), fix));
    }
}
