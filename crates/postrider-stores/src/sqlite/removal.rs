//! Removal of a message that is not leased from `ready` or `scheduled`: a cancelled timer, a discarded message.

use super::{
    SqliteNames,
    drivers::{Driver, DriverRow, first_row},
    lanes,
    timestamp::Micros,
};
use postrider_core::Error;
use uuid::Uuid;

/// A row of `ready` is leased itself or through its key.
const UNLEASED: &str = "select m.key, m.ordered, m.timer from {ready} m \
    where m.message_id = ?1 and m.queue = ?2 and coalesce(m.lease_until, 0) <= ?3 \
      and not (m.ordered = 1 and exists (select 1 from {lane} l \
        where l.queue = m.queue and l.key = m.key and l.lease_until > ?3))";

/// Removes a message from `scheduled` or `ready`. Returns `false`, and has changed nothing, if it is leased or in neither table.
///
/// An expired lease on its key is cleared, so that it does not count against the next message.
pub(super) async fn remove_unleased(
    driver: &mut impl Driver,
    names: &SqliteNames,
    queue: i64,
    id: Uuid,
    now: Micros,
) -> Result<bool, Error> {
    let delete = names
        .statement(&sql!("delete from {scheduled} where message_id = ?1 and queue = ?2 returning timer"));
    let timer: Option<String> = if let Some(row) = first_row(driver, delete.bind(id).bind(queue)).await? {
        row.get(0)?
    } else {
        let unleased = names.statement(&sql!(UNLEASED)).bind(id).bind(queue).bind(now);
        let Some(row) = first_row(driver, unleased).await? else { return Ok(false) };
        let key: Option<String> = row.get(0)?;
        lanes::remove_message(driver, names, queue, id).await?;
        if row.get(1)? {
            let statement = names.statement(&sql!(
                "update {lane} set token = null, lease_until = null where queue = ?1 and key = ?2 and lease_until <= ?3"
            ));
            driver.execute(statement.bind(queue).bind(key).bind(now)).await?;
        }
        row.get(2)?
    };
    if let Some(timer) = timer {
        let statement =
            names.statement(&sql!("delete from {timer} where queue = ?1 and name = ?2 and message_id = ?3"));
        driver.execute(statement.bind(queue).bind(timer).bind(id)).await?;
    }
    Ok(true)
}
