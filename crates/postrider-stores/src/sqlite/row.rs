//! Reading a message out of a row, and the columns that travel with it from room to room.

use super::moment::{self, Micros};
use crate::envelope;
use bytes::Bytes;
use postrider_core::{
    EventType, Message, MessageId, OrderingKey, QueueName, SubjectId, TenantId, TimerName,
    message::StoredParts,
};
use serde_json::Value;
use sqlx::{Row, sqlite::SqliteRow};
use std::time::SystemTime;
use uuid::Uuid;

/// The columns of a message in the order in which [`message`] reads them, for any table that has them.
pub(super) const COLUMNS: &str =
    "message_id, payload, event_type, content_type, key, tenant, subject, headers, timer";

/// What stays the same when a message moves from one room to another: everything but its place and its times.
pub(super) const BODY: &str = "queue, message_id, ordered, staged_at, attempts, deliveries, key, timer, event_type, \
    content_type, tenant, subject, headers, last_error, payload";

/// The message whose columns begin at `first`.
pub(super) fn message(row: &SqliteRow, first: usize, queue: &QueueName) -> Result<Message, sqlx::Error> {
    let text = |offset: usize| row.try_get_unchecked::<Option<&str>, _>(first + offset);
    let id: Uuid = row.try_get_unchecked(first)?;
    // JSON may spell half a character, and a message that is stored must be readable.
    let headers = row.try_get_unchecked::<Option<&[u8]>, _>(first + 7)?.map(String::from_utf8_lossy);
    let (trail, headers) = envelope::decode(headers.as_deref());
    // A message without a key is a line of its own on an ordered queue, under its identity.
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
    row.try_get_unchecked::<Micros, _>(column).map(moment::time)
}

/// The counter in a column.
pub(super) fn count(row: &SqliteRow, column: usize) -> Result<u32, sqlx::Error> {
    row.try_get_unchecked::<i64, _>(column).map(|count| u32::try_from(count).unwrap_or(u32::MAX))
}

/// A whole batch as one argument: `json_each` makes rows of it.
pub(super) fn json<V: Into<Value>>(values: impl IntoIterator<Item = V>) -> String {
    Value::Array(values.into_iter().map(Into::into).collect()).to_string()
}

/// An identity as JSON carries it; `unhex` reads it.
pub(super) fn hex(id: Uuid) -> String {
    id.simple().to_string()
}

/// A limit as SQLite takes it.
pub(super) fn limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
