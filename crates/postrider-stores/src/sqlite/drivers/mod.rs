//! The drivers that may run our statements: one module each, and each knows its own driver only.
//!
//! A driver binds the parameters of a [`Statement`] and runs it. What is staged, and how, is none of its business. All of
//! them run SQLite's own rows through sqlx, so reading one is the same for each.

#[cfg(feature = "sea-orm")]
mod sea_orm;
mod sqlx;

use super::statement::Statement;
use ::sqlx::{Decode, Sqlite, Type};
use postrider_core::Error;

/// Runs statements on a connection with an open transaction.
pub(super) trait Driver: Send {
    /// A row that a statement answers with.
    type Row: Cells + Send;

    /// How many rows the statement inserted, changed or removed.
    fn execute(&mut self, statement: Statement<'_>) -> impl Future<Output = Result<u64, Failed>> + Send;

    /// What the statement answers.
    fn rows(
        &mut self,
        statement: Statement<'_>,
    ) -> impl Future<Output = Result<Vec<Self::Row>, Failed>> + Send;
}

/// A row of SQLite.
pub(super) trait Cells {
    /// The value in a column.
    fn get<'r, T: Decode<'r, Sqlite> + Type<Sqlite>>(&'r self, column: usize) -> Result<T, Error>;
}

/// What an error of a driver means.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) error: Error,
    /// Whether waiting may help.
    pub(super) is_busy: bool,
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        failed.error
    }
}

/// The first row of an answer, if there is one.
pub(super) async fn first<D: Driver>(
    driver: &mut D,
    statement: Statement<'_>,
) -> Result<Option<D::Row>, Error> {
    Ok(driver.rows(statement).await?.into_iter().next())
}
