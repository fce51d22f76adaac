//! Settings that lose data or interrupt work, and the scope in which each was set.

use super::super::PostgresStore;
use postrider_core::{Error, Finding, Severity};

/// The effective values for a new session of this user in this database, and the scope that set each. A role's setting in one
/// database overrides the role's, then the database's, then that for all roles.
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
    /// Whether the setting names a role and a database; `None` when it is set for the whole server.
    scope: Option<(bool, bool)>,
    role: String,
    database: String,
}

struct Watched {
    name: &'static str,
    is_wrong: fn(&str) -> bool,
    severity: Severity,
    code: &'static str,
    /// The right value, for the whole server.
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
        reason: "commits are not flushed: a crash of the machine loses messages, and may corrupt the database",
    },
    Watched {
        name: "full_page_writes",
        is_wrong: is_off,
        severity: Severity::Problem,
        code: "full_page_writes_off",
        right: "on",
        reason: "a page that was half written in a crash cannot be recovered: the database may be corrupted",
    },
    Watched {
        name: "synchronous_commit",
        is_wrong: is_off,
        severity: Severity::Warning,
        code: "synchronous_commit_off",
        right: "on",
        reason: "a commit returns before it is flushed: a crash loses the last commits, with their messages",
    },
    Watched {
        name: "default_transaction_read_only",
        is_wrong: is_on,
        severity: Severity::Problem,
        code: "read_only",
        right: "off",
        reason: "sessions start read-only: staging, claiming and settling fail",
    },
    Watched {
        name: "autovacuum",
        is_wrong: is_off,
        severity: Severity::Warning,
        code: "autovacuum_off",
        right: "on",
        reason: "settled messages are not vacuumed: tables grow, and every claim takes longer",
    },
    Watched {
        name: "track_counts",
        is_wrong: is_off,
        severity: Severity::Warning,
        code: "track_counts_off",
        right: "on",
        reason: "dead rows are not counted, so autovacuum never runs: tables grow, and every claim takes longer",
    },
    Watched {
        name: "statement_timeout",
        is_wrong: is_under_a_minute,
        severity: Severity::Warning,
        code: "statement_timeout",
        right: "0",
        reason: "statements are cancelled after less than a minute: migrations and handlers that write may fail",
    },
    Watched {
        name: "transaction_timeout",
        is_wrong: is_under_a_minute,
        severity: Severity::Warning,
        code: "transaction_timeout",
        right: "0",
        reason: "transactions are cancelled after less than a minute: migrations and handlers in transactions may fail",
    },
    Watched {
        name: "idle_in_transaction_session_timeout",
        is_wrong: is_under_ten_seconds,
        severity: Severity::Warning,
        code: "idle_in_transaction_timeout",
        right: "0",
        reason: "idle transactions are ended after less than ten seconds: handlers in transactions lose their work",
    },
    Watched {
        name: "idle_session_timeout",
        is_wrong: is_set,
        severity: Severity::Warning,
        code: "idle_session_timeout",
        right: "0",
        reason: "idle sessions are ended: the listener's session, too, when there are no notifications, and workers poll",
    },
];

fn is_off(value: &str) -> bool {
    value == "off"
}

fn is_on(value: &str) -> bool {
    value == "on"
}

/// In milliseconds; zero means no limit.
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
    let sql = store.inner.names.sql(&sql!(FACTS));
    let rows: Vec<Row> = store.facts(sql.query().bind(names)).await?;
    let settings = rows.into_iter().map(|(name, value, source, in_role, in_database, role, database)| {
        Setting { name, value, source, scope: in_role.zip(in_database), role, database }
    });
    Ok(settings.filter_map(|setting| assess(&setting)).collect())
}

fn assess(setting: &Setting) -> Option<Finding> {
    let watched = WATCHED.iter().find(|watched| watched.name == setting.name)?;
    let Watched { severity, code, reason, right, .. } = *watched;
    if !(watched.is_wrong)(&setting.value) {
        return None;
    }
    let finding = Finding::of(severity, code, format!("setting {}", setting.name));
    Some(finding.because(format!("it is {}: {reason}", setting.value)).fixed_by(fix(setting, right)))
}

/// Resets the setting in the scope that set it.
fn fix(setting: &Setting, right: &str) -> String {
    let Setting { name, value, source, scope, role, database } = setting;
    let statement = match scope {
        Some((true, true)) => format!("alter role {role} in database {database} reset {name};"),
        Some((true, false)) => format!("alter role {role} reset {name};"),
        Some((false, true)) => format!("alter database {database} reset {name};"),
        Some((false, false)) => format!("alter role all reset {name};"),
        None if source == "command line" => return format!("start the server without -c {name}={value}"),
        None => format!("alter system set {name} = {right}; select pg_reload_conf();"),
    };
    // A session that starts read-only cannot run the statement without this.
    match name == "default_transaction_read_only" {
        true => format!("set {name} = off; {statement}"),
        false => statement,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(name: &str, value: &str, scope: Option<(bool, bool)>) -> Setting {
        let of = |text: &str| text.to_owned();
        Setting {
            name: of(name),
            value: of(value),
            source: of("default"),
            scope,
            role: of("nell"),
            database: of("shop"),
        }
    }

    #[test]
    fn fix_resets_setting_in_scope_that_set_it() {
        for (scope, expected) in [
            (Some((true, true)), "alter role nell in database shop reset statement_timeout;"),
            (Some((true, false)), "alter role nell reset statement_timeout;"),
            (Some((false, true)), "alter database shop reset statement_timeout;"),
            (Some((false, false)), "alter role all reset statement_timeout;"),
            (None, "alter system set statement_timeout = 0; select pg_reload_conf();"),
        ] {
            assert_eq!(assess(&setting("statement_timeout", "5000", scope)).unwrap().fix, expected);
        }
        let given = Setting { source: "command line".to_owned(), ..setting("fsync", "off", None) };
        assert_eq!(assess(&given).unwrap().fix, "start the server without -c fsync=off");
    }

    #[test]
    fn right_values_have_no_finding() {
        for (name, value) in
            [("fsync", "on"), ("statement_timeout", "0"), ("statement_timeout", "60000"), ("port", "5432")]
        {
            assert_eq!(assess(&setting(name, value, None)), None, "{name} {value}");
        }
        for watched in WATCHED {
            assert!(!(watched.is_wrong)(watched.right), "{} is not right with its own fix", watched.name);
        }
    }
}
