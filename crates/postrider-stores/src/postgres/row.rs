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
    let text = |offset: usize| row.try_get_unchecked::<Option<&str>, _>(first + offset);
    let id: Uuid = row.try_get_unchecked(first)?;
    let (trail, headers) = envelope::decode(text(7)?);
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

/// A `timestamptz`, read without a calendar.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment(pub(super) std::time::SystemTime);

impl sqlx::Type<sqlx::Postgres> for Moment {
    fn type_info() -> sqlx::postgres::PgTypeInfo {
        <time::OffsetDateTime as sqlx::Type<sqlx::Postgres>>::type_info()
    }
}

impl<'r> sqlx::Decode<'r, sqlx::Postgres> for Moment {
    fn decode(value: sqlx::postgres::PgValueRef<'r>) -> Result<Self, sqlx::error::BoxDynError> {
        use std::time::{Duration, UNIX_EPOCH};
        /// PostgreSQL counts microseconds from the year 2000.
        const EPOCH: Duration = Duration::from_secs(946_684_800);
        let micros = i64::from_be_bytes(value.as_bytes()?.try_into()?);
        let offset = Duration::from_micros(micros.unsigned_abs());
        let base = UNIX_EPOCH + EPOCH;
        let moment = if micros < 0 { base.checked_sub(offset) } else { base.checked_add(offset) };
        Ok(Self(moment.unwrap_or(UNIX_EPOCH)))
    }
}
