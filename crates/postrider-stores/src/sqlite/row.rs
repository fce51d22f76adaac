//! Reading a message from a row, and the columns that move with it from table to table.

use super::timestamp::{self, Micros};
use crate::{envelope, template::Template};
use bytes::Bytes;
use postrider_core::{
    EventType, Message, MessageId, OrderingKey, QueueName, SubjectId, TenantId, TimerName,
    message::StoredParts,
};
use serde_json::Value;
use sqlx::{Row, sqlite::SqliteRow};
use std::time::SystemTime;
use uuid::Uuid;

/// The columns of a message in the order in which [`message`] reads them, for any of the four tables.
pub(super) const COLUMNS: &str =
    "message_id, payload, event_type, content_type, key, tenant, subject, headers, timer";

/// The columns that a message keeps when it moves from one table to another: all but its position and its times.
pub(super) fn body() -> Template {
    sql!(BODY, deliveries = sql!("deliveries"))
}

/// The same columns, with an expression for the deliveries.
pub(super) const BODY: &str = "queue, message_id, ordered, staged_at, attempts, {deliveries}, key, timer, event_type, \
    content_type, tenant, subject, headers, last_error, payload";

/// The message whose columns begin at `first`.
pub(super) fn message(row: &SqliteRow, first: usize, queue: &QueueName) -> Result<Message, sqlx::Error> {
    let text = |offset: usize| row.try_get_unchecked::<Option<&str>, _>(first + offset);
    let id: Uuid = row.try_get_unchecked(first)?;
    // JSON may contain half of a surrogate pair, and a stored message must stay readable.
    let headers = row.try_get_unchecked::<Option<&[u8]>, _>(first + 7)?.map(String::from_utf8_lossy);
    let (trail, headers) = envelope::decode(headers.as_deref());
    // On an ordered queue, the key column of a message without a key contains its id.
    let key = text(4)?.filter(|key| key.len() != 36 || *key != id.to_string());
    Ok(Message::stored(StoredParts {
        id: MessageId::from_uuid(id),
        queue: queue.clone(),
        payload: Bytes::copy_from_slice(row.try_get_unchecked(first + 1)?),
        event_type: text(2)?.map(EventType::stored),
        content_type: text(3)?.map(str::to_owned),
        key: key.map(OrderingKey::stored),
        tenant: text(5)?.map(TenantId::stored),
        subject: text(6)?.map(SubjectId::stored),
        trail,
        headers,
        timer: text(8)?.map(TimerName::stored),
    }))
}

/// The time in a column.
pub(super) fn time(row: &SqliteRow, column: usize) -> Result<SystemTime, sqlx::Error> {
    row.try_get_unchecked::<Micros, _>(column).map(timestamp::to_system_time)
}

/// The time in a column that may be null.
pub(super) fn optional_time(row: &SqliteRow, column: usize) -> Result<Option<SystemTime>, sqlx::Error> {
    row.try_get_unchecked::<Option<Micros>, _>(column).map(|time| time.map(timestamp::to_system_time))
}

/// The counter in a column.
pub(super) fn count(row: &SqliteRow, column: usize) -> Result<u32, sqlx::Error> {
    row.try_get_unchecked::<i64, _>(column).map(|count| u32::try_from(count).unwrap_or(u32::MAX))
}

/// A batch as one parameter, which `json_each` turns into rows.
pub(super) fn json<V: Into<Value>>(values: impl IntoIterator<Item = V>) -> String {
    Value::Array(values.into_iter().map(Into::into).collect()).to_string()
}

/// An id for JSON, which `unhex` decodes.
pub(super) fn hex(id: Uuid) -> String {
    id.simple().to_string()
}

/// A limit as an SQL parameter.
pub(super) fn sql_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
