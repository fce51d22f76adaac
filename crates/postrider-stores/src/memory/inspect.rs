//! What operators see.

use super::{
    MemoryStore,
    queue::{Queue, Spot},
    row::{Kept, Letter, Row},
};
use async_trait::async_trait;
use postrider_core::{
    Arrival, Error, MessageId, PruneRequest, QueueName, Reason, State, TenantId,
    inspect::{
        AuditRow, BlockedKey, Clue, Counts, Cursor, DeadGroup, Entry, InboxMark, Inspect, ListRequest,
        LivingTimer, Page, Prunable, Room, Selected, Selection, Tally,
    },
};
use std::{
    cmp::Reverse,
    collections::BTreeMap,
    ops::Bound::{Excluded, Unbounded},
    time::{Duration, SystemTime},
};

/// Where counting stops, as it does in every store.
const CAP: u64 = 10_000;

#[async_trait]
impl Inspect for MemoryStore {
    async fn counts(&self) -> Result<BTreeMap<QueueName, Counts>, Error> {
        let (rooms, now) = self.enter();
        Ok(rooms.queues.iter().map(|(name, queue)| (name.clone(), queue.counts(now))).collect())
    }

    async fn lag(&self, queue: &QueueName) -> Result<Option<Duration>, Error> {
        let (rooms, now) = self.enter();
        Ok(rooms.queues.get(queue).and_then(|queue| queue.lag(now)))
    }

    async fn blocked_keys(&self, queue: &QueueName, limit: usize) -> Result<Vec<BlockedKey>, Error> {
        let (rooms, now) = self.enter();
        Ok(rooms.queues.get(queue).map(|queue| queue.blocked_keys(limit, now)).unwrap_or_default())
    }

    async fn list(&self, request: &ListRequest) -> Result<Page, Error> {
        let (rooms, now) = self.enter();
        let queue = rooms.queues.get(&request.queue).filter(|_| request.limit > 0);
        Ok(queue.map_or(Page { entries: Vec::new(), next: None }, |queue| queue.page(request, now)))
    }

    async fn get(&self, queue: &QueueName, id: MessageId) -> Result<Option<Entry>, Error> {
        let (rooms, now) = self.enter();
        Ok(rooms.queues.get(queue).and_then(|queue| queue.find(id, now)).map(Sight::into_entry))
    }

    async fn tally(&self, selection: &Selection) -> Result<Selected, Error> {
        Ok(self.tallied(selection))
    }

    async fn dead_groups(&self, queue: Option<&QueueName>, limit: usize) -> Result<Vec<DeadGroup>, Error> {
        Ok(self.grouped(queue, limit))
    }

    async fn find(&self, clue: &Clue, limit: usize) -> Result<Vec<Entry>, Error> {
        Ok(self.found(clue, limit))
    }

    async fn ahead(&self, queue: &QueueName, id: MessageId) -> Result<Option<Tally>, Error> {
        let (rooms, _) = self.enter();
        Ok(rooms.queues.get(queue).and_then(|queue| queue.ahead(id)).map(|ahead| Tally::new(ahead, CAP)))
    }

    async fn marks(&self, tenant: Option<&TenantId>, id: MessageId) -> Result<Vec<InboxMark>, Error> {
        Ok(self.lock().marks.of(&Arrival { tenant: tenant.cloned(), id }))
    }

    async fn timers(&self, queue: Option<&QueueName>, limit: usize) -> Result<Vec<LivingTimer>, Error> {
        Ok(self.living_timers(queue, limit))
    }

    async fn prunable(
        &self,
        request: &PruneRequest,
        audit_older_than: Option<Duration>,
    ) -> Result<Prunable, Error> {
        let (rooms, now) = self.enter();
        Ok(rooms.prunable(request, audit_older_than, now))
    }

    async fn clock(&self) -> Result<SystemTime, Error> {
        Ok(self.enter().1)
    }

    async fn audit_of(&self, id: MessageId, limit: usize) -> Result<Vec<AuditRow>, Error> {
        let rooms = self.lock();
        let named = rooms.audit.iter().rev().filter(|row| row.ids.contains(&id));
        Ok(named.take(limit).cloned().collect())
    }

    async fn audit(&self, limit: usize) -> Result<Vec<AuditRow>, Error> {
        Ok(self.lock().audit.iter().rev().take(limit).cloned().collect())
    }
}

/// A message as it is seen where it stands.
pub(super) struct Sight<'a> {
    pub(super) row: &'a Row,
    pub(super) state: State,
    pub(super) at: SystemTime,
    pub(super) reason: Option<Reason>,
}

impl Sight<'_> {
    fn fits(&self, request: &ListRequest) -> bool {
        let message = &self.row.message;
        request.key.as_ref().is_none_or(|key| self.row.lane == *key)
            && request.event_type.as_ref().is_none_or(|wanted| message.event_type() == Some(wanted))
            && request.reason.is_none_or(|reason| self.reason == Some(reason))
            && request.error.as_ref().is_none_or(|wanted| self.failed_with(wanted))
    }

    pub(super) fn failed_with(&self, beginning: &str) -> bool {
        self.row.error.as_ref().is_some_and(|error| error.starts_with(beginning))
    }

    pub(super) fn into_entry(self) -> Entry {
        Entry {
            message: self.row.message.clone(),
            state: self.state,
            staged_at: self.row.staged_at,
            at: self.at,
            deliveries: self.row.deliveries,
            attempts: self.row.attempts,
            reason: self.reason,
            error: self.row.error.clone(),
        }
    }
}

