//! Taking a message that is in nobody's hands out of `ready` or `later`: a cancelled timer, a discarded message.

use super::{Names, error::store_error, lanes, moment::Micros};
use postrider_core::Error;
use sqlx::{Row, SqliteConnection};
use uuid::Uuid;

/// A row of `ready` is held when it is leased, or when its key is.
const IDLE: &str = "select m.key, m.ordered, m.timer from {ready} m \
    where m.message_id = ?1 and m.queue = ?2 and coalesce(m.lease_until, 0) <= ?3 \
      and not (m.ordered = 1 and exists (select 1 from {lane} l \
        where l.queue = m.queue and l.key = m.key and l.lease_until > ?3))";

/// Removes a message from where it waits or stands in the line. Answers `false`, and has changed nothing, when it is in
/// somebody's hands or in neither room.
///
/// A lapsed lease on its key goes with it, so that what comes next is not blamed for the lapse.
pub(super) async fn living(
    connection: &mut SqliteConnection,
    names: &Names,
    queue: i64,
    id: Uuid,
    now: Micros,
) -> Result<bool, Error> {
    let sql = names.sql("delete from {later} where message_id = ?1 and queue = ?2 returning timer");
    let waited =
        sql.query().bind(id).bind(queue).fetch_optional(&mut *connection).await.map_err(store_error)?;
    let timer: Option<String> = if let Some(row) = waited {
        row.try_get(0).map_err(store_error)?
    } else {
        let sql = names.sql(IDLE);
        let row = sql.query().bind(id).bind(queue).bind(now).fetch_optional(&mut *connection).await;
        let Some(row) = row.map_err(store_error)? else { return Ok(false) };
        let key: Option<String> = row.try_get(0).map_err(store_error)?;
        lanes::take(connection, names, queue, id).await?;
        if row.try_get(1).map_err(store_error)? {
            let sql = names.sql(
                "update {lane} set token = null, lease_until = null where queue = ?1 and key = ?2 and lease_until <= ?3",
            );
            sql.query()
                .bind(queue)
                .bind(key)
                .bind(now)
                .execute(&mut *connection)
                .await
                .map_err(store_error)?;
        }
        row.try_get(2).map_err(store_error)?
    };
    if let Some(timer) = timer {
        let sql = names.sql("delete from {timer} where queue = ?1 and name = ?2 and message_id = ?3");
        sql.query().bind(queue).bind(timer).bind(id).execute(connection).await.map_err(store_error)?;
    }
    Ok(true)
}
