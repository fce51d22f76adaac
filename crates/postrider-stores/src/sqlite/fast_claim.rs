//! The fast path of claiming: the first free messages of one unordered queue, in one statement. A busy worker needs nothing else.
//!
//! It applies while no scheduled message is due and no lease has expired. Otherwise it claims nothing, and the general path
//! (`claim.rs`) follows in the same transaction.

use super::{
    SqliteNames,
    claim::{ReadyRow, returned},
    error::store_error,
    row::sql_limit,
    statement::Statement,
    timestamp::micros,
    writer::{Write, Writer},
};
use crate::template::Template;
use postrider_core::{ClaimRequest, ClaimedMessage, Error, LeaseToken, limits::FARTHEST_DUE};

/// The queue is looked up once; if the condition fails there is no queue, and so no row. The index allows only one query plan.
pub(super) fn template() -> Template {
    const QUEUE: &str = "(select q.id from {queue} q where q.name = ?3 and q.ordered = 0 and q.fair = 0 \
        and not exists (select 1 from {pause} p where p.kind = 'queue' and p.name = q.name) \
        and not exists (select 1 from {scheduled} w indexed by {scheduled_due} where w.queue = q.id and w.due_at <= {now}) \
        and not exists (select 1 from {ready} r indexed by {ready_leased} \
          where r.queue = q.id and r.token is not null and r.lease_until <= {now}))";
    const CLAIM: &str = "update {ready} indexed by {ready_free} set token = ?1, lease_until = {now} + ?2, \
          deliveries = deliveries + 1, promoted = 0 \
        where queue = {free_queue} and token is null and id <= (select max(f.id) from ( \
          select r.id from {ready} r indexed by {ready_free} \
          where r.queue = (select q.id from {queue} q where q.name = ?3) and r.token is null order by r.id limit ?4) f) \
        returning {returned}";
    sql!(CLAIM, free_queue = sql!(QUEUE), returned = returned())
}

/// Begins a write and claims. An empty result means that the caller must take the general path.
pub(super) async fn claim(
    writer: &Writer,
    names: &SqliteNames,
    request: &ClaimRequest,
) -> Result<(Write, Vec<ClaimedMessage>), Error> {
    let [queue] = request.queues() else { return Ok((writer.begin(names).await?, Vec::new())) };
    let token = LeaseToken::fresh();
    let bind = |statement: Statement<'static>| {
        let statement = statement.bind(token.as_uuid()).bind(micros(request.lease_for().min(FARTHEST_DUE)));
        statement.bind(queue.as_str().to_owned()).bind(sql_limit(request.limit()))
    };
    let (write, rows) = writer.begin_with(names, &template(), bind).await?;
    let mut claimed = Vec::with_capacity(rows.len());
    for row in rows {
        claimed.push(ReadyRow::read(&row, queue).map_err(store_error)?.into_claimed(queue, token, write.now));
    }
    claimed.sort_unstable_by_key(|(position, _)| *position);
    Ok((write, claimed.into_iter().map(|(_, claimed)| claimed).collect()))
}
