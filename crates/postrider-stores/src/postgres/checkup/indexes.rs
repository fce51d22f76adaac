//! Indexes that cost and do not serve. Those that are missing, or ours and invalid, are told by validation.

use super::super::{PostgresStore, validate::EXPECTED};
use postrider_core::{Error, Finding};

const FACTS: &str = "select quote_ident(n.nspname) || '.' || quote_ident(i.relname), substr(i.relname, length($2) + 1), \
      x.indisvalid, pg_relation_size(i.oid), \
      greatest(i.reltuples, t.reltuples, pg_stat_get_live_tuples(t.oid), 0)::float8 + pg_stat_get_dead_tuples(t.oid)::float8 \
    from pg_namespace n join pg_class t on t.relnamespace = n.oid and t.relkind = 'r' \
    join pg_index x on x.indrelid = t.oid join pg_class i on i.oid = x.indexrelid \
    where n.nspname = $1 and starts_with(t.relname, $2) order by i.relname";

/// Smaller ones are not worth the trouble.
const BIG_BYTES: i64 = 16 << 20;
/// More than an entry of ours takes, and more than an index has in free room after a busy time.
const ENTRY_BYTES: f64 = 100.0;
const ROOM: f64 = 4.0;

type Index = (String, String, bool, i64, f64);

pub(super) async fn findings(store: &PostgresStore) -> Result<Vec<Finding>, Error> {
    let names = &store.inner.names;
    let sql = names.sql(FACTS);
    let indexes = store.facts(sql.query().bind(names.schema()).bind(names.prefix())).await?;
    Ok(indexes.iter().filter_map(judge).collect())
}

fn judge((index, bare, is_valid, bytes, rows): &Index) -> Option<Finding> {
    let is_ours = EXPECTED.lines().any(|line| line.split('\t').next() == Some(&format!("index {bare}")));
    if !is_valid && !is_ours {
        return Some(
            Finding::warning("leftover_index", format!("index {bare}"))
                .because("it was never finished, serves nobody, and costs every write")
                .fixed_by(format!("drop index concurrently {index};")),
        );
    }
    let needed = rows * ENTRY_BYTES;
    if *bytes < BIG_BYTES || (*bytes as f64) < needed * ROOM {
        return None;
    }
    let (bytes, rows) = (bytes >> 20, rows);
    Some(
        Finding::warning("bloated_index", format!("index {bare}"))
            .because(format!(
                "it has {bytes} MiB for {rows} rows: every look into it reads what is not there any more"
            ))
            .fixed_by(format!("reindex index concurrently {index};")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_as_large_as_its_rows_let_it_be() {
        let index = |bytes: i64, rows: f64| ("i".to_owned(), "ready_key".to_owned(), true, bytes, rows);
        assert_eq!(judge(&index(BIG_BYTES - 1, 0.0)), None);
        assert_eq!(judge(&index(1 << 30, 10_000_000.0)), None);
        assert_eq!(judge(&index(1 << 30, 10_000.0)).map(|finding| finding.code), Some("bloated_index"));
    }
}
