//! Taking a message that is in nobody's hands out of `ready` or `later`: a cancelled timer, a discarded message.

use super::{
    Names,
    drivers::{Cells, Driver, first},
    lanes,
    moment::Micros,
};
use postrider_core::Error;
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
    driver: &mut impl Driver,
    names: &Names,
    queue: i64,
    id: Uuid,
    now: Micros,
) -> Result<bool, Error> {
    let delete = names.statement("delete from {later} where message_id = ?1 and queue = ?2 returning timer");
    let timer: Option<String> = if let Some(waited) = first(driver, delete.bind(id).bind(queue)).await? {
        waited.get(0)?
    } else {
        let idle = names.statement(IDLE).bind(id).bind(queue).bind(now);
        let Some(row) = first(driver, idle).await? else { return Ok(false) };
        let key: Option<String> = row.get(0)?;
        lanes::take(driver, names, queue, id).await?;
        if row.get(1)? {
            let end = names.statement(
                "update {lane} set token = null, lease_until = null where queue = ?1 and key = ?2 and lease_until <= ?3",
            );
            driver.execute(end.bind(queue).bind(key).bind(now)).await?;
        }
        row.get(2)?
    };
    if let Some(timer) = timer {
        let end = names.statement("delete from {timer} where queue = ?1 and name = ?2 and message_id = ?3");
        driver.execute(end.bind(queue).bind(timer).bind(id)).await?;
    }
    Ok(true)
}
