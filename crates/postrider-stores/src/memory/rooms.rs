//! Everything that the mutex guards.

use super::{draft::Draft, follow::Lock, inbox::Marks, ledger::Ledger, queue::Queue, row::Row};
use postrider_core::{
    MessageId, Parked, Paused, PruneRequest, Pruned, QueueName, ScheduleName,
    inspect::{Action, AuditRow, Prunable},
    saga::Entry,
};
use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, SystemTime},
};
use uuid::Uuid;

#[derive(Debug, Default)]
pub(super) struct Rooms {
    pub(super) queues: BTreeMap<QueueName, Queue>,
    pub(super) line: Line,
    pub(super) audit: Vec<AuditRow>,
    /// Longest first.
    pub(super) paused: Vec<Paused>,
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

    /// What pruning would remove now.
    pub(super) fn prunable(
        &self,
        request: &PruneRequest,
        audit_older_than: Option<Duration>,
        now: SystemTime,
    ) -> Prunable {
        let by = |age: Option<Duration>| age.and_then(|age| now.checked_sub(age));
        let mut prunable = Prunable::default();
        for queue in self.queues.values() {
            prunable.archived += queue.archive.values().filter(|kept| kept.expires_at <= now).count() as u64;
            if let Some(by) = by(request.dead_older_than) {
                prunable.dead += queue.dead.range(..=(by, i64::MAX)).count() as u64;
            }
        }
        if let Some(by) = by(request.inbox_older_than) {
            prunable.inbox = self.marks.older(request.inbox_of.as_ref(), by) as u64;
        }
        if let Some(by) = by(audit_older_than) {
            prunable.audit = self.audit.iter().filter(|row| row.at <= by).count() as u64;
        }
        prunable
    }

    /// Removes old rows of what operators did.
    pub(super) fn prune_audit(
        &mut self,
        age: Duration,
        limit: usize,
        action: &Action,
        now: SystemTime,
    ) -> u64 {
        let Some(by) = now.checked_sub(age) else { return 0 };
        let old = self.audit.iter().take(limit).take_while(|row| row.at <= by).count();
        self.audit.drain(..old);
        if old > 0 {
            let (action, verb) = (action.clone(), "prune_audit".to_owned());
            self.audit.push(AuditRow {
                at: now,
                action,
                verb,
                queue: None,
                destination: None,
                ids: Vec::new(),
                key: None,
            });
        }
        old as u64
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
