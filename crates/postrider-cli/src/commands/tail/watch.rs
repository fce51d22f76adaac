//! What was there at the last look, and what is different now.

use super::{
    Args,
    event::{Event, What},
};
use postrider::{
    Error, MessageId, OrderingKey, QueueName, State,
    inspect::{Clue, Cursor, Entry, Inspect, ListRequest, Room},
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::{Duration, SystemTime},
};

/// How many messages of a room are looked at.
const MOST: usize = 1000;
/// How many pages of what has ended are read in one look.
const PAGES: usize = 20;
/// A transaction may write a time and commit so much later: what has ended is looked for so far back.
const LATE: Duration = Duration::from_secs(5);

type Name = (QueueName, MessageId);

#[derive(Debug)]
pub(super) struct Watch {
    id: Option<MessageId>,
    key: Option<OrderingKey>,
    queue: Option<QueueName>,
    since: Option<SystemTime>,
    /// The store's clock at the last look.
    looked_at: SystemTime,
    seen: HashMap<Name, Entry>,
    /// Queues that are known, and whether they have shown that they keep what was delivered.
    queues: BTreeMap<QueueName, bool>,
    /// What has been said of queues.
    said: BTreeSet<(QueueName, &'static str)>,
    full: BTreeSet<QueueName>,
}

impl Watch {
    pub(super) fn new(args: &Args) -> Self {
        Self {
            id: args.id,
            key: args.key.clone(),
            queue: args.queue.clone(),
            since: args.since,
            looked_at: SystemTime::UNIX_EPOCH,
            seen: HashMap::new(),
            queues: BTreeMap::new(),
            said: BTreeSet::new(),
            full: BTreeSet::new(),
        }
    }

    pub(super) fn queues(&self) -> Vec<QueueName> {
        self.queues.keys().cloned().collect()
    }

    /// The first look. What is there then is no event, unless it is asked for what has happened since a time.
    pub(super) async fn begin(&mut self, inspect: &dyn Inspect) -> Result<Vec<Event>, Error> {
        let now = self.clock(inspect).await?;
        let since = self.since.unwrap_or(now);
        // The next look goes as far back, and must know what was there.
        let found = self.found(inspect, before(since)).await?;
        self.looked_at = now;
        let mut events = Vec::new();
        for entry in found {
            if self.since.is_some() && entry.staged_at >= since {
                events.extend(Event::new(What::Staged, &entry, now));
            }
            let has_ended = matches!(entry.state, State::Dead | State::Done);
            if self.since.is_some() && has_ended && entry.at >= since {
                events.extend(Event::new(What::of(entry.state), &entry, now));
            }
            self.see(entry);
        }
        events.sort_by(Event::earlier);
        Ok(events)
    }

    /// Looks again, and answers what is different.
    pub(super) async fn look(&mut self, inspect: &dyn Inspect) -> Result<Vec<Event>, Error> {
        let now = self.clock(inspect).await?;
        let from = before(self.looked_at);
        let began = self.looked_at;
        let found = self.found(inspect, from).await?;
        let mut events = Vec::new();
        let mut here = BTreeSet::new();
        for entry in found {
            here.extend(name(&entry));
            events.extend(self.changed(&entry, began, now));
            self.see(entry);
        }
        // Whoever is not among them has moved out of sight, or is gone.
        let missing: Vec<_> = self
            .seen
            .iter()
            .filter(|(name, entry)| {
                !here.contains(*name) && !matches!(entry.state, State::Dead | State::Done)
            })
            .map(|(name, _)| name.clone())
            .collect();
        for (queue, id) in missing {
            match inspect.get(&queue, id).await? {
                Some(entry) => {
                    events.extend(self.changed(&entry, began, now));
                    self.see(entry);
                }
                None => {
                    if let Some(last) = self.seen.remove(&(queue, id)) {
                        events.extend(Event::new(What::Gone, &last, now));
                    }
                }
            }
        }
        // What has ended is remembered for as long as it may be found again.
        self.seen.retain(|_, entry| !matches!(entry.state, State::Dead | State::Done) || entry.at >= from);
        self.looked_at = now;
        Ok(events)
    }

    /// Says once what cannot be seen.
    pub(super) fn warn(&mut self) {
        for (queue, keeps) in &self.queues {
            if !keeps && self.said.insert((queue.clone(), "keeps")) {
                eprintln!(
                    "{queue} has kept nothing so far: what is delivered between two looks is not seen unless keep_for keeps it."
                );
            }
        }
        for queue in std::mem::take(&mut self.full) {
            if self.said.insert((queue.clone(), "full")) {
                eprintln!(
                    "{queue} holds more than is looked at: only the first {MOST} of a room are watched. Name a key or an id."
                );
            }
        }
    }

    fn see(&mut self, entry: Entry) {
        if entry.state == State::Done {
            self.queues.insert(entry.message.queue().clone(), true);
        }
        if let Some(name) = name(&entry) {
            self.seen.insert(name, entry);
        }
    }

    /// What is different about a message. One that was not seen before was staged since; if it was earlier, it was out of sight.
    fn changed(&self, entry: &Entry, began: SystemTime, now: SystemTime) -> Vec<Event> {
        let Some(name) = name(entry) else { return Vec::new() };
        let mut events = Vec::new();
        let is_same = match self.seen.get(&name) {
            Some(last) => {
                let counters = |entry: &Entry| (entry.state, entry.deliveries, entry.attempts);
                let has_ended = matches!(entry.state, State::Dead | State::Done);
                counters(last) == counters(entry) && (!has_ended || last.at == entry.at)
            }
            None => {
                if entry.staged_at >= before(began) {
                    events.extend(Event::new(What::Staged, entry, now));
                }
                // Just staged it is pending or waits, and nothing else has happened.
                matches!(entry.state, State::Pending | State::Waiting) && entry.deliveries == 0
                    || matches!(entry.state, State::Dead | State::Done) && entry.at < began
            }
        };
        if !is_same {
            events.extend(Event::new(What::of(entry.state), entry, now));
        }
        events
    }

    /// Everything in sight: what waits and runs, and what has ended since then.
    async fn found(&mut self, inspect: &dyn Inspect, since: SystemTime) -> Result<Vec<Entry>, Error> {
        if let Some(id) = self.id {
            let mut found = inspect.find(&Clue::Id(id), MOST).await?;
            found.retain(|entry| self.queue.as_ref().is_none_or(|queue| queue == entry.message.queue()));
            return Ok(found);
        }
        let mut found = Vec::new();
        for queue in self.queues() {
            for room in [Room::Ready, Room::Later] {
                let page = inspect.list(&self.request(&queue, room, None)).await?;
                if page.next.is_some() {
                    self.full.insert(queue.clone());
                }
                found.extend(page.entries);
            }
            for room in [Room::Dead, Room::Archive] {
                let mut after = Some(Cursor { at: Some(since), place: 0 });
                for _ in 0..PAGES {
                    let page = inspect.list(&self.request(&queue, room, after)).await?;
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

    fn request(&self, queue: &QueueName, room: Room, after: Option<Cursor>) -> ListRequest {
        let request = ListRequest::new(queue.clone(), room).with_limit(MOST).after(after);
        ListRequest { key: self.key.clone(), ..request }
    }

    /// The store's clock; and the queues that there are.
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

/// How far back something may have been written that was committed at this moment.
fn before(moment: SystemTime) -> SystemTime {
    moment.checked_sub(LATE).unwrap_or(SystemTime::UNIX_EPOCH)
}

fn name(entry: &Entry) -> Option<Name> {
    Some((entry.message.queue().clone(), entry.message.id()?))
}
