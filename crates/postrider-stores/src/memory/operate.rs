//! What operators change, each change with its audit row.

use super::{
    lanes::Run,
    queue::Queue,
    rooms::{Line, Rooms},
};
use postrider_core::{
    Error, MessageId, OrderingKey, QueueName,
    inspect::{Action, AuditRow},
};
use std::time::SystemTime;

impl Rooms {
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
            ids.iter().copied().filter(|id| queue.requeue(*id, now, &mut self.line)).collect();
        if !requeued.is_empty() {
            self.note(now, action, "requeue", name, &requeued, None);
        }
        Ok(requeued)
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
            self.note(now, action, "discard", name, &discarded, None);
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
            self.note(now, action, "release_key", name, &[], Some(key));
        }
        Ok(released)
    }

    pub(super) fn note(
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
            queue: queue.clone(),
            ids: ids.to_vec(),
            key: key.cloned(),
        });
    }
}

impl Queue {
    /// Puts a dead letter back: at the tail, or, where order matters, in its old place, so that the key's newer messages
    /// still run after it.
    fn requeue(&mut self, id: MessageId, now: SystemTime, line: &mut Line) -> bool {
        let Some(mut row) = self.take_dead(id) else { return false };
        row.clear();
        row.drop_timer();
        row.due_at = now;
        if !self.is_ordered() {
            row.place = line.draw();
        }
        self.put_ready(row);
        true
    }

    fn discard(&mut self, id: MessageId, now: SystemTime) -> bool {
        if self.is_idle(id, now) && !self.locked.contains(&id) {
            return self.evict(id, now).is_some();
        }
        self.take_dead(id).or_else(|| self.take_archived(id)).is_some()
    }

    /// Lets a blocked key run now.
    fn release(&mut self, key: &OrderingKey, now: SystemTime) -> bool {
        let Some(lane) = self.lanes.get_mut(key).filter(|lane| lane.block(now).is_some()) else {
            return false;
        };
        lane.run = Run::Free;
        if let Some(head) = lane.head().and_then(|place| self.ready.get_mut(&place)) {
            head.due_at = head.due_at.min(now);
        }
        true
    }
}
