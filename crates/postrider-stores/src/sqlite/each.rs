//! Running one statement for each of many rows.
//!
//! `… where id in (select …)` has two plans: to look each id up, or to scan the table and probe the list. SQLite takes the second
//! when it was analyzed while the table was nearly empty, which is an outbox's normal state, and keeps to it when a
//! million messages have come in since. `… where id = ?` has one plan. So a batch is that statement, many times over, in one
//! text: SQLite runs in this process, and the driver is asked once for all of them.

use super::{Names, error::store_error};
use postrider_core::Error;
use sqlx::{
    Sqlite, SqliteConnection,
    query::Query,
    sqlite::{SqliteArguments, SqliteRow},
};

/// How many statements are one text. Each size is prepared once; more gain nothing.
pub(super) const SIZES: [usize; 3] = [64, 8, 1];

/// A statement that is being given its values.
pub(super) type Bound<'q> = Query<'q, Sqlite, SqliteArguments>;

/// Runs `template`, whose parameters are plain question marks, once for each row, and answers with what all of them return.
pub(super) async fn each<'q, R>(
    connection: &mut SqliteConnection,
    names: &Names,
    template: &str,
    mut rows: &[R],
    bind: impl Fn(Bound<'q>, &R) -> Bound<'q>,
) -> Result<Vec<SqliteRow>, Error> {
    let mut returned = Vec::new();
    while let Some((query, rest)) = next(names, template, rows, &bind) {
        returned.extend(query.fetch_all(&mut *connection).await.map_err(store_error)?);
        rows = rest;
    }
    Ok(returned)
}

/// The same for statements that return nothing. Answers how many rows all of them changed.
pub(super) async fn changed_by_each<'q, R>(
    connection: &mut SqliteConnection,
    names: &Names,
    template: &str,
    mut rows: &[R],
    bind: impl Fn(Bound<'q>, &R) -> Bound<'q>,
) -> Result<u64, Error> {
    let mut changed = 0;
    while let Some((query, rest)) = next(names, template, rows, &bind) {
        changed += query.execute(&mut *connection).await.map_err(store_error)?.rows_affected();
        rows = rest;
    }
    Ok(changed)
}

/// The first rows as one text, and the rest.
fn next<'q, 'r, R>(
    names: &Names,
    template: &str,
    rows: &'r [R],
    bind: impl Fn(Bound<'q>, &R) -> Bound<'q>,
) -> Option<(Bound<'q>, &'r [R])> {
    let size = SIZES.into_iter().find(|size| *size <= rows.len())?;
    let (chunk, rest) = rows.split_at(size);
    let sql = names.sql(&vec![template; size].join("; "));
    Some((chunk.iter().fold(sql.query(), bind), rest))
}

/// The same for places.
pub(super) async fn each_place(
    connection: &mut SqliteConnection,
    names: &Names,
    template: &str,
    places: &[i64],
) -> Result<(), Error> {
    each(connection, names, template, places, |query, place| query.bind(*place)).await.map(|_| ())
}
