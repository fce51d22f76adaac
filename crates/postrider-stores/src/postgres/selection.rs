//! Bulk operations: a chunk is one statement, which picks messages by an index of their table and passes them to the function that
//! changes them. Only numbers leave the server.

use super::{
    PostgresNames, PostgresStore, claim::limit, error::store_error, names::Sql, queues::Queue, row::Moment,
};
use crate::template::Template;
use postrider_core::{
    Error, EventType, Invalid, OrderingKey, QueueName, Reason,
    inspect::{
        Action, ChangeReport, Chunk, Cursor, DeadGroup, ERROR_KIND_CHARS, Fence, Selection, SelectionSummary,
        StateFilter,
    },
};
use sqlx::{
    Row,
    postgres::{PgArguments, PgRow},
    query::Query,
};
use std::time::SystemTime;

/// The operation on a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Requeue,
    Discard,
}

impl PostgresStore {
    pub(super) async fn summarize(&self, selection: &Selection) -> Result<SelectionSummary, Error> {
        let Some(queue) = self.queue(&selection.queue).await? else {
            let fence = Fence { at: SystemTime::UNIX_EPOCH, position: 0 };
            return Ok(SelectionSummary { count: 0, follow_ups: 0, fence });
        };
        let sql = self.inner.names.sql(&sql!(SUMMARY, selected = selected_template(selection.state)));
        let row = self.inner.connections.run_for_one(selected(&sql, &queue, selection)).await?;
        let number = |column: usize| row.try_get::<i64, _>(column).map_err(store_error);
        Ok(SelectionSummary {
            count: number(0)?.unsigned_abs(),
            follow_ups: number(1)?.unsigned_abs(),
            fence: Fence { at: moment(&row, 3)?, position: number(2)? },
        })
    }

    pub(super) async fn change_next(
        &self,
        verb: Verb,
        selection: &Selection,
        chunk: &Chunk,
        action: &Action,
    ) -> Result<ChangeReport, Error> {
        action.check()?;
        if verb == Verb::Requeue && !matches!(selection.state, StateFilter::Dead | StateFilter::Done) {
            return Err(
                Invalid::rule("state", "only dead letters and archived messages can be requeued").into()
            );
        }
        let Some(queue) = self.queue(&selection.queue).await? else {
            return Ok(ChangeReport { looked_at: 0, changed: 0, next: None });
        };
        let sql = self.inner.names.sql(&change_template(verb, selection.state));
        let after = chunk.after.as_ref();
        let query = selected(&sql, &queue, selection)
            .bind(chunk.up_to.position)
            .bind(Moment(chunk.up_to.at))
            .bind(after.and_then(|cursor| cursor.at).map(Moment))
            .bind(after.map(|cursor| cursor.position))
            .bind(limit(chunk.limit))
            .bind(&action.actor)
            .bind(&action.why);
        let row = self.inner.connections.run_for_one(query).await?;
        let looked_at = row.try_get::<i64, _>(0).map_err(store_error)?.unsigned_abs();
        let changed = row.try_get::<i32, _>(1).map_err(store_error)?.unsigned_abs().into();
        let is_full = looked_at > 0 && looked_at >= chunk.limit as u64;
        let next = if is_full { Some(cursor(&row, selection.state)?) } else { None };
        Ok(ChangeReport { looked_at, changed, next })
    }

    pub(super) async fn group_dead(
        &self,
        of: Option<&QueueName>,
        max: usize,
    ) -> Result<Vec<DeadGroup>, Error> {
        let sql = self.inner.names.sql(&sql!(GROUPS, chars = ERROR_KIND_CHARS));
        let query = sql.query().bind(of.map(QueueName::as_str)).bind(limit(max));
        let rows = self.inner.connections.run(query).await?;
        rows.iter().map(group).collect()
    }
}

/// The time column of a state.
fn time_column(state: StateFilter) -> Template {
    match state {
        StateFilter::Ready | StateFilter::Scheduled => sql!("due_at"),
        StateFilter::Dead => sql!("failed_at"),
        StateFilter::Done => sql!("archived_at"),
    }
}

/// The rows of a selection, with seven parameters.
fn selected_template(state: StateFilter) -> Template {
    let table = match state {
        StateFilter::Ready => sql!("{ready}"),
        StateFilter::Scheduled => sql!("{scheduled}"),
        StateFilter::Dead => sql!("{dead}"),
        StateFilter::Done => sql!("{archive}"),
    };
    let reason = if state == StateFilter::Dead { sql!("m.reason") } else { sql!("null::text") };
    let time = time_column(state);
    const SELECTED: &str = "{table} m where m.queue = $1 and ($2::text is null or m.key = $2) \
        and ($3::text is null or m.event_type = $3) and ($4::text is null or {reason} = $4) \
        and ($5::text is null or starts_with(m.last_error, $5)) \
        and ($6::timestamptz is null or m.{time} >= $6) and ($7::timestamptz is null or m.{time} <= $7)";
    sql!(SELECTED, table, reason, time)
}

