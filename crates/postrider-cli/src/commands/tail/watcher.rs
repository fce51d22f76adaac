//! The messages of the last poll, and the differences since.

use super::{
    Args,
    event::{Event, EventKind},
};
use postrider::{
    Error, MessageId, OrderingKey, QueueName, State,
    inspect::{Cursor, FindBy, Inspect, ListRequest, MessageRow, StateFilter},
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::{Duration, SystemTime},
};

/// How many messages in a state are compared.
const PAGE: usize = 1000;
/// How many pages of dead and done messages one poll reads.
const PAGES: usize = 20;
/// A transaction may commit this long after it wrote a timestamp: polls overlap by this time.
const OVERLAP: Duration = Duration::from_secs(5);

type MessageKey = (QueueName, MessageId);

#[derive(Debug)]
pub(super) struct Watcher {
    id: Option<MessageId>,
    ordering_key: Option<OrderingKey>,
    queue: Option<QueueName>,
    since: Option<SystemTime>,
    /// The store's clock at the last poll.
    polled_at: SystemTime,
    seen: HashMap<MessageKey, MessageRow>,
    /// The known queues, and whether a delivered message was seen in them (keep_for).
    queues: BTreeMap<QueueName, bool>,
    /// The warnings that were printed.
    warned: BTreeSet<(QueueName, &'static str)>,
    full: BTreeSet<QueueName>,
}

impl Watcher {
    pub(super) fn new(args: &Args) -> Self {
        Self {
            id: args.id,
            ordering_key: args.key.clone(),
            queue: args.queue.clone(),
            since: args.since,
            polled_at: SystemTime::UNIX_EPOCH,
            seen: HashMap::new(),
            queues: BTreeMap::new(),
            warned: BTreeSet::new(),
            full: BTreeSet::new(),
        }
    }

    pub(super) fn queues(&self) -> Vec<QueueName> {
        self.queues.keys().cloned().collect()
    }

    /// The first poll. Its messages are no events, unless events since a time were requested.
    pub(super) async fn begin(&mut self, inspect: &dyn Inspect) -> Result<Vec<Event>, Error> {
        let now = self.clock(inspect).await?;
        let since = self.since.unwrap_or(now);
        // The next poll overlaps by the same time, and must know these messages.
        let found = self.find(inspect, before(since)).await?;
        self.polled_at = now;
        let mut events = Vec::new();
        for entry in found {
            if self.since.is_some() && entry.staged_at >= since {
                events.extend(Event::new(EventKind::Staged, &entry, now));
            }
            let has_ended = matches!(entry.state, State::Dead | State::Done);
            if self.since.is_some() && has_ended && entry.at >= since {
                events.extend(Event::new(EventKind::of(entry.state), &entry, now));
            }
            self.remember(entry);
        }
        events.sort_by(Event::by_time);
        Ok(events)
    }

    /// Polls the store, and returns the differences.
    pub(super) async fn poll(&mut self, inspect: &dyn Inspect) -> Result<Vec<Event>, Error> {
        let now = self.clock(inspect).await?;
        let from = before(self.polled_at);
        let last_poll = self.polled_at;
        let found = self.find(inspect, from).await?;
        let mut events = Vec::new();
        let mut present = BTreeSet::new();
        for entry in found {
            present.extend(key(&entry));
            events.extend(self.events(&entry, last_poll, now));
            self.remember(entry);
        }
        // A message that is missing has moved out of the compared range, or has left the queue.
        let missing: Vec<_> = self
            .seen
            .iter()
            .filter(|(key, entry)| {
                !present.contains(*key) && !matches!(entry.state, State::Dead | State::Done)
            })
            .map(|(key, _)| key.clone())
            .collect();
        for (queue, id) in missing {
            match inspect.get(&queue, id).await? {
                Some(entry) => {
                    events.extend(self.events(&entry, last_poll, now));
                    self.remember(entry);
                }
                None => {
                    if let Some(last) = self.seen.remove(&(queue, id)) {
                        events.extend(Event::new(EventKind::Gone, &last, now));
                    }
                }
            }
        }
        // Dead and done messages are remembered for as long as a poll may find them again.
        self.seen.retain(|_, entry| !matches!(entry.state, State::Dead | State::Done) || entry.at >= from);
        self.polled_at = now;
        Ok(events)
    }

