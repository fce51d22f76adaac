//! Tables that autovacuum does not clean. Validation reports autovacuum settings that differ from the schema.

use super::super::PostgresStore;
use postrider_core::{Error, Finding};

const FACTS: &str = "select quote_ident(n.nspname) || '.' || quote_ident(t.relname), substr(t.relname, length($2) + 1), \
      coalesce((select o.option_value::bool from pg_options_to_table(t.reloptions) o where o.option_name = 'autovacuum_enabled'), true), \
      pg_stat_get_dead_tuples(t.oid), pg_stat_get_live_tuples(t.oid), \
      coalesce(greatest(pg_stat_get_last_vacuum_time(t.oid), pg_stat_get_last_autovacuum_time(t.oid)) \
        > clock_timestamp() - interval '10 minutes', false) \
    from pg_namespace n join pg_class t on t.relnamespace = n.oid and t.relkind = 'r' \
    where n.nspname = $1 and starts_with(t.relname, $2) order by t.relname";

/// As many as a busy queue leaves within a minute, the interval of autovacuum.
const MANY_DEAD_ROWS: i64 = 100_000;

type Table = (String, String, bool, i64, i64, bool);

pub(super) async fn findings(store: &PostgresStore) -> Result<Vec<Finding>, Error> {
    let names = &store.inner.names;
    let sql = names.sql(&sql!(FACTS));
    let tables = store.facts(sql.query().bind(names.schema()).bind(names.prefix())).await?;
    Ok(tables.iter().flat_map(assess).collect())
}

fn assess((table, bare, is_vacuumed, dead, live, was_vacuumed): &Table) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !is_vacuumed {
        findings.push(
            Finding::warning("autovacuum_off", format!("table {bare}"))
                .because("autovacuum is disabled: the table grows, and every claim takes longer")
                .fixed_by(format!("alter table {table} reset (autovacuum_enabled);")),
        );
    }
    if *dead > MANY_DEAD_ROWS && dead > live && !was_vacuumed {
        findings.push(
            Finding::warning("dead_tuples", format!("table {bare}"))
                .because(format!("{dead} dead rows beside {live} live ones, and no vacuum for ten minutes"))
                .fixed_by(format!("vacuum (analyze) {table};")),
        );
    }
    findings
}
