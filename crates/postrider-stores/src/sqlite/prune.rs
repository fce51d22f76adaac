//! Removing what retention no longer keeps, in bounded chunks.

use super::{Names, error::store_error, moment::micros, row::limit, writer::Write};
use postrider_core::{Error, PruneRequest, Pruned};

pub(super) const ARCHIVED: &str = "delete from {archive} where id in ( \
    select id from {archive} where expires_at <= ?1 order by expires_at limit ?2)";

/// Queue by queue, since dead letters are in the order of their queue and time.
pub(super) const DEAD: &str = "delete from {dead} where id in ( \
    select d.id from {queue} q cross join {dead} d on d.queue = q.id and d.failed_at <= ?1 limit ?2)";

/// Removes a chunk.
pub(super) async fn prune(write: &mut Write, names: &Names, request: &PruneRequest) -> Result<Pruned, Error> {
    let mut left = limit(request.limit);
    let query = names.sql(ARCHIVED);
    let query = query.query().bind(write.now).bind(left);
    let archived = query.execute(&mut write.connection).await.map_err(store_error)?.rows_affected();
    left -= i64::try_from(archived).unwrap_or(left);
    let mut dead = 0;
    if let Some(age) = request.dead_older_than {
        let failed_by = write.now.saturating_sub(micros(age));
        let sql = names.sql(DEAD);
        let query = sql.query().bind(failed_by).bind(left);
        dead = query.execute(&mut write.connection).await.map_err(store_error)?.rows_affected();
    }
    Ok(Pruned { archived, dead, more: request.limit > 0 && archived + dead >= request.limit as u64 })
}
