//! Named timers: at most one lives in a queue under its name, from staging until its message ends.
//!
//! A timer always waits in `later`, even one that is due at once: there it can be extended and cancelled until somebody claims it.

use super::{
    Names,
    drivers::{Cells, Driver, first},
    evict, lanes,
    moment::Micros,
    queues,
    row::BODY,
    rows::content_type,
    stage::{Fresh, insert},
};
use crate::envelope;
use postrider_core::{Error, Fate, OnConflict, QueueName, Timer, TimerName};
use std::borrow::Cow;
use uuid::Uuid;

/// Stages a timer, or extends the living one.
pub(super) async fn stage(
    driver: &mut impl Driver,
    names: &Names,
    fresh: &Fresh<'_>,
    timer: &Timer,
) -> Result<(Uuid, Fate), Error> {
    let name = names.statement(
        "insert into {timer} (queue, name, message_id) values (?1, ?2, ?3) on conflict (queue, name) do nothing",
    );
    if driver.execute(name.bind(fresh.queue).bind(timer.name.as_str()).bind(fresh.id)).await? > 0 {
        insert(driver, names, "{later}", std::slice::from_ref(fresh)).await?;
        return Ok((fresh.id, Fate::New));
    }
    if timer.on_conflict == OnConflict::Extend
        && let Some(living) = living(driver, names, fresh.queue, &timer.name).await?
        && let Some(due_at) = waiting(driver, names, fresh.queue, living).await?
    {
        if fresh.due_at > due_at {
            extend(driver, names, living, fresh).await?;
        }
        return Ok((living, Fate::Extended));
    }
    Ok((fresh.id, Fate::Ignored))
}

/// Cancels a timer, unless it is being delivered.
pub(super) async fn cancel(
    driver: &mut impl Driver,
    names: &Names,
    queue: &QueueName,
    timer: &TimerName,
    now: Micros,
) -> Result<bool, Error> {
    let Some(queue) = queues::named(driver, names, queue).await? else { return Ok(false) };
    let Some(living) = living(driver, names, queue.number, timer).await? else { return Ok(false) };
    evict::living(driver, names, queue.number, living, now).await
}

pub(super) async fn living(
    driver: &mut impl Driver,
    names: &Names,
    queue: i64,
    timer: &TimerName,
) -> Result<Option<Uuid>, Error> {
    let look = names.statement("select message_id from {timer} where queue = ?1 and name = ?2");
    first(driver, look.bind(queue).bind(timer.as_str())).await?.map(|row| row.get(0)).transpose()
}

/// When a message is due that waits, or did so until it came due and nobody has taken it since.
async fn waiting(
    driver: &mut impl Driver,
    names: &Names,
    queue: i64,
    id: Uuid,
) -> Result<Option<Micros>, Error> {
    let look = names.statement(
        "select due_at from {later} where message_id = ?1 and queue = ?2 \
         union all select due_at from {ready} where message_id = ?1 and queue = ?2 and ripe = 1",
    );
    first(driver, look.bind(id).bind(queue)).await?.map(|row| row.get(0)).transpose()
}

const EXTEND: &str = "update {later} set due_at = ?3, key = ?4, event_type = ?5, content_type = ?6, tenant = ?7, \
    subject = ?8, headers = ?9, payload = ?10, attempts = 0, deliveries = 0, last_error = null \
    where message_id = ?1 and queue = ?2";

/// A waiting timer takes the later time and what comes with it. Its identity and its place stay.
async fn extend(
    driver: &mut impl Driver,
    names: &Names,
    living: Uuid,
    with: &Fresh<'_>,
) -> Result<(), Error> {
    // It may have come due already, and stands in the line.
    let back = names.statement(&format!(
        "insert into {{later}} (id, due_at, {BODY}) select id, due_at, {BODY} from {{ready}} \
         where message_id = ?1 and queue = ?2"
    ));
    if driver.execute(back.bind(living).bind(with.queue)).await? > 0 {
        lanes::take(driver, names, with.queue, living).await?;
    }
    let message = with.message;
    let key = message.key().map(|key| Cow::Borrowed(key.as_str()));
    let extend = names
        .statement(EXTEND)
        .bind(living)
        .bind(with.queue)
        .bind(with.due_at)
        .bind(key.or_else(|| with.ordered.then(|| living.to_string().into())))
        .bind(message.event_type().map(postrider_core::EventType::as_str))
        .bind(content_type(message))
        .bind(message.tenant().map(postrider_core::TenantId::as_str))
        .bind(message.subject().map(postrider_core::SubjectId::as_str))
        .bind(envelope::encode(message))
        .bind(message.payload().as_ref());
    driver.execute(extend).await?;
    Ok(())
}