impl Queue {
    fn see_ready<'a>(&self, row: &'a Row, now: SystemTime) -> Sight<'a> {
        Sight { row, state: self.state(row, now), at: row.due_at, reason: None }
    }

    pub(super) fn find(&self, id: MessageId, now: SystemTime) -> Option<Sight<'_>> {
        Some(match self.spot(id)? {
            Spot::Ready(place) => self.see_ready(self.ready.get(&place)?, now),
            Spot::Later(at, place) => see_later(self.later.get(&(at, place))?, now),
            Spot::Dead(at, place) => see_dead(self.dead.get(&(at, place))?),
            Spot::Archive(at, place) => see_kept(self.archive.get(&(at, place))?),
        })
    }

    /// Everything in a room.
    pub(super) fn sights(&self, room: Room, now: SystemTime) -> Box<dyn Iterator<Item = Sight<'_>> + '_> {
        match room {
            Room::Ready => Box::new(self.ready.values().map(move |row| self.see_ready(row, now))),
            Room::Later => Box::new(self.later.values().map(move |row| see_later(row, now))),
            Room::Dead => Box::new(self.dead.values().map(see_dead)),
            Room::Archive => Box::new(self.archive.values().map(see_kept)),
        }
    }

    fn page(&self, request: &ListRequest, now: SystemTime) -> Page {
        let place = request.after.as_ref().map(|cursor| cursor.place);
        let at = request.after.as_ref().and_then(|cursor| cursor.at);
        let places = (place.map_or(Unbounded, Excluded), Unbounded);
        let times = (at.zip(place).map_or(Unbounded, Excluded), Unbounded);
        let sights: Box<dyn Iterator<Item = Sight<'_>>> = match request.room {
            Room::Ready => Box::new(self.ready.range(places).map(|(_, row)| self.see_ready(row, now))),
            Room::Later => Box::new(self.later.range(times).map(|(_, row)| see_later(row, now))),
            Room::Dead => Box::new(self.dead.range(times).map(|(_, letter)| see_dead(letter))),
            Room::Archive => Box::new(self.archive.range(times).map(|(_, kept)| see_kept(kept))),
        };
        let found: Vec<_> = sights.filter(|sight| sight.fits(request)).take(request.limit).collect();
        let next = found.last().filter(|_| found.len() == request.limit).map(|sight| Cursor {
            at: (request.room != Room::Ready).then_some(sight.at),
            place: sight.row.place,
        });
        Page { entries: found.into_iter().map(Sight::into_entry).collect(), next }
    }

    fn counts(&self, now: SystemTime) -> Counts {
        let mut counted = BTreeMap::<State, u64>::new();
        let ready = self.ready.values().map(|row| self.state(row, now));
        let later = self.later.values().map(|row| see_later(row, now).state);
        for state in ready.chain(later) {
            *counted.entry(state).or_default() += 1;
        }
        let tally = |state| Tally::new(counted.get(&state).copied().unwrap_or_default(), CAP);
        Counts {
            pending: tally(State::Pending),
            leased: tally(State::Leased),
            waiting: tally(State::Waiting),
            dead: Tally::new(self.dead.len() as u64, CAP),
            done: Tally::new(self.archive.len() as u64, CAP),
        }
    }

    fn lag(&self, now: SystemTime) -> Option<Duration> {
        let ready = self.ready.values().filter(|row| self.state(row, now) != State::Leased);
        let due_at = ready.chain(self.later.values()).map(|row| row.due_at).min()?;
        now.duration_since(due_at).ok()
    }

    fn blocked_keys(&self, limit: usize, now: SystemTime) -> Vec<BlockedKey> {
        let blocked = self.lanes.ring().filter_map(|(_, key, lane)| {
            let block = lane.block(now)?;
            let head = self.ready.get(&lane.head()?)?.id;
            let (due_at, reason, error) = (block.due_at, block.reason, block.error.clone());
            Some(BlockedKey { key: key.clone(), head, due_at, reason, error })
        });
        let mut blocked: Vec<_> = blocked.collect();
        // A parked key waits longest of all.
        blocked.sort_by_key(|key| Reverse((key.due_at.is_none(), key.due_at)));
        blocked.truncate(limit);
        blocked
    }
}

fn see_later(row: &Row, now: SystemTime) -> Sight<'_> {
    let state = if row.due_at > now { State::Waiting } else { State::Pending };
    Sight { row, state, at: row.due_at, reason: None }
}

fn see_dead(letter: &Letter) -> Sight<'_> {
    Sight { row: &letter.row, state: State::Dead, at: letter.failed_at, reason: Some(letter.reason) }
}

fn see_kept(kept: &Kept) -> Sight<'_> {
    Sight { row: &kept.row, state: State::Done, at: kept.done_at, reason: None }
}
