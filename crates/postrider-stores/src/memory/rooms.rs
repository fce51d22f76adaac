//! Everything that the mutex guards.

use super::{draft::Draft, follow::Lock, inbox::Marks, ledger::Ledger, queue::Queue, row::Row};
use postrider_core::{
    MessageId, Parked, PruneRequest, Pruned, QueueName, ScheduleName, inspect::AuditRow, saga::Entry,
};
use std::{
    collections::{BTreeMap, HashMap},
    time::SystemTime,
};
use uuid::Uuid;

#[derive(Debug, Default)]
pub(super) struct Rooms {
    pub(super) queues: BTreeMap<QueueName, Queue>,
    pub(super) line: Line,
    pub(super) audit: Vec<AuditRow>,
    /// Until when each worker sleeps on a queue.
    pub(super) sleepers: HashMap<(QueueName, Uuid), SystemTime>,
    /// The last tick of each schedule.
    pub(super) schedules: HashMap<ScheduleName, SystemTime>,
    /// What has been received.
    pub(super) marks: Marks,
    /// What follow-ups have locked, and in which transaction.
    pub(super) locks: HashMap<Lock, Uuid>,
    /// The logs of sagas.
    pub(super) sagas: HashMap<MessageId, Vec<Entry>>,
    pub(super) ledger: Ledger,
    pub(super) dead_letters_broken: bool,
}

/// The sequence that places are drawn from. As in a database, a place that was drawn in vain stays empty.
#[derive(Debug, Default)]
pub(super) struct Line {
    last: i64,
}

impl Line {
    pub(super) fn draw(&mut self) -> i64 {
        self.last += 1;
        self.last
    }
}

impl Rooms {
    /// A transaction commits. Answers with the queues that got something to run now while somebody sleeps on them.
    pub(super) fn commit(&mut self, drafts: BTreeMap<QueueName, Draft>, now: SystemTime) -> Vec<QueueName> {
        let mut woken = Vec::new();
        for (name, draft) in drafts {
            let runnable = draft.apply(self.queues.entry(name.clone()).or_default(), now);
            if runnable && self.is_slept_on(&name, now) {
                woken.push(name);
            }
        }
        woken
    }

    /// Messages become dead letters, unless their queues know them.
    pub(super) fn park(&mut self, parked: Vec<Parked>, now: SystemTime) {
        for Parked { message, reason, error, deliveries } in parked {
            let id = message.id().unwrap_or_else(|| MessageId::from_uuid(Uuid::now_v7()));
            let queue = self.queues.entry(message.queue().clone()).or_default();
            if queue.spot(id).is_none() {
                let mut row = Row::new(&message, id, self.line.draw(), now);
                (row.deliveries, row.error) = (deliveries, error);
                queue.bury(row, reason, now);
            }
        }
    }

    fn is_slept_on(&self, queue: &QueueName, now: SystemTime) -> bool {
        self.sleepers.iter().any(|((on, _), until)| on == queue && *until > now)
    }

    pub(super) fn prune(&mut self, request: &PruneRequest, now: SystemTime) -> Pruned {
        let failed_by = request.dead_older_than.and_then(|age| now.checked_sub(age));
        let mut pruned = Pruned::default();
        let mut left = request.limit;
        for queue in self.queues.values_mut() {
            let expired =
                queue.archive.values().filter(|kept| kept.expires_at <= now).map(|kept| kept.row.id);
            for id in expired.take(left).collect::<Vec<_>>() {
                pruned.archived += u64::from(queue.take_archived(id).is_some());
                left -= 1;
            }
            let Some(failed_by) = failed_by else { continue };
            let failed = queue.dead.range(..=(failed_by, i64::MAX)).map(|(_, letter)| letter.row.id);
            for id in failed.take(left).collect::<Vec<MessageId>>() {
                pruned.dead += u64::from(queue.take_dead(id).is_some());
                left -= 1;
            }
        }
        if let Some(made_by) = request.inbox_older_than.and_then(|age| now.checked_sub(age)) {
            let marks = self.marks.prune(request.inbox_of.as_ref(), made_by, left);
            pruned.inbox = marks as u64;
            left -= marks;
        }
        pruned.more = left == 0 && request.limit > 0;
        pruned
    }
}
