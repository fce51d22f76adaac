//! A message as a row of the tables.

use super::clock::after;
use bytes::Bytes;
use postrider_core::{
    Due, LeaseToken, Message, MessageId, OrderingKey, Reason, TimerName,
    limits::{ERROR_BYTES, truncated},
    message::{DEFAULT_CONTENT_TYPE, StoredParts},
};
use std::time::SystemTime;

/// A message and its metadata.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) id: MessageId,
    pub(super) message: Message,
    /// The ordering key. A message without one has a lane of its own, named by its id.
    pub(super) lane: OrderingKey,
    pub(super) position: i64,
    pub(super) staged_at: SystemTime,
    pub(super) due_at: SystemTime,
    pub(super) attempts: u32,
    pub(super) deliveries: u32,
    /// The deliveries that began in isolation since the last failure.
    pub(super) isolated: u32,
    pub(super) first_failed_at: Option<SystemTime>,
    pub(super) error: Option<String>,
    /// It was in `scheduled` until it came due, and has not been claimed since.
    pub(super) promoted: bool,
    /// The lease, on unordered queues. On ordered ones the lane has it.
    pub(super) lease: Option<StoredLease>,
}

/// A lease as the store keeps it: its token and its expiry.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoredLease {
    pub(super) token: LeaseToken,
    pub(super) until: SystemTime,
}

impl StoredLease {
    pub(super) fn is_valid(&self, now: SystemTime) -> bool {
        self.until > now
    }
}

/// A dead letter.
#[derive(Debug)]
pub(super) struct DeadRow {
    pub(super) row: Row,
    pub(super) reason: Reason,
    pub(super) failed_at: SystemTime,
}

/// A delivered message in the archive.
#[derive(Debug)]
pub(super) struct ArchivedRow {
    pub(super) row: Row,
    pub(super) done_at: SystemTime,
    pub(super) expires_at: SystemTime,
}

impl Row {
    pub(super) fn new(message: &Message, id: MessageId, position: i64, now: SystemTime) -> Self {
        let due_at = match message.due() {
            Due::Now => now,
            Due::After(wait) => after(now, wait),
            Due::At(at) => at.max(now),
        };
        Self {
            id,
            message: stored(message, id, message.timer().map(|timer| timer.name.clone())),
            lane: message.key().cloned().unwrap_or_else(|| OrderingKey::stored(id.to_string())),
            position,
            staged_at: now,
            due_at,
            attempts: 0,
            deliveries: 0,
            isolated: 0,
            first_failed_at: None,
            error: None,
            promoted: false,
            lease: None,
        }
    }

    /// The tenant; the empty name for a message without one.
    pub(super) fn tenant(&self) -> &str {
        self.message.tenant().map_or("", |tenant| tenant.as_str())
    }

    /// Whether it is due when it is staged.
    pub(super) fn is_due_now(&self) -> bool {
        self.due_at <= self.staged_at
    }

    pub(super) fn is_leased(&self, now: SystemTime) -> bool {
        self.lease.is_some_and(|lease| lease.is_valid(now))
    }

    /// Extends an active timer: it takes the later due time and the content that belongs to it, and keeps its id.
    pub(super) fn extend(&mut self, with: &Self) {
        if with.due_at > self.due_at {
            self.message = with.message.clone().identified(self.id);
            self.lane = with.lane.clone();
            self.due_at = with.due_at;
            self.promoted = false;
            self.clear();
        }
    }

    /// Counts a delivery of an ordered queue, and the expired leases before it, which the lane has counted.
    pub(super) fn deliver(&mut self, expired_leases: u32) {
        self.deliveries = self.delivered(expired_leases);
    }

    /// The number of deliveries, including the current one and the expired leases that the lane has counted.
    pub(super) fn delivered(&self, expired_leases: u32) -> u32 {
        self.deliveries.saturating_add(expired_leases).saturating_add(1)
    }

    /// Counts a reported failure.
    pub(super) fn fail(&mut self, error: Option<&str>, now: SystemTime) {
        self.attempts = self.attempts.saturating_add(1);
        self.first_failed_at.get_or_insert(now);
        self.isolated = 0;
        self.error = error.map(|text| truncated(text, ERROR_BYTES).to_owned());
    }

    /// Resets the counts of deliveries and failures.
    pub(super) fn clear(&mut self) {
        self.attempts = 0;
        self.deliveries = 0;
        self.isolated = 0;
        self.first_failed_at = None;
        self.error = None;
    }

    /// Makes it a message without a timer: another one may have taken the name.
    pub(super) fn drop_timer(&mut self) {
        self.message = stored(&self.message, self.id, None);
    }

    /// Deletes the payload. A content type shows that there was one.
    pub(super) fn forget_payload(&mut self) {
        if !self.message.payload().is_empty() {
            let content_type = Some(self.message.content_type().to_owned());
            let timer = self.message.timer().map(|timer| timer.name.clone());
            let parts = parts(&self.message, self.id, timer);
            self.message = Message::stored(StoredParts { payload: Bytes::new(), content_type, ..parts });
        }
    }
}

/// A message as every store returns it, without the options that concern only staging.
fn stored(message: &Message, id: MessageId, timer: Option<TimerName>) -> Message {
    let content_type =
        Some(message.content_type()).filter(|content_type| *content_type != DEFAULT_CONTENT_TYPE);
    let content_type = content_type.map(str::to_owned);
    Message::stored(StoredParts { content_type, ..parts(message, id, timer) })
}

fn parts(message: &Message, id: MessageId, timer: Option<TimerName>) -> StoredParts {
    StoredParts {
        id,
        queue: message.queue().clone(),
        payload: message.payload().clone(),
        content_type: None,
        event_type: message.event_type().cloned(),
        key: message.key().cloned(),
        tenant: message.tenant().cloned(),
        subject: message.subject().cloned(),
        trail: message.trail().clone(),
        headers: message.headers().clone(),
        timer,
    }
}
