//! The drivers that an application may use: one module each, and each knows only its own driver.
//!
//! A driver binds the parameters of a [`Statement`] and runs it, in one round trip. It does not decide what is staged, or how.

#[cfg(feature = "diesel-async")]
mod diesel_async;
#[cfg(feature = "sea-orm")]
mod sea_orm;
mod sqlx;
#[cfg(feature = "tokio-postgres")]
mod tokio_postgres;

use super::statement::{StageReply, Statement};
use postrider_core::Error;

/// Runs statements on a connection with an open transaction.
pub(super) trait Driver: Send {
    /// Whether the driver keeps prepared statements, and with them their plans, for each connection.
    const KEEPS_PLANS: bool = true;

    /// Runs the statement, and returns the number of rows that it inserted or returned.
    fn execute(&mut self, statement: Statement<'_>) -> impl Future<Output = Result<u64, Error>> + Send;

    /// Runs the general staging statement, or the one that admits, and returns its rows.
    fn fetch_replies(
        &mut self,
        statement: Statement<'_>,
    ) -> impl Future<Output = Result<Vec<StageReply>, Error>> + Send;
}
