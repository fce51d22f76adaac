//! Reading a message out of a row.

use crate::envelope;
use bytes::Bytes;
use postrider_core::{
    EventType, Message, MessageId, OrderingKey, QueueName, SubjectId, TenantId, TimerName,
    message::StoredParts,
};
use sqlx::{Row, postgres::PgRow};
use uuid::Uuid;

/// The columns of a message in the order in which [`message`] reads them, for any table that has them.
pub(super) const COLUMNS: &str = "m.message_id, m.payload, m.event_type, m.content_type, m.key, m.tenant, m.subject, m.headers::text, m.timer";
pub(super) const COLUMN_COUNT: usize = 9;

/// The message whose columns begin at `first`.
pub(super) fn message(row: &PgRow, first: usize, queue: &QueueName) -> Result<Message, sqlx::Error> {
    let text = |offset: usize| row.try_get::<Option<&str>, _>(first + offset);
    let id: Uuid = row.try_get(first)?;
    let (trail, headers) = envelope::decode(text(7)?);
    // A message without a key is a line of its own on an ordered queue, under its identity.
    let key = text(4)?.filter(|key| key.len() != 36 || *key != id.to_string());
    Ok(Message::stored(StoredParts {
        id: MessageId::from_uuid(id),
        queue: queue.clone(),
        payload: Bytes::copy_from_slice(row.try_get(first + 1)?),
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
