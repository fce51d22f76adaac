//! The tables: everything that the mutex guards.

use super::{
    changes::QueueChanges, follow_up_store::Lock, inbox::DeduplicationRecords, ledger::Ledger, queue::Queue,
    row::Row,
};
use postrider_core::{
    DeadLetter, MessageId, PauseRecord, PruneReport, PruneRequest, QueueName, ScheduleName,
    inspect::{Action, AuditRow, Prunable},
    saga::LogEntry,
};
use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, SystemTime},
};
use uuid::Uuid;

#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) queues: BTreeMap<QueueName, Queue>,
    pub(super) positions: PositionSequence,
    pub(super) audit: Vec<AuditRow>,
    /// The oldest pause first.
    pub(super) paused: Vec<PauseRecord>,
    /// The idle workers of each queue, and until when they are registered.
    pub(super) idle_workers: HashMap<(QueueName, Uuid), SystemTime>,
    /// The last tick of each schedule.
    pub(super) schedules: HashMap<ScheduleName, SystemTime>,
    /// The deduplication records.
    pub(super) inbox: DeduplicationRecords,
    /// The locks of follow-ups and sagas, each with the transaction that holds it.
    pub(super) locks: HashMap<Lock, Uuid>,
    /// The logs of sagas.
    pub(super) sagas: HashMap<MessageId, Vec<LogEntry>>,
    pub(super) ledger: Ledger,
    pub(super) dead_letters_broken: bool,
}

/// The sequence of positions. As in a database, a rollback leaves a gap.
#[derive(Debug, Default)]
pub(super) struct PositionSequence {
    last: i64,
}

impl PositionSequence {
    pub(super) fn draw(&mut self) -> i64 {
        self.last += 1;
        self.last
    }
}

impl Tables {
    /// Commits the changes of a transaction. Returns the queues that have new claimable messages and idle workers.
    pub(super) fn commit(
        &mut self,
        changes: BTreeMap<QueueName, QueueChanges>,
        now: SystemTime,
    ) -> Vec<QueueName> {
        let mut woken = Vec::new();
        for (name, queue_changes) in changes {
            let runnable = queue_changes.apply(self.queues.entry(name.clone()).or_default(), now);
            if runnable && self.has_idle_workers(&name, now) {
                woken.push(name);
            }
        }
        woken
    }

    /// Stores messages as dead letters, unless their queues have a message of the same id.
    pub(super) fn dead_letter(&mut self, dead_letters: Vec<DeadLetter>, now: SystemTime) {
        for DeadLetter { message, reason, error, deliveries } in dead_letters {
            let id = message.id().unwrap_or_else(|| MessageId::from_uuid(Uuid::now_v7()));
            let queue = self.queues.entry(message.queue().clone()).or_default();
            if queue.location(id).is_none() {
                let mut row = Row::new(&message, id, self.positions.draw(), now);
                (row.deliveries, row.error) = (deliveries, error);
                queue.put_dead(row, reason, now);
            }
        }
    }

    fn has_idle_workers(&self, queue: &QueueName, now: SystemTime) -> bool {
        self.idle_workers.iter().any(|((on, _), until)| on == queue && *until > now)
    }

    /// The numbers of rows that pruning would remove now.
    pub(super) fn prunable(
        &self,
        request: &PruneRequest,
        audit_older_than: Option<Duration>,
        now: SystemTime,
    ) -> Prunable {
        let by = |age: Option<Duration>| age.and_then(|age| now.checked_sub(age));
        let mut prunable = Prunable::default();
        for queue in self.queues.values() {
            prunable.archived +=
                queue.archive.values().filter(|archived| archived.expires_at <= now).count() as u64;
            if let Some(by) = by(request.dead_older_than) {
                prunable.dead += queue.dead.range(..=(by, i64::MAX)).count() as u64;
            }
        }
        if let Some(by) = by(request.inbox_older_than) {
            prunable.inbox = self.inbox.count_older(request.inbox_of.as_ref(), by) as u64;
        }
        if let Some(by) = by(audit_older_than) {
            prunable.audit = self.audit.iter().filter(|row| row.at <= by).count() as u64;
        }
        prunable
    }

    /// Removes old audit rows.
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

    pub(super) fn prune(&mut self, request: &PruneRequest, now: SystemTime) -> PruneReport {
        let failed_by = request.dead_older_than.and_then(|age| now.checked_sub(age));
        let mut pruned = PruneReport::default();
        let mut left = request.limit;
        for queue in self.queues.values_mut() {
            let expired = queue
                .archive
                .values()
                .filter(|archived| archived.expires_at <= now)
                .map(|archived| archived.row.id);
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
            let removed = self.inbox.prune(request.inbox_of.as_ref(), made_by, left);
            pruned.inbox = removed as u64;
            left -= removed;
        }
        pruned.more = left == 0 && request.limit > 0;
        pruned
    }
}