    /// Prints each limit of visibility once.
    pub(super) fn warn(&mut self) {
        for (queue, keeps) in &self.queues {
            if !keeps && self.warned.insert((queue.clone(), "keeps")) {
                eprintln!(
                    "queue {queue} keeps no delivered messages: those staged and delivered between two polls are not shown. Set keep_for to see them."
                );
            }
        }
        for queue in std::mem::take(&mut self.full) {
            if self.warned.insert((queue.clone(), "full")) {
                eprintln!(
                    "queue {queue} has a large backlog: only the first {PAGE} messages in each state are watched. Give --key or an id."
                );
            }
        }
    }

    fn remember(&mut self, entry: MessageRow) {
        if entry.state == State::Done {
            self.queues.insert(entry.message.queue().clone(), true);
        }
        if let Some(key) = key(&entry) {
            self.seen.insert(key, entry);
        }
    }

    /// The events of a message since the last poll. An unknown message was staged since; if it is older, it was out of range.
    fn events(&self, entry: &MessageRow, last_poll: SystemTime, now: SystemTime) -> Vec<Event> {
        let Some(key) = key(entry) else { return Vec::new() };
        let mut events = Vec::new();
        let is_unchanged = match self.seen.get(&key) {
            Some(last) => {
                let counters = |entry: &MessageRow| (entry.state, entry.deliveries, entry.attempts);
                let has_ended = matches!(entry.state, State::Dead | State::Done);
                counters(last) == counters(entry) && (!has_ended || last.at == entry.at)
            }
            None => {
                if entry.staged_at >= before(last_poll) {
                    events.extend(Event::new(EventKind::Staged, entry, now));
                }
                // A new message is pending or scheduled, and has no other event.
                matches!(entry.state, State::Pending | State::Scheduled) && entry.deliveries == 0
                    || matches!(entry.state, State::Dead | State::Done) && entry.at < last_poll
            }
        };
        if !is_unchanged {
            events.extend(Event::new(EventKind::of(entry.state), entry, now));
        }
        events
    }

    /// All messages to compare: ready and scheduled ones, and those that are dead or done since then.
    async fn find(&mut self, inspect: &dyn Inspect, since: SystemTime) -> Result<Vec<MessageRow>, Error> {
        if let Some(id) = self.id {
            let mut found = inspect.find(&FindBy::Id(id), PAGE).await?;
            found.retain(|entry| self.queue.as_ref().is_none_or(|queue| queue == entry.message.queue()));
            return Ok(found);
        }
        let mut found = Vec::new();
        for queue in self.queues() {
            for state in [StateFilter::Ready, StateFilter::Scheduled] {
                let page = inspect.list(&self.request(&queue, state, None)).await?;
                if page.next.is_some() {
                    self.full.insert(queue.clone());
                }
                found.extend(page.entries);
            }
            for state in [StateFilter::Dead, StateFilter::Done] {
                let mut after = Some(Cursor { at: Some(since), position: 0 });
                for _ in 0..PAGES {
                    let page = inspect.list(&self.request(&queue, state, after)).await?;
                    found.extend(page.entries);
                    after = page.next;
                    if after.is_none() {
                        break;
                    }
                }
                if after.is_some() {
                    self.full.insert(queue.clone());
                }
            }
        }
        Ok(found)
    }

    fn request(&self, queue: &QueueName, state: StateFilter, after: Option<Cursor>) -> ListRequest {
        let request = ListRequest::new(queue.clone(), state).with_limit(PAGE).after(after);
        ListRequest { key: self.ordering_key.clone(), ..request }
    }

    /// Reads the store's clock, and updates the list of queues.
    async fn clock(&mut self, inspect: &dyn Inspect) -> Result<SystemTime, Error> {
        for (queue, counts) in inspect.counts().await? {
            if self.queue.as_ref().is_none_or(|wanted| *wanted == queue) {
                let keeps = self.queues.entry(queue).or_insert(false);
                *keeps |= counts.done.at_least > 0;
            }
        }
        inspect.clock().await
    }
}

/// The earliest timestamp of a transaction that commits at this time.
fn before(time: SystemTime) -> SystemTime {
    time.checked_sub(OVERLAP).unwrap_or(SystemTime::UNIX_EPOCH)
}

fn key(entry: &MessageRow) -> Option<MessageKey> {
    Some((entry.message.queue().clone(), entry.message.id()?))
}
