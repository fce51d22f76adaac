//! Claiming from the front of one line, in one statement: what a busy worker of an unordered queue does all day.
//!
//! It serves while nothing waits beside that line: nothing has come due in `later`, and no lease has lapsed. Otherwise it
//! takes nothing, and the claim is made the general way (`claim.rs`), in the same transaction.

use super::{
    Names,
    claim::{Found, RETURNED},
    error::store_error,
    moment::micros,
    row::{COLUMNS, limit},
    statement::Statement,
    writer::{Write, Writer},
};
use postrider_core::{ClaimRequest, Claimed, Error, LeaseToken, limits::FARTHEST_DUE};

/// The queue is looked up once; where the condition fails there is none, and so no row. The index allows for one plan only.
pub(super) fn template() -> String {
    const LINE: &str = "(select q.id from {queue} q where q.name = ?3 and q.ordered = 0 and q.fair = 0 \
        and not exists (select 1 from {pause} p where p.kind = 'queue' and p.name = q.name) \
        and not exists (select 1 from {later} w indexed by {later_due} where w.queue = q.id and w.due_at <= {now}) \
        and not exists (select 1 from {ready} r indexed by {ready_leased} \
          where r.queue = q.id and r.token is not null and r.lease_until <= {now}))";
    format!(
        "update {{ready}} indexed by {{ready_free}} set token = ?1, lease_until = {{now}} + ?2, \
           deliveries = deliveries + 1, ripe = 0 \
         where queue = {LINE} and token is null and id <= (select max(f.id) from ( \
           select r.id from {{ready}} r indexed by {{ready_free}} \
           where r.queue = (select q.id from {{queue}} q where q.name = ?3) and r.token is null order by r.id limit ?4) f) \
         {RETURNED}, {COLUMNS}"
    )
}

/// Begins a write and claims. The general way is for whatever is not found here.
pub(super) async fn claim(
    writer: &Writer,
    names: &Names,
    request: &ClaimRequest,
) -> Result<(Write, Vec<Claimed>), Error> {
    let [queue] = request.queues() else { return Ok((writer.begin(names).await?, Vec::new())) };
    let token = LeaseToken::fresh();
    let bind = |statement: Statement<'static>| {
        let statement = statement.bind(token.as_uuid()).bind(micros(request.lease_for().min(FARTHEST_DUE)));
        statement.bind(queue.as_str().to_owned()).bind(limit(request.limit()))
    };
    let (write, rows) = writer.begin_with(names, &template(), bind).await?;
    let mut claimed = Vec::with_capacity(rows.len());
    for row in rows {
        claimed.push(Found::read(&row, queue).map_err(store_error)?.leased(queue, token));
    }
    claimed.sort_unstable_by_key(|(place, _)| *place);
    Ok((write, claimed.into_iter().map(|(_, claimed)| claimed).collect()))
}
