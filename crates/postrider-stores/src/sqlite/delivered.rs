//! Settling one claim that was delivered: nothing is read, whole stretches of the line are deleted.
//!
//! The token guards every row, and SQLite counts what it deleted. When that is less than was asked for, somebody else holds
//! the rest, or it is gone, or its queue keeps what was delivered: then all of it is undone, and the careful way (`settle.rs`)
//! finds out.

use super::{Names, each::changed_by_each, statement::Statement, writer::Writer};
use crate::one_claim::OneClaim;
use postrider_core::{Error, Settle};
use sqlx::Row;
use std::ops::RangeInclusive;

/// Only the place may be searched for: no index of the table has another plan to offer.
pub(super) const DELETE: &str = "delete from {ready} not indexed where id between ? and ? and token = ? \
    and queue = (select q.id from {queue} q where q.name = ? and q.keep_for is null)";

/// Settles the batch. Answers `false`, and has changed nothing, when it is not of this kind, or not all of it is held.
pub(super) async fn settle(writer: &Writer, names: &Names, settlements: &[Settle]) -> Result<bool, Error> {
    let Some(claim) = OneClaim::of(settlements) else { return Ok(false) };
    let bind = |statement: Statement<'static>, stretch: &RangeInclusive<i64>| {
        let statement = statement.bind(*stretch.start()).bind(*stretch.end());
        statement.bind(claim.token.as_uuid()).bind(claim.queue.as_str().to_owned())
    };
    let (write, deleted) = match &claim.stretches()[..] {
        [stretch] => {
            let text = format!("{DELETE}; select changes()");
            let (write, rows) = writer.begin_with(names, &text, |statement| bind(statement, stretch)).await?;
            let deleted: Option<i64> = rows.first().and_then(|row| row.try_get(0).ok());
            (write, deleted.and_then(|deleted| u64::try_from(deleted).ok()).unwrap_or(0))
        }
        stretches => {
            let mut write = writer.begin(names).await?;
            let deleted = changed_by_each(&mut write.connection, names, DELETE, stretches, bind).await?;
            (write, deleted)
        }
    };
    let is_all = usize::try_from(deleted).is_ok_and(|deleted| deleted == claim.places.len());
    if is_all {
        write.commit().await?;
    } else {
        write.undo().await?;
    }
    Ok(is_all)
}
