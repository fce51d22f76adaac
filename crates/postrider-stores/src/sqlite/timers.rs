//! Named timers: at most one lives in a queue under its name, from staging until its message ends.
//!
//! A timer always waits in `later`, even one that is due at once: there it can be extended and cancelled until somebody claims it.

use super::{
    Names,
    error::store_error,
    evict, lanes,
    moment::Micros,
    queues,
    row::BODY,
    stage::{Fresh, insert},
};
use crate::envelope;
use postrider_core::{Error, Fate, OnConflict, QueueName, Timer, TimerName};
use sqlx::{Row, SqliteConnection};
use uuid::Uuid;

/// Stages a timer, or extends the living one.
pub(super) async fn stage(
    connection: &mut SqliteConnection,
    names: &Names,
    fresh: &Fresh<'_>,
    timer: &Timer,
) -> Result<(Uuid, Fate), Error> {
    let sql = names.sql(
        "insert into {timer} (queue, name, message_id) values (?1, ?2, ?3) on conflict (queue, name) do nothing",
    );
    let query = sql.query().bind(fresh.queue).bind(timer.name.as_str()).bind(fresh.id);
    if query.execute(&mut *connection).await.map_err(store_error)?.rows_affected() > 0 {
        insert(connection, names, "{later}", std::slice::from_ref(fresh)).await?;
        return Ok((fresh.id, Fate::New));
    }
    if timer.on_conflict == OnConflict::Extend
        && let Some(living) = living(connection, names, fresh.queue, &timer.name).await?
        && let Some(due_at) = waiting(connection, names, fresh.queue, living).await?
    {
        if fresh.due_at > due_at {
            extend(connection, names, living, fresh).await?;
        }
        return Ok((living, Fate::Extended));
    }
    Ok((fresh.id, Fate::Ignored))
}

/// Cancels a timer, unless it is being delivered.
pub(super) async fn cancel(
    connection: &mut SqliteConnection,
    names: &Names,
    queue: &QueueName,
    timer: &TimerName,
    now: Micros,
) -> Result<bool, Error> {
    let Some(queue) = queues::named(&mut *connection, names, queue).await? else { return Ok(false) };
    let Some(living) = living(connection, names, queue.number, timer).await? else { return Ok(false) };
    evict::living(connection, names, queue.number, living, now).await
}

async fn living(
    connection: &mut SqliteConnection,
    names: &Names,
    queue: i64,
    timer: &TimerName,
) -> Result<Option<Uuid>, Error> {
    let sql = names.sql("select message_id from {timer} where queue = ?1 and name = ?2");
    let row = sql.query().bind(queue).bind(timer.as_str()).fetch_optional(connection).await;
    row.and_then(|row| row.map(|row| row.try_get(0)).transpose()).map_err(store_error)
}

/// When a message is due that waits, or did so until it came due and nobody has taken it since.
async fn waiting(
    connection: &mut SqliteConnection,
    names: &Names,
    queue: i64,
    id: Uuid,
) -> Result<Option<Micros>, Error> {
    let sql = names.sql(
        "select due_at from {later} where message_id = ?1 and queue = ?2 \
         union all select due_at from {ready} where message_id = ?1 and queue = ?2 and ripe = 1",
    );
    let row = sql.query().bind(id).bind(queue).fetch_optional(connection).await;
    row.and_then(|row| row.map(|row| row.try_get(0)).transpose()).map_err(store_error)
}

const EXTEND: &str = "update {later} set due_at = ?3, key = ?4, event_type = ?5, content_type = ?6, tenant = ?7, \
    subject = ?8, headers = ?9, payload = ?10, attempts = 0, deliveries = 0, last_error = null \
    where message_id = ?1 and queue = ?2";

/// A waiting timer takes the later time and what comes with it. Its identity and its place stay.
async fn extend(
    connection: &mut SqliteConnection,
    names: &Names,
    living: Uuid,
    with: &Fresh<'_>,
) -> Result<(), Error> {
    // It may have come due already, and stands in the line.
    let back = names.sql(&format!(
        "insert into {{later}} (id, due_at, {BODY}) select id, due_at, {BODY} from {{ready}} \
         where message_id = ?1 and queue = ?2"
    ));
    let back = back.query().bind(living).bind(with.queue).execute(&mut *connection).await;
    if back.map_err(store_error)?.rows_affected() > 0 {
        lanes::take(connection, names, with.queue, living).await?;
    }
    let message = with.message;
    names
        .sql(EXTEND)
        .query()
        .bind(living)
        .bind(with.queue)
        .bind(with.due_at)
        .bind(
            with.ordered
                .then(|| message.key().map_or_else(|| living.to_string(), ToString::to_string))
                .or_else(|| message.key().map(ToString::to_string)),
        )
        .bind(message.event_type().map(postrider_core::EventType::as_str))
        .bind(with.content_type())
        .bind(message.tenant().map(postrider_core::TenantId::as_str))
        .bind(message.subject().map(postrider_core::SubjectId::as_str))
        .bind(envelope::encode(message))
        .bind(message.payload().as_ref())
        .execute(connection)
        .await
        .map(|_| ())
        .map_err(store_error)
}
