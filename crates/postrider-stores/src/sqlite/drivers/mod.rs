//! The drivers that can run our statements: one module each, which knows only its own driver.
//!
//! A driver binds the parameters of a [`Statement`] and runs it; it does not know what is staged. All of them return rows of sqlx,
//! so reading a row is the same for each.

#[cfg(feature = "sea-orm")]
mod sea_orm;
mod sqlx;

use super::statement::Statement;
use ::sqlx::{Decode, Sqlite, Type};
use postrider_core::Error;

/// Runs statements on a connection with an open transaction.
pub(super) trait Driver: Send {
    /// A row that a statement returns.
    type Row: DriverRow + Send;

    /// Runs a statement and returns how many rows it inserted, updated or deleted.
    fn execute(&mut self, statement: Statement<'_>) -> impl Future<Output = Result<u64, DriverError>> + Send;

    /// Runs a statement and returns its rows.
    fn rows(
        &mut self,
        statement: Statement<'_>,
    ) -> impl Future<Output = Result<Vec<Self::Row>, DriverError>> + Send;
}

/// A row that a driver returns.
pub(super) trait DriverRow {
    /// The value in a column.
    fn get<'r, T: Decode<'r, Sqlite> + Type<Sqlite>>(&'r self, column: usize) -> Result<T, Error>;
}

/// An error of a driver, classified.
#[derive(Debug)]
pub(super) struct DriverError {
    pub(super) error: Error,
    /// Whether waiting may help: another transaction holds a lock.
    pub(super) is_busy: bool,
}

impl From<DriverError> for Error {
    fn from(error: DriverError) -> Self {
        error.error
    }
}

/// Runs a statement and returns its first row, if there is one.
pub(super) async fn first_row<D: Driver>(
    driver: &mut D,
    statement: Statement<'_>,
) -> Result<Option<D::Row>, Error> {
    Ok(driver.rows(statement).await?.into_iter().next())
}
