//! Queries for operators.

use super::{
    MemoryStore,
    queue::{Location, Queue},
    row::{ArchivedRow, DeadRow, Row},
};
use async_trait::async_trait;
use postrider_core::{
    Arrival, Error, MessageId, PruneRequest, QueueName, Reason, State, TenantId,
    follow_up::{FollowUpFilter, FollowUpRow, StatusCounts},
    inspect::{
        ActiveTimer, AuditRow, BlockedKey, CappedCount, Counts, Cursor, DeadGroup, DeduplicationRecord,
        FindBy, Inspect, ListRequest, MessageRow, Page, Prunable, ScheduleRow, Selection, SelectionSummary,
        StateFilter,
    },
};
use std::{
    cmp::Reverse,
    collections::BTreeMap,
    ops::Bound::{Excluded, Unbounded},
    time::{Duration, SystemTime},
};

/// Counting stops at this number, as in every store.
const CAP: u64 = 10_000;

#[async_trait]
impl Inspect for MemoryStore {
    async fn counts(&self) -> Result<BTreeMap<QueueName, Counts>, Error> {
        let (tables, now) = self.enter();
        Ok(tables.queues.iter().map(|(name, queue)| (name.clone(), queue.counts(now))).collect())
    }

    async fn lag(&self, queue: &QueueName) -> Result<Option<Duration>, Error> {
        let (tables, now) = self.enter();
        Ok(tables.queues.get(queue).and_then(|queue| queue.lag(now)))
    }

    async fn blocked_keys(&self, queue: &QueueName, limit: usize) -> Result<Vec<BlockedKey>, Error> {
        let (tables, now) = self.enter();
        Ok(tables.queues.get(queue).map(|queue| queue.blocked_keys(limit, now)).unwrap_or_default())
    }

    async fn list(&self, request: &ListRequest) -> Result<Page, Error> {
        let (tables, now) = self.enter();
        let queue = tables.queues.get(&request.queue).filter(|_| request.limit > 0);
        Ok(queue.map_or(Page { entries: Vec::new(), next: None }, |queue| queue.page(request, now)))
    }

    async fn get(&self, queue: &QueueName, id: MessageId) -> Result<Option<MessageRow>, Error> {
        let (tables, now) = self.enter();
        Ok(tables.queues.get(queue).and_then(|queue| queue.find(id, now)).map(RowView::into_entry))
    }

    async fn summarize(&self, selection: &Selection) -> Result<SelectionSummary, Error> {
        Ok(self.summarize(selection))
    }

    async fn dead_groups(&self, queue: Option<&QueueName>, limit: usize) -> Result<Vec<DeadGroup>, Error> {
        Ok(self.dead_groups_of(queue, limit))
    }

    async fn find(&self, find_by: &FindBy, limit: usize) -> Result<Vec<MessageRow>, Error> {
        Ok(self.find_rows(find_by, limit))
    }

    async fn ahead(&self, queue: &QueueName, id: MessageId) -> Result<Option<CappedCount>, Error> {
        let (tables, _) = self.enter();
        Ok(tables
            .queues
            .get(queue)
            .and_then(|queue| queue.ahead(id))
            .map(|ahead| CappedCount::new(ahead, CAP)))
    }

    async fn deduplication_records(
        &self,
        tenant: Option<&TenantId>,
        id: MessageId,
    ) -> Result<Vec<DeduplicationRecord>, Error> {
        Ok(self.lock().inbox.of(&Arrival { tenant: tenant.cloned(), id }))
    }

    async fn timers(&self, queue: Option<&QueueName>, limit: usize) -> Result<Vec<ActiveTimer>, Error> {
        Ok(self.active_timers(queue, limit))
    }

    async fn prunable(
        &self,
        request: &PruneRequest,
        audit_older_than: Option<Duration>,
    ) -> Result<Prunable, Error> {
        let (tables, now) = self.enter();
        Ok(tables.prunable(request, audit_older_than, now))
    }

    async fn schedules(&self) -> Result<Vec<ScheduleRow>, Error> {
        Ok(Self::schedules(self))
    }

    async fn clock(&self) -> Result<SystemTime, Error> {
        Ok(self.enter().1)
    }

    async fn audit_of(&self, id: MessageId, limit: usize) -> Result<Vec<AuditRow>, Error> {
        let tables = self.lock();
        let named = tables.audit.iter().rev().filter(|row| row.ids.contains(&id));
        Ok(named.take(limit).cloned().collect())
    }

    async fn audit(&self, limit: usize) -> Result<Vec<AuditRow>, Error> {
        Ok(self.lock().audit.iter().rev().take(limit).cloned().collect())
    }

    async fn status_counts(&self, queue: &QueueName) -> Result<StatusCounts, Error> {
        Self::status_counts(self, queue)
    }

    async fn follow_up_rows(
        &self,
        queue: &QueueName,
        filter: FollowUpFilter,
        limit: usize,
    ) -> Result<Vec<FollowUpRow>, Error> {
        Self::follow_up_rows(self, queue, filter, limit)
    }
}

