//! Removing what retention no longer keeps, in bounded chunks.

use super::{
    Names,
    each::each_place,
    error::store_error,
    moment::{Micros, micros},
    row::limit,
    writer::Write,
};
use postrider_core::{Error, PruneRequest, Pruned};
use sqlx::Row;

pub(super) const ARCHIVED: &str = "select id from {archive} indexed by {archive_expires} where expires_at <= ?1 \
    order by expires_at limit ?2";

/// Queue by queue, since dead letters are in the order of their queue and time.
pub(super) const DEAD: &str = "select d.id from {queue} q cross join {dead} d indexed by {dead_failed} \
    on d.queue = q.id and d.failed_at <= ?1 limit ?2";

/// Removes a chunk.
pub(super) async fn prune(write: &mut Write, names: &Names, request: &PruneRequest) -> Result<Pruned, Error> {
    let archived = old(write, names, ARCHIVED, write.now, request.limit).await?;
    each_place(&mut write.connection, names, "delete from {archive} where id = ?", &archived).await?;
    let mut dead = Vec::new();
    if let Some(age) = request.dead_older_than {
        let failed_by = write.now.saturating_sub(micros(age));
        dead = old(write, names, DEAD, failed_by, request.limit - archived.len()).await?;
        each_place(&mut write.connection, names, "delete from {dead} where id = ?", &dead).await?;
    }
    let more = request.limit > 0 && archived.len() + dead.len() >= request.limit;
    Ok(Pruned { archived: archived.len() as u64, dead: dead.len() as u64, more })
}

async fn old(
    write: &mut Write,
    names: &Names,
    template: &str,
    by: Micros,
    most: usize,
) -> Result<Vec<i64>, Error> {
    let sql = names.sql(template);
    let rows = sql.query().bind(by).bind(limit(most)).fetch_all(&mut write.connection).await;
    rows.map_err(store_error)?.iter().map(|row| row.try_get(0).map_err(store_error)).collect()
}
