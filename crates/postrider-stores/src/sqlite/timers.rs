//! Named timers: a queue has at most one active timer of a name, from staging until its message ends.
//!
//! A timer is always inserted into `scheduled`, even if it is due now: there it can be extended and cancelled until it is claimed.

use super::{
    SqliteNames,
    bulk_insert::content_type,
    drivers::{Driver, DriverRow, first_row},
    lanes, queues, removal,
    row::body,
    stage::{NewRow, Target, insert},
    timestamp::Micros,
};
use crate::envelope;
use postrider_core::{Error, OnConflict, QueueName, StageOutcome, Timer, TimerName};
use std::borrow::Cow;
use uuid::Uuid;

/// Stages a timer, or extends the active one.
pub(super) async fn stage(
    driver: &mut impl Driver,
    names: &SqliteNames,
    row: &NewRow<'_>,
    timer: &Timer,
) -> Result<(Uuid, StageOutcome), Error> {
    let name = names.statement(&sql!(
        "insert into {timer} (queue, name, message_id) values (?1, ?2, ?3) on conflict (queue, name) do nothing"
    ));
    if driver.execute(name.bind(row.queue).bind(timer.name.as_str()).bind(row.id)).await? > 0 {
        insert(driver, names, Target::Scheduled, std::slice::from_ref(row)).await?;
        return Ok((row.id, StageOutcome::New));
    }
    if timer.on_conflict == OnConflict::Extend
        && let Some(active) = active(driver, names, row.queue, &timer.name).await?
        && let Some(due_at) = waiting_due_at(driver, names, row.queue, active, row.staged_at).await?
    {
        if row.due_at > due_at {
            extend(driver, names, active, row).await?;
        }
        return Ok((active, StageOutcome::Extended));
    }
    Ok((row.id, StageOutcome::Ignored))
}

/// Cancels a timer, unless it is in flight.
pub(super) async fn cancel(
    driver: &mut impl Driver,
    names: &SqliteNames,
    queue: &QueueName,
    timer: &TimerName,
    now: Micros,
) -> Result<bool, Error> {
    let Some(queue) = queues::by_name(driver, names, queue).await? else { return Ok(false) };
    let Some(active) = active(driver, names, queue.number, timer).await? else { return Ok(false) };
    removal::remove_unleased(driver, names, queue.number, active, now).await
}

pub(super) async fn active(
    driver: &mut impl Driver,
    names: &SqliteNames,
    queue: i64,
    timer: &TimerName,
) -> Result<Option<Uuid>, Error> {
    let statement = names.statement(&sql!("select message_id from {timer} where queue = ?1 and name = ?2"));
    first_row(driver, statement.bind(queue).bind(timer.as_str())).await?.map(|row| row.get(0)).transpose()
}

/// The due time of a message that is scheduled, or is due and free. In an ordered queue a message may be delivered at any moment once it
/// was claimed, since the lease is that of its key.
async fn waiting_due_at(
    driver: &mut impl Driver,
    names: &SqliteNames,
    queue: i64,
    id: Uuid,
    now: Micros,
) -> Result<Option<Micros>, Error> {
    let statement = names.statement(&sql!(
        "select due_at from {scheduled} where message_id = ?1 and queue = ?2 \
         union all select due_at from {ready} where message_id = ?1 and queue = ?2 \
           and (promoted = 1 or (ordered = 0 and coalesce(lease_until, 0) <= ?3))"
    ));
    first_row(driver, statement.bind(id).bind(queue).bind(now)).await?.map(|row| row.get(0)).transpose()
}

const EXTEND: &str = "update {scheduled} set due_at = ?3, key = ?4, event_type = ?5, content_type = ?6, tenant = ?7, \
    subject = ?8, headers = ?9, payload = ?10, attempts = 0, deliveries = 0, first_failed_at = null, last_error = null \
    where message_id = ?1 and queue = ?2";

/// The active timer takes the later due time and the new content. It keeps its id and its position.
async fn extend(
    driver: &mut impl Driver,
    names: &SqliteNames,
    active: Uuid,
    with: &NewRow<'_>,
) -> Result<(), Error> {
    // It may have come due already: then it goes back from `ready`.
    let back = names.statement(&sql!(
        "insert into {scheduled} (id, due_at, {body}) select id, due_at, {body} from {ready} \
         where message_id = ?1 and queue = ?2",
        body = body()
    ));
    if driver.execute(back.bind(active).bind(with.queue)).await? > 0 {
        lanes::remove_message(driver, names, with.queue, active).await?;
    }
    let message = with.message;
    let key = message.key().map(|key| Cow::Borrowed(key.as_str()));
    let extend = names
        .statement(&sql!(EXTEND))
        .bind(active)
        .bind(with.queue)
        .bind(with.due_at)
        .bind(key.or_else(|| with.ordered.then(|| active.to_string().into())))
        .bind(message.event_type().map(postrider_core::EventType::as_str))
        .bind(content_type(message))
        .bind(message.tenant().map(postrider_core::TenantId::as_str))
        .bind(message.subject().map(postrider_core::SubjectId::as_str))
        .bind(envelope::encode(message))
        .bind(message.payload().as_ref());
    driver.execute(extend).await?;
    Ok(())
}
