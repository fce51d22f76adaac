//! Removing what retention no longer keeps, in bounded chunks.

use super::{
    Names,
    drivers::{Cells, Driver},
    each::{each, each_place},
    error::store_error,
    moment::{Micros, micros},
    row::limit,
    writer::Write,
};
use postrider_core::{Error, PruneRequest, Pruned};
use sqlx::Row;
use uuid::Uuid;

pub(super) const ARCHIVED: &str = "select id from {archive} indexed by {archive_expires} where expires_at <= ?1 \
    order by expires_at limit ?2";

/// Queue by queue, since dead letters are in the order of their queue and time.
pub(super) const DEAD: &str = "select d.id from {queue} q cross join {dead} d indexed by {dead_failed} \
    on d.queue = q.id and d.failed_at <= ?1 limit ?2";

pub(super) const MARKS: &str = "select consumer, tenant, message_id from {inbox} indexed by {inbox_admitted} \
    where admitted_at <= ?1 order by admitted_at limit ?2";

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
    let mut inbox = 0;
    if let Some(age) = request.inbox_older_than {
        let left = request.limit - archived.len() - dead.len();
        inbox = marks(write, names, write.now.saturating_sub(micros(age)), left).await?;
    }
    let more = request.limit > 0 && archived.len() + dead.len() + inbox >= request.limit;
    Ok(Pruned { archived: archived.len() as u64, dead: dead.len() as u64, inbox: inbox as u64, more })
}

/// Removes what was marked by then, and answers how many marks that were.
async fn marks(write: &mut Write, names: &Names, by: Micros, most: usize) -> Result<usize, Error> {
    let old = names.statement(MARKS).bind(by).bind(limit(most));
    let mut marks: Vec<(String, String, Uuid)> = Vec::new();
    for row in write.connection.rows(old).await? {
        marks.push((Cells::get(&row, 0)?, Cells::get(&row, 1)?, Cells::get(&row, 2)?));
    }
    let delete = "delete from {inbox} where consumer = ? and tenant = ? and message_id = ?";
    each(&mut write.connection, names, delete, &marks, |statement, (consumer, tenant, id)| {
        statement.bind(consumer.clone()).bind(tenant.clone()).bind(*id)
    })
    .await?;
    Ok(marks.len())
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
