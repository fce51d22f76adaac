//! Checks whether the connected role has the privileges of its role in Postrider.

use super::super::{PostgresStore, Role};
use postrider_core::{Error, Finding};

/// Objects are looked up by name in the catalog: a role without usage on the schema has no other way. Validation reports missing
/// objects.
const FACTS: &str = "select u.n, quote_ident(current_user) from unnest($3::int4[], $4::text[], $5::text[], $6::text[], $7::text[]) u(n, kind, name, part, verb) \
    where not coalesce(case u.kind \
      when 'function' then (select bool_and(has_function_privilege(p.oid, u.verb)) from pg_proc p \
        join pg_namespace s on s.oid = p.pronamespace where s.nspname = $1 and p.proname = $2 || u.name) \
      when 'schema' then (select has_schema_privilege(s.oid, u.verb) from pg_namespace s where s.nspname = $1) \
      else (select case when u.kind = 'sequence' then has_sequence_privilege(c.oid, u.verb) \
                        when u.part = '' then has_table_privilege(c.oid, u.verb) \
                        else has_column_privilege(c.oid, u.part, u.verb) end \
        from pg_class c join pg_namespace s on s.oid = c.relnamespace where s.nspname = $1 and c.relname = $2 || u.name) \
      end, true)";

/// One privilege of one line of the grants.
#[derive(Debug, PartialEq, Eq)]
struct Privilege {
    kind: &'static str,
    name: String,
    /// The column, or empty.
    part: String,
    verb: String,
}

pub(super) async fn findings(store: &PostgresStore, role: Option<Role>) -> Result<Vec<Finding>, Error> {
    let Some(role) = role else { return Ok(Vec::new()) };
    let lines: Vec<&str> = ["usage on schema"].into_iter().chain(role.privileges()).collect();
    let mut required = Vec::new();
    for (index, line) in (0_i32..).zip(&lines) {
        required.extend(privileges(line).into_iter().map(|privilege| (index, privilege)));
    }
    let names = &store.inner.names;
    let column =
        |of: fn(&Privilege) -> &str| required.iter().map(|(_, privilege)| of(privilege)).collect::<Vec<_>>();
    let sql = names.sql(&sql!(FACTS));
    let query = sql.query().bind(names.schema()).bind(names.prefix());
    let query = query.bind(required.iter().map(|(index, _)| *index).collect::<Vec<_>>());
    let query =
        query.bind(column(|privilege| privilege.kind)).bind(column(|privilege| privilege.name.as_str()));
    let query = query
        .bind(column(|privilege| privilege.part.as_str()))
        .bind(column(|privilege| privilege.verb.as_str()));
    let mut missing: Vec<(i32, String)> = store.facts(query).await?;
    missing.sort();
    missing.dedup();
    let Some((_, user)) = missing.first() else { return Ok(Vec::new()) };
    let grants: Vec<_> = missing
        .iter()
        .filter_map(|(index, user)| {
            let line = match *index {
                0 => "usage on schema \"{#schema}\"",
                index => lines.get(usize::try_from(index).ok()?)?,
            };
            Some(format!("grant {} to {user};", names.render(line)))
        })
        .collect();
    Ok(vec![
        Finding::problem("missing_grants", format!("role {user}"))
            .because(format!("it lacks privileges that a {role} needs: its statements fail"))
            .fixed_by(grants.join("\n")),
    ])
}

/// The privileges of a line such as `select, insert (id, name) on {ready}, {scheduled}`.
fn privileges(line: &str) -> Vec<Privilege> {
    let Some((verbs, objects)) = line.split_once(" on ") else { return Vec::new() };
    let (kind, objects) = match objects.split_once(' ') {
        Some(("function", objects)) => ("function", objects),
        Some(("sequence", objects)) => ("sequence", objects),
        _ if objects == "schema" => ("schema", "{}"),
        _ => ("table", objects),
    };
    let (verbs, parts) = match verbs.split_once(" (") {
        Some((verb, columns)) => (verb, columns.trim_end_matches(')')),
        None => (verbs, ""),
    };
    let mut privileges = Vec::new();
    for object in objects.split('{').skip(1).filter_map(|object| object.split_once('}')) {
        for verb in verbs.split(", ") {
            for part in parts.split(", ") {
                let [name, part, verb] = [object.0, part, verb].map(str::to_owned);
                privileges.push(Privilege { kind, name, part, verb });
            }
        }
    }
    privileges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_grant_line_of_every_role_is_parsed() {
        for role in Role::ALL {
            for line in role.privileges() {
                assert!(!privileges(line).is_empty(), "{line}");
            }
        }
        let privilege = |name: &str, part: &str, verb: &str| Privilege {
            kind: "table",
            name: name.to_owned(),
            part: part.to_owned(),
            verb: verb.to_owned(),
        };
        assert_eq!(
            privileges("select, insert on {ready}, {scheduled}"),
            [
                privilege("ready", "", "select"),
                privilege("ready", "", "insert"),
                privilege("scheduled", "", "select"),
                privilege("scheduled", "", "insert")
            ]
        );
        assert_eq!(
            privileges("update (due_at, key) on {scheduled}"),
            [privilege("scheduled", "due_at", "update"), privilege("scheduled", "key", "update")]
        );
        assert_eq!(privileges("execute on function {stage}(text, bytea)").len(), 1);
        assert_eq!(privileges("usage on schema")[0].kind, "schema");
    }
}