fn selected<'q>(
    sql: &'q Sql,
    queue: &Queue,
    selection: &'q Selection,
) -> Query<'q, sqlx::Postgres, PgArguments> {
    sql.query()
        .bind(queue.number)
        .bind(selection.key.as_ref().map(OrderingKey::as_str))
        .bind(selection.event_type.as_ref().map(EventType::as_str))
        .bind(selection.reason.map(Reason::as_str))
        .bind(selection.error.as_deref())
        .bind(selection.since.map(Moment))
        .bind(selection.until.map(Moment))
}

const SUMMARY: &str = "select count(*) filter (where not s.follow_up), count(*) filter (where s.follow_up), coalesce(max(s.id), 0), \
      clock_timestamp() \
    from (select m.id, (m.headers ? 'followup-resolver') is true as follow_up from {selected}) s";

/// The statements for dead letters, for tests that read their plans.
pub(super) fn texts(names: &PostgresNames) -> [(&'static str, String); 2] {
    let text = |verb| names.sql(&change_template(verb, StateFilter::Dead)).as_str().to_owned();
    [
        ("next dead letters to requeue", text(Verb::Requeue)),
        ("next dead letters to discard", text(Verb::Discard)),
    ]
}

/// Dead letters in the order of their positions, by `dead_position`; ready messages likewise, by `ready_pkey`. The others by their
/// time: `scheduled_pkey`, `archive_page`.
fn change_template(verb: Verb, state: StateFilter) -> Template {
    let time = time_column(state);
    let (after, order) = match state {
        StateFilter::Ready | StateFilter::Dead => {
            (sql!("($10::timestamptz is null or true) and m.id > coalesce($11, 0)"), sql!("m.queue, m.id"))
        }
        StateFilter::Scheduled | StateFilter::Done => (
            sql!("(m.{time}, m.id) > (coalesce($10, '-infinity'::timestamptz), coalesce($11, 0))", time),
            sql!("m.queue, m.{time}, m.id", time),
        ),
    };
    // For a state whose time is that of arrival in the table, the time is part of the fence.
    let fence = match state {
        StateFilter::Dead | StateFilter::Done => sql!("m.{time} <= $9", time),
        StateFilter::Ready | StateFilter::Scheduled => sql!("$9::timestamptz is not null"),
    };
    let change = match (verb, state) {
        (Verb::Requeue, StateFilter::Done) => sql!("{replay}"),
        (Verb::Requeue, _) => sql!("{requeue}"),
        (Verb::Discard, _) => sql!("{discard}"),
    };
    const CHANGE: &str = "with picked as materialized ( \
          select m.message_id, m.id, m.{time} as at from {selected} and m.id <= $8 and {fence} and {after} \
            and (m.headers ? 'followup-resolver') is not true \
          order by {order} limit $12) \
        select s.n, cardinality({change}($1, s.ids, $13, $14)), s.at, s.id from ( \
          select count(*) as n, coalesce(array_agg(p.message_id), '{}') as ids, \
            (array_agg(p.at))[count(*)] as at, (array_agg(p.id))[count(*)] as id \
          from picked p) s";
    sql!(CHANGE, time, selected = selected_template(state), fence, after, order, change)
}

/// Groups by the same rule as `error_kind`.
const GROUPS: &str = "select q.name, d.reason, left(split_part(split_part(d.last_error, E'\\n', 1), ': ', 1), {chars}), \
      count(*), min(d.failed_at), max(d.failed_at) \
    from {queue} q join {dead} d on d.queue = q.id where $1::text is null or q.name = $1 \
    group by 1, 2, 3 order by 4 desc, 1, 3 limit $2";

fn group(row: &PgRow) -> Result<DeadGroup, Error> {
    let reason: &str = row.try_get(1).map_err(store_error)?;
    Ok(DeadGroup {
        queue: QueueName::stored(row.try_get::<String, _>(0).map_err(store_error)?),
        reason: reason.parse().ok(),
        error: row.try_get(2).map_err(store_error)?,
        count: row.try_get::<i64, _>(3).map_err(store_error)?.unsigned_abs(),
        oldest: moment(row, 4)?,
        newest: moment(row, 5)?,
    })
}

fn cursor(row: &PgRow, state: StateFilter) -> Result<Cursor, Error> {
    let by_position = matches!(state, StateFilter::Ready | StateFilter::Dead);
    let at = if by_position { None } else { Some(moment(row, 2)?) };
    Ok(Cursor { at, position: row.try_get(3).map_err(store_error)? })
}

fn moment(row: &PgRow, column: usize) -> Result<SystemTime, Error> {
    row.try_get::<Moment, _>(column).map(|moment| moment.0).map_err(store_error)
}
