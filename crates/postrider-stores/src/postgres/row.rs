//! Reading a message from a row.

use crate::envelope;
use bytes::Bytes;
use postrider_core::{
    EventType, Message, MessageId, OrderingKey, QueueName, SubjectId, TenantId, TimerName,
    message::StoredParts,
};
use sqlx::{Row, postgres::PgRow};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use uuid::Uuid;

/// The columns of a message in the order in which [`message`] reads them, for any table that has them.
pub(super) const COLUMNS: &str = "m.message_id, m.payload, m.event_type, m.content_type, m.key, m.tenant, m.subject, m.headers::text, m.timer";
pub(super) const COLUMN_COUNT: usize = 9;

/// The message whose columns start at `first`.
pub(super) fn message(row: &PgRow, first: usize, queue: &QueueName) -> Result<Message, sqlx::Error> {
    let text = |offset: usize| row.try_get_unchecked::<Option<&str>, _>(first + offset);
    let id: Uuid = row.try_get_unchecked(first)?;
    let (trail, headers) = envelope::decode(text(7)?);
    // On an ordered queue, a message without a key has its id as the key.
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

/// A `timestamptz`, read and written without calendar arithmetic.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment(pub(super) SystemTime);

/// PostgreSQL counts microseconds from the year 2000.
const EPOCH: Duration = Duration::from_secs(946_684_800);
/// The range of its calendar, in microseconds; beyond it lies infinity.
const CALENDAR: std::ops::Range<i128> = -211_813_488_000_000_000..9_223_371_331_200_000_000;

impl sqlx::Type<sqlx::Postgres> for Moment {
    fn type_info() -> sqlx::postgres::PgTypeInfo {
        <time::OffsetDateTime as sqlx::Type<sqlx::Postgres>>::type_info()
    }
}

impl<'r> sqlx::Decode<'r, sqlx::Postgres> for Moment {
    fn decode(value: sqlx::postgres::PgValueRef<'r>) -> Result<Self, sqlx::error::BoxDynError> {
        let micros = i64::from_be_bytes(value.as_bytes()?.try_into()?);
        let offset = Duration::from_micros(micros.unsigned_abs());
        let base = UNIX_EPOCH + EPOCH;
        let moment = if micros < 0 { base.checked_sub(offset) } else { base.checked_add(offset) };
        Ok(Self(moment.unwrap_or(UNIX_EPOCH)))
    }
}

impl sqlx::Encode<'_, sqlx::Postgres> for Moment {
    /// Rounds up to the next microsecond.
    fn encode_by_ref(
        &self,
        buffer: &mut sqlx::postgres::PgArgumentBuffer,
    ) -> Result<sqlx::encode::IsNull, sqlx::error::BoxDynError> {
        let signed = |since: Duration| i128::try_from(since.as_nanos()).unwrap_or(i128::MAX);
        let nanos = match self.0.duration_since(UNIX_EPOCH + EPOCH) {
            Ok(since) => signed(since),
            Err(before) => -signed(before.duration()),
        };
        let micros = -(-nanos).div_euclid(1_000);
        let micros = match i64::try_from(micros) {
            Ok(within) if CALENDAR.contains(&micros) => within,
            _ if micros < 0 => i64::MIN,
            _ => i64::MAX,
        };
        buffer.extend_from_slice(&micros.to_be_bytes());
        Ok(sqlx::encode::IsNull::No)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqlx::Encode;

    fn encoded(at: SystemTime) -> i64 {
        let mut buffer = sqlx::postgres::PgArgumentBuffer::default();
        assert!(!Moment(at).encode_by_ref(&mut buffer).unwrap().is_null());
        i64::from_be_bytes(buffer.as_slice().try_into().unwrap())
    }

    #[test]
    fn encoding_rounds_up_to_microseconds() {
        let epoch = UNIX_EPOCH + EPOCH;
        assert_eq!(encoded(epoch), 0);
        assert_eq!(encoded(epoch + Duration::from_nanos(1)), 1);
        assert_eq!(encoded(epoch + Duration::from_micros(7)), 7);
        assert_eq!(encoded(epoch - Duration::from_nanos(1)), 0);
        assert_eq!(encoded(epoch - Duration::from_nanos(1_001)), -1);
    }

    #[test]
    fn encoding_beyond_calendar_is_infinity() {
        let far = Duration::from_secs(1 << 50);
        assert_eq!(encoded(UNIX_EPOCH + far), i64::MAX);
        assert_eq!(encoded(UNIX_EPOCH - far), i64::MIN);
    }
}
