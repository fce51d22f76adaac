//! Invalid and bloated indexes. Validation reports indexes of the schema that are missing or invalid.

use super::super::{PostgresStore, validate::EXPECTED};
use postrider_core::{Error, Finding};

const FACTS: &str = "select quote_ident(n.nspname) || '.' || quote_ident(i.relname), substr(i.relname, length($2) + 1), \
      x.indisvalid, pg_relation_size(i.oid), \
      greatest(i.reltuples, t.reltuples, pg_stat_get_live_tuples(t.oid), 0)::float8 + pg_stat_get_dead_tuples(t.oid)::float8 \
    from pg_namespace n join pg_class t on t.relnamespace = n.oid and t.relkind = 'r' \
    join pg_index x on x.indrelid = t.oid join pg_class i on i.oid = x.indexrelid \
    where n.nspname = $1 and starts_with(t.relname, $2) order by i.relname";

/// Smaller indexes are not worth a finding.
const BIG_BYTES: i64 = 16 << 20;
/// More than an entry of our indexes takes.
const ENTRY_BYTES: f64 = 100.0;
/// More free space than an index has after a busy time.
const BLOAT_FACTOR: f64 = 4.0;

type Index = (String, String, bool, i64, f64);

pub(super) async fn findings(store: &PostgresStore) -> Result<Vec<Finding>, Error> {
    let names = &store.inner.names;
    let sql = names.sql(&sql!(FACTS));
    let indexes = store.facts(sql.query().bind(names.schema()).bind(names.prefix())).await?;
    Ok(indexes.iter().filter_map(assess).collect())
}

fn assess((index, bare, is_valid, bytes, rows): &Index) -> Option<Finding> {
    let is_ours = EXPECTED.lines().any(|line| line.split('\t').next() == Some(&format!("index {bare}")));
    if !is_valid && !is_ours {
        return Some(
            Finding::warning("leftover_index", format!("index {bare}"))
                .because("its creation did not finish: no query uses it, and it slows down every write")
                .fixed_by(format!("drop index concurrently {index};")),
        );
    }
    let needed = rows * ENTRY_BYTES;
    if *bytes < BIG_BYTES || (*bytes as f64) < needed * BLOAT_FACTOR {
        return None;
    }
    let (bytes, rows) = (bytes >> 20, rows);
    Some(
        Finding::warning("bloated_index", format!("index {bare}"))
            .because(format!("it has {bytes} MiB for {rows} rows: every scan reads entries of deleted rows"))
            .fixed_by(format!("reindex index concurrently {index};")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_much_larger_than_its_rows_is_reported() {
        let index = |bytes: i64, rows: f64| ("i".to_owned(), "ready_key".to_owned(), true, bytes, rows);
        assert_eq!(assess(&index(BIG_BYTES - 1, 0.0)), None);
        assert_eq!(assess(&index(1 << 30, 10_000_000.0)), None);
        assert_eq!(assess(&index(1 << 30, 10_000.0)).map(|finding| finding.code), Some("bloated_index"));
    }
}
