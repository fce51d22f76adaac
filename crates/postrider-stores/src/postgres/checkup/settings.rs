//! Settings that lose data or end what is at work, and where each was made.

use super::super::PostgresStore;
use postrider_core::{Error, Finding, Severity};

/// What holds for a new session of this user in this database, and which of the places where it can be said says so. What a role
/// has in one database counts most, then the role's, the database's, and everybody's.
const FACTS: &str = "select s.name, s.reset_val, s.source, d.setrole <> 0, d.setdatabase <> 0, \
      quote_ident(current_user), quote_ident(current_database()) \
    from pg_settings s left join lateral ( \
      select d.setrole, d.setdatabase from pg_db_role_setting d, unnest(d.setconfig) c(line) \
      where starts_with(c.line, s.name || '=') \
        and d.setrole in (0, (select r.oid from pg_roles r where r.rolname = current_user)) \
        and d.setdatabase in (0, (select b.oid from pg_database b where b.datname = current_database())) \
      order by d.setrole <> 0 desc, d.setdatabase <> 0 desc limit 1) d on true \
    where s.name = any($1)";

#[derive(Debug, Clone)]
struct Setting {
    name: String,
    value: String,
    source: String,
    /// Whether a role and a database are named where it is said; none where it is said for the whole server.
    place: Option<(bool, bool)>,
    role: String,
    database: String,
}

struct Watched {
    name: &'static str,
    is_wrong: fn(&str) -> bool,
    severity: Severity,
    code: &'static str,
    /// For the whole server.
    right: &'static str,
    reason: &'static str,
}

const WATCHED: [Watched; 10] = [
    Watched {
        name: "fsync",
        is_wrong: is_off,
        severity: Severity::Problem,
        code: "fsync_off",
        right: "on",
        reason: "commits are not flushed: a crash of the machine loses messages, and may spoil the database",
    },
    Watched {
        name: "full_page_writes",
        is_wrong: is_off,
        severity: Severity::Problem,
        code: "full_page_writes_off",
        right: "on",
        reason: "a page that was half written in a crash cannot be mended: the database may be spoilt",
    },
    Watched {
        name: "synchronous_commit",
        is_wrong: is_off,
        severity: Severity::Warning,
        code: "synchronous_commit_off",
        right: "on",
        reason: "a commit is told before it is flushed: a crash loses the last ones, with the messages in them",
    },
    Watched {
        name: "default_transaction_read_only",
        is_wrong: is_on,
        severity: Severity::Problem,
        code: "read_only",
        right: "off",
        reason: "sessions begin read-only: nothing can be staged, claimed or settled",
    },
    Watched {
        name: "autovacuum",
        is_wrong: is_off,
        severity: Severity::Warning,
        code: "autovacuum_off",
        right: "on",
        reason: "nobody clears away what was settled: tables grow, and every claim takes longer",
    },
    Watched {
        name: "track_counts",
        is_wrong: is_off,
        severity: Severity::Warning,
        code: "track_counts_off",
        right: "on",
        reason: "nobody counts what was settled, so autovacuum never comes: tables grow, and every claim takes longer",
    },
    Watched {
        name: "statement_timeout",
        is_wrong: is_under_a_minute,
        severity: Severity::Warning,
        code: "statement_timeout",
        right: "0",
        reason: "statements are ended after less than a minute: migrations and handlers that write fail halfway",
    },
    Watched {
        name: "transaction_timeout",
        is_wrong: is_under_a_minute,
        severity: Severity::Warning,
        code: "transaction_timeout",
        right: "0",
        reason: "transactions are ended after less than a minute: migrations and handlers in transactions fail halfway",
    },
    Watched {
        name: "idle_in_transaction_session_timeout",
        is_wrong: is_under_ten_seconds,
        severity: Severity::Warning,
        code: "idle_in_transaction_timeout",
        right: "0",
        reason: "a transaction that waits for less than ten seconds is ended: handlers in transactions lose what they did",
    },
    Watched {
        name: "idle_session_timeout",
        is_wrong: is_set,
        severity: Severity::Warning,
        code: "idle_session_timeout",
        right: "0",
        reason: "sessions that wait are ended: the one that listens for signals is, whenever all is quiet, and workers poll",
    },
];

