//! Changes by operators, each with its audit row.

use super::{
    MemoryStore,
    lanes::LaneStatus,
    queue::Queue,
    row::Row,
    selection::BulkAction,
    tables::{PositionSequence, Tables},
};
use async_trait::async_trait;
use postrider_core::{
    Error, Message, MessageId, OrderingKey, Outbox, Pausable, PauseRecord, QueueName, StageReport, SubjectId,
    TenantId, TimerName,
    follow_up::ErasureReport,
    inspect::{Action, AuditRow, ChangeReport, Chunk, Operate, Selection},
};
use std::time::{Duration, SystemTime};

#[async_trait]
impl Operate for MemoryStore {
    async fn requeue(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
        action: &Action,
    ) -> Result<Vec<MessageId>, Error> {
        let (mut tables, now) = self.enter();
        tables.requeue(queue, ids, action, now)
    }

    async fn discard(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
        action: &Action,
    ) -> Result<Vec<MessageId>, Error> {
        let (mut tables, now) = self.enter();
        tables.discard(queue, ids, action, now)
    }

    async fn release_key(
        &self,
        queue: &QueueName,
        key: &OrderingKey,
        action: &Action,
    ) -> Result<bool, Error> {
        let (mut tables, now) = self.enter();
        tables.release_key(queue, key, action, now)
    }

    async fn pause(&self, what: &Pausable, action: &Action) -> Result<bool, Error> {
        let (mut tables, now) = self.enter();
        tables.pause(what, action, now)
    }

    async fn resume(&self, what: &Pausable, action: &Action) -> Result<bool, Error> {
        let resumed = {
            let (mut tables, now) = self.enter();
            tables.resume(what, action, now)?
        };
        if let Pausable::Queue(queue) = what
            && resumed
        {
            self.shared.signals.send(queue.clone());
        }
        Ok(resumed)
    }

    async fn requeue_next(
        &self,
        selection: &Selection,
        chunk: &Chunk,
        action: &Action,
    ) -> Result<ChangeReport, Error> {
        self.change_next(BulkAction::Requeue, selection, chunk, action)
    }

    async fn discard_next(
        &self,
        selection: &Selection,
        chunk: &Chunk,
        action: &Action,
    ) -> Result<ChangeReport, Error> {
        self.change_next(BulkAction::Discard, selection, chunk, action)
    }

    async fn replay(
        &self,
        queue: &QueueName,
        originals: &[MessageId],
        copies: &[Message],
        action: &Action,
    ) -> Result<StageReport, Error> {
        action.check()?;
        let mut tx = self.begin();
        let staged = self.stage_all(&mut tx, copies).await?;
        tx.commit();
        let (mut tables, now) = self.enter();
        tables.write_audit_row(now, action, "replay", queue, originals, None);
        Ok(staged)
    }

    async fn drop_timer(&self, queue: &QueueName, timer: &TimerName, action: &Action) -> Result<bool, Error> {
        action.check()?;
        let (mut tables, now) = self.enter();
        let Some(of) = tables.queues.get_mut(queue) else { return Ok(false) };
        let Some(id) = of.timer(timer).filter(|id| of.is_unleased(*id, now) && !of.locked.contains(id))
        else {
            return Ok(false);
        };
        of.remove(id, now);
        tables.write_audit_row(
            now,
            action,
            "cancel_timer",
            queue,
            &[id],
            Some(&OrderingKey::stored(timer.as_str())),
        );
        Ok(true)
    }

    async fn prune_audit(&self, age: Duration, limit: usize, action: &Action) -> Result<u64, Error> {
        action.check()?;
        let (mut tables, now) = self.enter();
        Ok(tables.prune_audit(age, limit, action, now))
    }

    async fn erase_subject(
        &self,
        tenant: Option<&TenantId>,
        subject: &SubjectId,
        action: &Action,
    ) -> Result<ErasureReport, Error> {
        Self::erase_subject(self, tenant, subject, action)
    }
}

impl Tables {
    pub(super) fn requeue(
        &mut self,
        name: &QueueName,
        ids: &[MessageId],
        action: &Action,
        now: SystemTime,
    ) -> Result<Vec<MessageId>, Error> {
        action.check()?;
        let Some(queue) = self.queues.get_mut(name) else { return Ok(Vec::new()) };
        let requeued: Vec<_> =
            ids.iter().copied().filter(|id| queue.requeue(*id, now, &mut self.positions)).collect();
        if !requeued.is_empty() {
            self.write_audit_row(now, action, "requeue", name, &requeued, None);
        }
        Ok(requeued)
    }

