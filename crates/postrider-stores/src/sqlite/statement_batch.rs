//! Batches of one statement, run once for each of many rows.
//!
//! `… where id in (select …)` has two query plans: look each id up, or scan the table and probe the list. SQLite chooses the second
//! if it was analyzed while the table was nearly empty, which is an outbox's normal state, and still uses it after a million
//! messages were staged. `… where id = ?` has one plan. So a batch repeats that statement in one text: SQLite runs in this process,
//! and the driver is called once for all of them.

use super::{SqliteNames, drivers::Driver, statement::Statement};
use crate::template::Template;
use postrider_core::Error;

/// The numbers of statements in one text. Each size is prepared once; larger sizes are not faster.
pub(super) const SIZES: [usize; 3] = [64, 8, 1];

/// Runs `template`, whose parameters are plain question marks, once for each row, and returns the rows of all runs.
pub(super) async fn query_each<'p, D: Driver, R>(
    driver: &mut D,
    names: &SqliteNames,
    template: &Template,
    mut rows: &[R],
    bind: impl Fn(Statement<'p>, &R) -> Statement<'p>,
) -> Result<Vec<D::Row>, Error> {
    let mut returned = Vec::new();
    while let Some((statement, rest)) = next(names, template, rows, &bind) {
        returned.extend(driver.rows(statement).await?);
        rows = rest;
    }
    Ok(returned)
}

/// The same for statements that return no rows. Returns how many rows all runs changed.
pub(super) async fn execute_each<'p, R>(
    driver: &mut impl Driver,
    names: &SqliteNames,
    template: &Template,
    mut rows: &[R],
    bind: impl Fn(Statement<'p>, &R) -> Statement<'p>,
) -> Result<u64, Error> {
    let mut changed = 0;
    while let Some((statement, rest)) = next(names, template, rows, &bind) {
        changed += driver.execute(statement).await?;
        rows = rest;
    }
    Ok(changed)
}

/// A text for the first rows, and the remaining rows.
fn next<'p, 'r, R>(
    names: &SqliteNames,
    template: &Template,
    rows: &'r [R],
    bind: impl Fn(Statement<'p>, &R) -> Statement<'p>,
) -> Option<(Statement<'p>, &'r [R])> {
    let size = SIZES.into_iter().find(|size| *size <= rows.len())?;
    let (chunk, rest) = rows.split_at(size);
    let statement = names.statement(&Template::join(vec![template.clone(); size], "; "));
    Some((chunk.iter().fold(statement, bind), rest))
}

/// Runs `template` once for each position.
pub(super) async fn execute_each_position(
    driver: &mut impl Driver,
    names: &SqliteNames,
    template: &Template,
    positions: &[i64],
) -> Result<(), Error> {
    query_each(driver, names, template, positions, |statement, position| statement.bind(*position))
        .await
        .map(|_| ())
}
