//! A message as the rooms keep it.

use super::clock::after;
use bytes::Bytes;
use postrider_core::{
    Due, LeaseToken, Message, MessageId, OrderingKey, Reason, TimerName,
    limits::{ERROR_BYTES, truncated},
    message::{DEFAULT_CONTENT_TYPE, StoredParts},
};
use std::time::SystemTime;

/// A message and what the store knows about it.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) id: MessageId,
    pub(super) message: Message,
    /// The key that it is ordered by. A message without one is alone in its lane, which bears its id.
    pub(super) lane: OrderingKey,
    pub(super) place: i64,
    pub(super) staged_at: SystemTime,
    pub(super) due_at: SystemTime,
    pub(super) attempts: u32,
    pub(super) deliveries: u32,
    pub(super) error: Option<String>,
    /// It waited in `later` until it came due, and nobody has taken it since.
    pub(super) ripe: bool,
    /// Who has it, on unordered queues. On ordered ones the lane knows.
    pub(super) held: Option<Held>,
}

/// A lease as the store keeps it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    pub(super) token: LeaseToken,
    pub(super) until: SystemTime,
}

impl Held {
    pub(super) fn is_live(&self, now: SystemTime) -> bool {
        self.until > now
    }
}

/// A dead letter.
#[derive(Debug)]
pub(super) struct Letter {
    pub(super) row: Row,
    pub(super) reason: Reason,
    pub(super) failed_at: SystemTime,
}

/// A message that was delivered and is kept for a while.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) row: Row,
    pub(super) done_at: SystemTime,
    pub(super) expires_at: SystemTime,
}

impl Row {
    pub(super) fn new(message: &Message, id: MessageId, place: i64, now: SystemTime) -> Self {
        let due_at = match message.due() {
            Due::Now => now,
            Due::After(wait) => after(now, wait),
            Due::At(at) => at.max(now),
        };
        Self {
            id,
            message: stored(message, id, message.timer().map(|timer| timer.name.clone())),
            lane: message.key().cloned().unwrap_or_else(|| OrderingKey::stored(id.to_string())),
            place,
            staged_at: now,
            due_at,
            attempts: 0,
            deliveries: 0,
            error: None,
            ripe: false,
            held: None,
        }
    }

    /// Whose it is; nobody's is a tenant without a name.
    pub(super) fn tenant(&self) -> &str {
        self.message.tenant().map_or("", |tenant| tenant.as_str())
    }

    /// Whether it may run as soon as it is committed.
    pub(super) fn is_due_at_once(&self) -> bool {
        self.due_at <= self.staged_at
    }

    pub(super) fn is_held(&self, now: SystemTime) -> bool {
        self.held.is_some_and(|held| held.is_live(now))
    }

    /// A waiting timer takes the later of both times and what comes with it. Its identity stays.
    pub(super) fn extend(&mut self, with: &Self) {
        if with.due_at > self.due_at {
            self.message = with.message.clone().identified(self.id);
            self.lane = with.lane.clone();
            self.due_at = with.due_at;
            self.ripe = false;
            self.clear();
        }
    }

    /// Counts a delivery of an ordered queue, and the lapsed leases before it, which the lane has counted.
    pub(super) fn deliver(&mut self, lapses: u32) {
        self.deliveries = self.delivered(lapses);
    }

    /// How often it was delivered, when the lane has counted so many lapses and it is delivered again.
    pub(super) fn delivered(&self, lapses: u32) -> u32 {
        self.deliveries.saturating_add(lapses).saturating_add(1)
    }

    /// Counts a failure that was reported.
    pub(super) fn fail(&mut self, error: Option<&str>) {
        self.attempts = self.attempts.saturating_add(1);
        self.error = error.map(|text| truncated(text, ERROR_BYTES).to_owned());
    }

    /// Forgets every delivery and failure.
    pub(super) fn clear(&mut self) {
        self.attempts = 0;
        self.deliveries = 0;
        self.error = None;
    }

    /// It is no timer any more: another one may have taken its name.
    pub(super) fn drop_timer(&mut self) {
        self.message = stored(&self.message, self.id, None);
    }

    /// Keeps no payload any more. That it names a content type tells that there was one.
    pub(super) fn forget_payload(&mut self) {
        if !self.message.payload().is_empty() {
            let content_type = Some(self.message.content_type().to_owned());
            let timer = self.message.timer().map(|timer| timer.name.clone());
            let parts = parts(&self.message, self.id, timer);
            self.message = Message::stored(StoredParts { payload: Bytes::new(), content_type, ..parts });
        }
    }
}

/// A message as every store hands it out: what concerned its staging only is left behind.
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