    /// Requeues archived messages, to be delivered once more.
    pub(super) fn replay(
        &mut self,
        name: &QueueName,
        ids: &[MessageId],
        action: &Action,
        now: SystemTime,
    ) -> Vec<MessageId> {
        let Some(queue) = self.queues.get_mut(name) else { return Vec::new() };
        let mut replayed = Vec::new();
        for id in ids {
            if let Some(row) = queue.take_archived(*id) {
                queue.requeue_row(row, now, &mut self.positions);
                replayed.push(*id);
            }
        }
        if !replayed.is_empty() {
            self.write_audit_row(now, action, "replay", name, &replayed, None);
        }
        replayed
    }

    pub(super) fn discard(
        &mut self,
        name: &QueueName,
        ids: &[MessageId],
        action: &Action,
        now: SystemTime,
    ) -> Result<Vec<MessageId>, Error> {
        action.check()?;
        let Some(queue) = self.queues.get_mut(name) else { return Ok(Vec::new()) };
        let discarded: Vec<_> = ids.iter().copied().filter(|id| queue.discard(*id, now)).collect();
        if !discarded.is_empty() {
            self.write_audit_row(now, action, "discard", name, &discarded, None);
        }
        Ok(discarded)
    }

    pub(super) fn release_key(
        &mut self,
        name: &QueueName,
        key: &OrderingKey,
        action: &Action,
        now: SystemTime,
    ) -> Result<bool, Error> {
        action.check()?;
        let released = self.queues.get_mut(name).is_some_and(|queue| queue.release(key, now));
        if released {
            self.write_audit_row(now, action, "release_key", name, &[], Some(key));
        }
        Ok(released)
    }

    pub(super) fn pause(&mut self, what: &Pausable, action: &Action, now: SystemTime) -> Result<bool, Error> {
        action.check()?;
        if self.is_paused(what) {
            return Ok(false);
        }
        self.paused.push(PauseRecord { what: what.clone(), since: now, action: action.clone() });
        self.write_pause_audit_row("pause", what, action, now);
        Ok(true)
    }

    pub(super) fn resume(
        &mut self,
        what: &Pausable,
        action: &Action,
        now: SystemTime,
    ) -> Result<bool, Error> {
        action.check()?;
        if !self.is_paused(what) {
            return Ok(false);
        }
        self.paused.retain(|paused| paused.what != *what);
        self.write_pause_audit_row("resume", what, action, now);
        Ok(true)
    }

    pub(super) fn is_paused(&self, what: &Pausable) -> bool {
        self.paused.iter().any(|paused| paused.what == *what)
    }

    fn write_pause_audit_row(&mut self, verb: &str, what: &Pausable, action: &Action, at: SystemTime) {
        let (queue, destination) = match what {
            Pausable::Queue(name) => {
                // A queue that does not exist yet is created, as a declaration does.
                self.queues.entry(name.clone()).or_default();
                (Some(name.clone()), None)
            }
            Pausable::Destination(name) => (None, Some(name.clone())),
        };
        let (action, verb) = (action.clone(), verb.to_owned());
        self.audit.push(AuditRow { at, action, verb, queue, destination, ids: Vec::new(), key: None });
    }

    pub(super) fn write_audit_row(
        &mut self,
        at: SystemTime,
        action: &Action,
        verb: &str,
        queue: &QueueName,
        ids: &[MessageId],
        key: Option<&OrderingKey>,
    ) {
        self.audit.push(AuditRow {
            at,
            action: action.clone(),
            verb: verb.to_owned(),
            queue: Some(queue.clone()),
            destination: None,
            ids: ids.to_vec(),
            key: key.cloned(),
        });
    }
}

impl Queue {
    /// Requeues a dead letter: at the tail or, on an ordered queue, at its old position, so that newer messages of the key still run
    /// after it.
    fn requeue(&mut self, id: MessageId, now: SystemTime, positions: &mut PositionSequence) -> bool {
        let Some(row) = self.take_dead(id) else { return false };
        self.requeue_row(row, now, positions);
        true
    }

    fn requeue_row(&mut self, mut row: Row, now: SystemTime, positions: &mut PositionSequence) {
        row.clear();
        row.drop_timer();
        row.due_at = now;
        if !self.is_ordered() {
            row.position = positions.draw();
        }
        self.put_ready(row);
    }

    fn discard(&mut self, id: MessageId, now: SystemTime) -> bool {
        if self.is_unleased(id, now) && !self.locked.contains(&id) {
            return self.remove(id, now).is_some();
        }
        self.take_dead(id).or_else(|| self.take_archived(id)).is_some()
    }

    /// Unblocks a key, so that it may run now.
    fn release(&mut self, key: &OrderingKey, now: SystemTime) -> bool {
        let Some(lane) = self.lanes.get_mut(key).filter(|lane| lane.block(now).is_some()) else {
            return false;
        };
        lane.status = LaneStatus::Free;
        if let Some(head) = lane.head().and_then(|position| self.ready.get_mut(&position)) {
            head.due_at = head.due_at.min(now);
        }
        true
    }
}