fn is_off(value: &str) -> bool {
    value == "off"
}

fn is_on(value: &str) -> bool {
    value == "on"
}

/// In milliseconds; zero is for ever.
fn is_under(value: &str, most: u64) -> bool {
    value.parse().is_ok_and(|value: u64| value > 0 && value < most)
}

fn is_under_a_minute(value: &str) -> bool {
    is_under(value, 60_000)
}

fn is_under_ten_seconds(value: &str) -> bool {
    is_under(value, 10_000)
}

fn is_set(value: &str) -> bool {
    is_under(value, u64::MAX)
}

pub(super) async fn findings(store: &PostgresStore) -> Result<Vec<Finding>, Error> {
    type Row = (String, String, String, Option<bool>, Option<bool>, String, String);
    let names: Vec<_> = WATCHED.iter().map(|watched| watched.name).collect();
    let sql = store.inner.names.sql(FACTS);
    let rows: Vec<Row> = store.facts(sql.query().bind(names)).await?;
    let settings = rows.into_iter().map(|(name, value, source, in_role, in_database, role, database)| {
        Setting { name, value, source, place: in_role.zip(in_database), role, database }
    });
    Ok(settings.filter_map(|setting| judge(&setting)).collect())
}

fn judge(setting: &Setting) -> Option<Finding> {
    let watched = WATCHED.iter().find(|watched| watched.name == setting.name)?;
    let Watched { severity, code, reason, right, .. } = *watched;
    if !(watched.is_wrong)(&setting.value) {
        return None;
    }
    let finding = Finding::of(severity, code, format!("setting {}", setting.name));
    Some(finding.because(format!("it is {}: {reason}", setting.value)).fixed_by(mend(setting, right)))
}

/// Takes it back where it was said.
fn mend(setting: &Setting, right: &str) -> String {
    let Setting { name, value, source, place, role, database } = setting;
    let statement = match place {
        Some((true, true)) => format!("alter role {role} in database {database} reset {name};"),
        Some((true, false)) => format!("alter role {role} reset {name};"),
        Some((false, true)) => format!("alter database {database} reset {name};"),
        Some((false, false)) => format!("alter role all reset {name};"),
        None if source == "command line" => return format!("start the server without -c {name}={value}"),
        None => format!("alter system set {name} = {right}; select pg_reload_conf();"),
    };
    // A session that begins read-only cannot even say so.
    match name == "default_transaction_read_only" {
        true => format!("set {name} = off; {statement}"),
        false => statement,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(name: &str, value: &str, place: Option<(bool, bool)>) -> Setting {
        let of = |text: &str| text.to_owned();
        Setting {
            name: of(name),
            value: of(value),
            source: of("default"),
            place,
            role: of("nell"),
            database: of("shop"),
        }
    }

    #[test]
    fn each_is_mended_where_it_was_made() {
        for (place, expected) in [
            (Some((true, true)), "alter role nell in database shop reset statement_timeout;"),
            (Some((true, false)), "alter role nell reset statement_timeout;"),
            (Some((false, true)), "alter database shop reset statement_timeout;"),
            (Some((false, false)), "alter role all reset statement_timeout;"),
            (None, "alter system set statement_timeout = 0; select pg_reload_conf();"),
        ] {
            assert_eq!(judge(&setting("statement_timeout", "5000", place)).unwrap().fix, expected);
        }
        let given = Setting { source: "command line".to_owned(), ..setting("fsync", "off", None) };
        assert_eq!(judge(&given).unwrap().fix, "start the server without -c fsync=off");
    }

    #[test]
    fn what_is_right_is_not_told() {
        for (name, value) in
            [("fsync", "on"), ("statement_timeout", "0"), ("statement_timeout", "60000"), ("port", "5432")]
        {
            assert_eq!(judge(&setting(name, value, None)), None, "{name} {value}");
        }
        for watched in WATCHED {
            assert!(!(watched.is_wrong)(watched.right), "{} is not right with its own fix", watched.name);
        }
    }
}