/// A row with its state.
pub(super) struct RowView<'a> {
    pub(super) row: &'a Row,
    pub(super) state: State,
    pub(super) at: SystemTime,
    pub(super) reason: Option<Reason>,
}

impl RowView<'_> {
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

    pub(super) fn into_entry(self) -> MessageRow {
        MessageRow {
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
    fn view_ready<'a>(&self, row: &'a Row, now: SystemTime) -> RowView<'a> {
        RowView { row, state: self.state(row, now), at: row.due_at, reason: None }
    }

    pub(super) fn find(&self, id: MessageId, now: SystemTime) -> Option<RowView<'_>> {
        Some(match self.location(id)? {
            Location::Ready(position) => self.view_ready(self.ready.get(&position)?, now),
            Location::Scheduled(at, position) => view_scheduled(self.scheduled.get(&(at, position))?, now),
            Location::Dead(at, position) => view_dead(self.dead.get(&(at, position))?),
            Location::Archive(at, position) => view_archived(self.archive.get(&(at, position))?),
        })
    }

    /// All rows of a state filter.
    pub(super) fn views(
        &self,
        filter: StateFilter,
        now: SystemTime,
    ) -> Box<dyn Iterator<Item = RowView<'_>> + '_> {
        match filter {
            StateFilter::Ready => Box::new(self.ready.values().map(move |row| self.view_ready(row, now))),
            StateFilter::Scheduled => {
                Box::new(self.scheduled.values().map(move |row| view_scheduled(row, now)))
            }
            StateFilter::Dead => Box::new(self.dead.values().map(view_dead)),
            StateFilter::Done => Box::new(self.archive.values().map(view_archived)),
        }
    }

    fn page(&self, request: &ListRequest, now: SystemTime) -> Page {
        let position = request.after.as_ref().map(|cursor| cursor.position);
        let at = request.after.as_ref().and_then(|cursor| cursor.at);
        let positions = (position.map_or(Unbounded, Excluded), Unbounded);
        let times = (at.zip(position).map_or(Unbounded, Excluded), Unbounded);
        let views: Box<dyn Iterator<Item = RowView<'_>>> = match request.state {
            StateFilter::Ready => {
                Box::new(self.ready.range(positions).map(|(_, row)| self.view_ready(row, now)))
            }
            StateFilter::Scheduled => {
                Box::new(self.scheduled.range(times).map(|(_, row)| view_scheduled(row, now)))
            }
            StateFilter::Dead => Box::new(self.dead.range(times).map(|(_, letter)| view_dead(letter))),
            StateFilter::Done => {
                Box::new(self.archive.range(times).map(|(_, archived)| view_archived(archived)))
            }
        };
        let found: Vec<_> = views.filter(|view| view.fits(request)).take(request.limit).collect();
        let next = found.last().filter(|_| found.len() == request.limit).map(|view| Cursor {
            at: (request.state != StateFilter::Ready).then_some(view.at),
            position: view.row.position,
        });
        Page { entries: found.into_iter().map(RowView::into_entry).collect(), next }
    }

    fn counts(&self, now: SystemTime) -> Counts {
        let mut counted = BTreeMap::<State, u64>::new();
        let ready = self.ready.values().map(|row| self.state(row, now));
        let scheduled = self.scheduled.values().map(|row| view_scheduled(row, now).state);
        for state in ready.chain(scheduled) {
            *counted.entry(state).or_default() += 1;
        }
        let tally = |state| CappedCount::new(counted.get(&state).copied().unwrap_or_default(), CAP);
        Counts {
            pending: tally(State::Pending),
            leased: tally(State::Leased),
            scheduled: tally(State::Scheduled),
            dead: CappedCount::new(self.dead.len() as u64, CAP),
            done: CappedCount::new(self.archive.len() as u64, CAP),
        }
    }

    fn lag(&self, now: SystemTime) -> Option<Duration> {
        let ready = self.ready.values().filter(|row| self.state(row, now) != State::Leased);
        let due_at = ready.chain(self.scheduled.values()).map(|row| row.due_at).min()?;
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
        // Parked keys come first: they wait longest.
        blocked.sort_by_key(|key| Reverse((key.due_at.is_none(), key.due_at)));
        blocked.truncate(limit);
        blocked
    }
}

fn view_scheduled(row: &Row, now: SystemTime) -> RowView<'_> {
    let state = if row.due_at > now { State::Scheduled } else { State::Pending };
    RowView { row, state, at: row.due_at, reason: None }
}

fn view_dead(letter: &DeadRow) -> RowView<'_> {
    RowView { row: &letter.row, state: State::Dead, at: letter.failed_at, reason: Some(letter.reason) }
}

fn view_archived(archived: &ArchivedRow) -> RowView<'_> {
    RowView { row: &archived.row, state: State::Done, at: archived.done_at, reason: None }
}
