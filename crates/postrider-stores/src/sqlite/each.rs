//! Running one statement for each of many rows.
//!
//! `… where id in (select …)` has two plans: to look each id up, or to scan the table and probe the list. SQLite takes the second
//! when it was analyzed while the table was nearly empty, which is an outbox's normal state, and keeps to it when a
//! million messages have come in since. `… where id = ?` has one plan. So a batch is that statement, many times over, in one
//! text: SQLite runs in this process, and the driver is asked once for all of them.

use super::{Names, drivers::Driver, statement::Statement};
use postrider_core::Error;

/// How many statements are one text. Each size is prepared once; more gain nothing.
pub(super) const SIZES: [usize; 3] = [64, 8, 1];

/// Runs `template`, whose parameters are plain question marks, once for each row, and answers with what all of them return.
pub(super) async fn each<'p, D: Driver, R>(
    driver: &mut D,
    names: &Names,
    template: &str,
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

/// The same for statements that return nothing. Answers how many rows all of them changed.
pub(super) async fn changed_by_each<'p, R>(
    driver: &mut impl Driver,
    names: &Names,
    template: &str,
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

/// The first rows as one text, and the rest.
fn next<'p, 'r, R>(
    names: &Names,
    template: &str,
    rows: &'r [R],
    bind: impl Fn(Statement<'p>, &R) -> Statement<'p>,
) -> Option<(Statement<'p>, &'r [R])> {
    let size = SIZES.into_iter().find(|size| *size <= rows.len())?;
    let (chunk, rest) = rows.split_at(size);
    let statement = names.statement(&vec![template; size].join("; "));
    Some((chunk.iter().fold(statement, bind), rest))
}

/// The same for places.
pub(super) async fn each_place(
    driver: &mut impl Driver,
    names: &Names,
    template: &str,
    places: &[i64],
) -> Result<(), Error> {
    each(driver, names, template, places, |statement, place| statement.bind(*place)).await.map(|_| ())
}
