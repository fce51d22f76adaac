//! The drivers that an application may use beside the store: one module each, and each knows its own driver only.
//!
//! A driver binds the parameters of a [`Statement`] and runs it, in one round trip. What is staged, and how, is none of its
//! business.

#[cfg(feature = "diesel-async")]
mod diesel_async;
#[cfg(feature = "sea-orm")]
mod sea_orm;
mod sqlx;
#[cfg(feature = "tokio-postgres")]
mod tokio_postgres;

use super::statement::{Answer, Statement};
use postrider_core::Error;

/// Runs statements on a connection with an open transaction.
pub(super) trait Driver: Send {
    /// Whether it keeps prepared statements, and with them their plans, for each connection.
    const KEEPS_PLANS: bool = true;

    /// How many rows the statement inserted or answered with.
    fn execute(&mut self, statement: Statement<'_>) -> impl Future<Output = Result<u64, Error>> + Send;

    /// What the careful statement answers, or the one that admits.
    fn answers(
        &mut self,
        statement: Statement<'_>,
    ) -> impl Future<Output = Result<Vec<Answer>, Error>> + Send;
}
