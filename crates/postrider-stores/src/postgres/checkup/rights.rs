//! Whether whoever connects may do what it is there for.

use super::super::{PostgresStore, Role};
use postrider_core::{Error, Finding};

/// What exists is looked up by its name in the catalog: whoever may not use the schema cannot ask otherwise. What is missing
/// is validation's.
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

/// One right of one line of the grants.
#[derive(Debug, PartialEq, Eq)]
struct Right {
    kind: &'static str,
    name: String,
    /// The column, or nothing.
    part: String,
    verb: String,
}

pub(super) async fn findings(store: &PostgresStore, role: Option<Role>) -> Result<Vec<Finding>, Error> {
    let Some(role) = role else { return Ok(Vec::new()) };
    let lines: Vec<&str> = ["usage on schema"].into_iter().chain(role.rights()).collect();
    let mut asked = Vec::new();
    for (index, line) in (0_i32..).zip(&lines) {
        asked.extend(rights(line).into_iter().map(|right| (index, right)));
    }
    let names = &store.inner.names;
    let column = |of: fn(&Right) -> &str| asked.iter().map(|(_, right)| of(right)).collect::<Vec<_>>();
    let sql = names.sql(FACTS);
    let query = sql.query().bind(names.schema()).bind(names.prefix());
    let query = query.bind(asked.iter().map(|(index, _)| *index).collect::<Vec<_>>());
    let query = query.bind(column(|right| right.kind)).bind(column(|right| right.name.as_str()));
    let query = query.bind(column(|right| right.part.as_str())).bind(column(|right| right.verb.as_str()));
    let mut lacking: Vec<(i32, String)> = store.facts(query).await?;
    lacking.sort();
    lacking.dedup();
    let Some((_, user)) = lacking.first() else { return Ok(Vec::new()) };
    let grants: Vec<_> = lacking
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
        Finding::problem("missing_rights", format!("role {user}"))
            .because(format!("it lacks rights that a {role} needs: what it does fails"))
            .fixed_by(grants.join("\n")),
    ])
}

/// The rights of a line such as `select, insert (id, name) on {ready}, {later}`.
fn rights(line: &str) -> Vec<Right> {
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
    let mut rights = Vec::new();
    for object in objects.split('{').skip(1).filter_map(|object| object.split_once('}')) {
        for verb in verbs.split(", ") {
            for part in parts.split(", ") {
                let [name, part, verb] = [object.0, part, verb].map(str::to_owned);
                rights.push(Right { kind, name, part, verb });
            }
        }
    }
    rights
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_every_role_is_read() {
        for role in Role::ALL {
            for line in role.rights() {
                assert!(!rights(line).is_empty(), "{line}");
            }
        }
        let right = |name: &str, part: &str, verb: &str| Right {
            kind: "table",
            name: name.to_owned(),
            part: part.to_owned(),
            verb: verb.to_owned(),
        };
        assert_eq!(
            rights("select, insert on {ready}, {later}"),
            [
                right("ready", "", "select"),
                right("ready", "", "insert"),
                right("later", "", "select"),
                right("later", "", "insert")
            ]
        );
        assert_eq!(
            rights("update (due_at, key) on {later}"),
            [right("later", "due_at", "update"), right("later", "key", "update")]
        );
        assert_eq!(rights("execute on function {stage}(text, bytea)").len(), 1);
        assert_eq!(rights("usage on schema")[0].kind, "schema");
    }
}
