//! The fast path of settling: a claim whose messages were all delivered. Nothing is read; ranges of positions are deleted.
//!
//! The token guards every row, and SQLite counts the deleted rows. If there are fewer than expected, another worker holds the rest,
//! or they are gone, or the queue archives delivered messages: then the write is rolled back, and the general path (`settle.rs`)
//! follows.

use super::{SqliteNames, statement::Statement, statement_batch::execute_each, writer::Writer};
use crate::delivered_claim::DeliveredClaim;
use postrider_core::{Error, LeaseSettlement};
use sqlx::Row;
use std::ops::RangeInclusive;

/// The search goes by position only, so that no index offers another query plan.
pub(super) const DELETE: &str = "delete from {ready} not indexed where id between ? and ? and token = ? \
    and queue = (select q.id from {queue} q where q.name = ? and q.keep_for is null)";

/// Settles the batch. Returns `false`, and has changed nothing, if it is not such a claim or some of its leases were lost.
pub(super) async fn settle(
    writer: &Writer,
    names: &SqliteNames,
    settlements: &[LeaseSettlement],
) -> Result<bool, Error> {
    let Some(claim) = DeliveredClaim::of(settlements) else { return Ok(false) };
    let bind = |statement: Statement<'static>, range: &RangeInclusive<i64>| {
        let statement = statement.bind(*range.start()).bind(*range.end());
        statement.bind(claim.token.as_uuid()).bind(claim.queue.as_str().to_owned())
    };
    let (write, deleted) = match &claim.ranges()[..] {
        [range] => {
            let text = sql!("{delete}; select changes()", delete = sql!(DELETE));
            let (write, rows) = writer.begin_with(names, &text, |statement| bind(statement, range)).await?;
            let deleted: Option<i64> = rows.first().and_then(|row| row.try_get(0).ok());
            (write, deleted.and_then(|deleted| u64::try_from(deleted).ok()).unwrap_or(0))
        }
        ranges => {
            let mut write = writer.begin(names).await?;
            let deleted = execute_each(&mut write.connection, names, &sql!(DELETE), ranges, bind).await?;
            (write, deleted)
        }
    };
    let is_all = usize::try_from(deleted).is_ok_and(|deleted| deleted == claim.positions.len());
    if is_all {
        write.commit().await?;
    } else {
        write.rollback().await?;
    }
    Ok(is_all)
}
