//! The server: its version, its clock, its connections, and its distance from transaction ID wraparound.

use super::super::PostgresStore;
use postrider_core::{Error, Finding};
use std::time::{Duration, SystemTime};

const FACTS: &str = "select current_setting('server_version_num')::int4, pg_is_in_recovery(), \
      (select age(d.datfrozenxid) from pg_database d where d.datname = current_database()), \
      current_setting('max_connections')::int8 - current_setting('superuser_reserved_connections')::int8, \
      current_setting('max_connections')::int8, \
      (select count(*) from pg_stat_activity a where a.backend_type = 'client backend'), \
      extract(epoch from clock_timestamp())::float8, \
      (select s.source = 'command line' from pg_settings s where s.name = 'max_connections')";

/// The oldest version that the statements need, and the newest that they were tested with.
const OLDEST: i32 = 14;
const NEWEST: i32 = 18;
/// Autovacuum becomes aggressive at 200 million; at two billion the server stops.
const FROZEN_LATE: i32 = 600_000_000;
const FROZEN_TOO_LATE: i32 = 1_500_000_000;
/// Tolerated in addition to the uncertainty of the round trip.
const SKEW: Duration = Duration::from_secs(2);

#[derive(Debug, Clone)]
struct Server {
    version: i32,
    is_standby: bool,
    frozen_age: i32,
    connections: i64,
    max: i64,
    used: i64,
    /// Whether the limit was set on the server's command line.
    is_on_command_line: bool,
}

pub(super) async fn findings(store: &PostgresStore) -> Result<Vec<Finding>, Error> {
    let before = SystemTime::now();
    let sql = store.inner.names.sql(&sql!(FACTS));
    type Row = (i32, bool, i32, i64, i64, i64, f64, bool);
    let (version, is_standby, frozen_age, connections, max, used, clock, is_on_command_line): Row =
        store.fact(sql.query()).await?;
    let took = before.elapsed().unwrap_or_default();
    let server = Server { version, is_standby, frozen_age, connections, max, used, is_on_command_line };
    let here = (before + took / 2).duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Ok([assess(&server), skew(clock - here.as_secs_f64(), took / 2).into_iter().collect()].concat())
}

fn assess(server: &Server) -> Vec<Finding> {
    let mut findings = Vec::new();
    let major = server.version / 10_000;
    if major < OLDEST {
        findings.push(
            Finding::problem("old_server", "server")
                .because(format!(
                    "PostgreSQL {major} lacks features that the statements need; {OLDEST} is the oldest supported version"
                ))
                .fixed_by(format!(
                    "move the database to PostgreSQL {NEWEST}: pg_upgrade, or pg_dump and psql"
                )),
        );
    }
    if major > NEWEST {
        findings.push(
            Finding::note("new_server", "server")
                .because(format!(
                    "PostgreSQL {major} is newer than this version of Postrider, which was tested up to {NEWEST}"
                ))
                .fixed_by("cargo install postrider-cli"),
        );
    }
    if server.is_standby {
        findings.push(
            Finding::problem("read_only", "server")
                .because("it is a read-only standby: staging, claiming and settling fail")
                .fixed_by("connect to the primary: add ?target_session_attrs=read-write, or set its host"),
        );
    }
    if server.frozen_age > FROZEN_LATE {
        let age = server.frozen_age / 1_000_000;
        let finding = match server.frozen_age > FROZEN_TOO_LATE {
            true => Finding::problem("wraparound", "database"),
            false => Finding::warning("wraparound", "database"),
        };
        findings.push(
            finding
                .because(format!(
                    "its oldest row is {age} million transactions old: at 2,000 million the server refuses every write"
                ))
                .fixed_by("vacuum (freeze);"),
        );
    }
    if server.used * 10 >= server.connections * 9 {
        let Server { used, connections, max, .. } = server;
        let fix = match server.is_on_command_line {
            true => format!("restart the server with -c max_connections={}", max * 2),
            false => format!("alter system set max_connections = {}; -- then restart the server", max * 2),
        };
        findings.push(
            Finding::warning("few_connections", "server")
                .because(format!(
                    "{used} of {connections} connections are in use: the next worker may not get one"
                ))
                .fixed_by(fix),
        );
    }
    findings
}

/// The store's clock decides when a message is due; applications set due times by their own clocks.
fn skew(seconds: f64, uncertain: Duration) -> Option<Finding> {
    if seconds.abs() <= (SKEW + uncertain).as_secs_f64() {
        return None;
    }
    let (by, way) = (seconds.abs(), if seconds > 0.0 { "ahead of" } else { "behind" });
    Some(
        Finding::warning("clock_skew", "clock")
            .because(format!(
                "the server's clock is {by:.1} s {way} this machine's: messages with a due time are delivered that much too early or too late"
            ))
            .fixed_by("chronyc makestep"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEALTHY: Server = Server {
        version: 160_004,
        is_standby: false,
        frozen_age: 100_000_000,
        connections: 97,
        max: 100,
        used: 20,
        is_on_command_line: false,
    };

    fn codes(server: &Server) -> Vec<&'static str> {
        assess(server).iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn each_bad_fact_of_server_has_its_finding() {
        assert_eq!(codes(&HEALTHY), [""; 0]);
        for (server, expected) in [
            (Server { version: 130_012, ..HEALTHY }, "old_server"),
            (Server { version: 190_000, ..HEALTHY }, "new_server"),
            (Server { is_standby: true, ..HEALTHY }, "read_only"),
            (Server { frozen_age: 700_000_000, ..HEALTHY }, "wraparound"),
            (Server { used: 90, ..HEALTHY }, "few_connections"),
        ] {
            assert_eq!(codes(&server), [expected], "{server:?}");
        }
        let fix = &assess(&Server { used: 90, ..HEALTHY })[0].fix;
        assert_eq!(fix, "alter system set max_connections = 200; -- then restart the server");
    }

    #[test]
    fn clock_skew_beyond_round_trip_is_reported() {
        let second = Duration::from_secs(1);
        assert_eq!(skew(2.9, second), None);
        assert_eq!(skew(-2.9, second), None);
        let finding = skew(-30.0, second).unwrap();
        assert!(
            finding.reason.starts_with("the server's clock is 30.0 s behind this machine's"),
            "{finding:?}"
        );
    }
}
