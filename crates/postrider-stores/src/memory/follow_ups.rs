//! What those see and do who look after follow-ups.

use super::{MemoryStore, queue::Queue, row::Row};
use async_trait::async_trait;
use postrider_core::{
    Error, FollowUps, MessageId, QueueName, SubjectId, TenantId,
    follow_up::{self, Docket, Erased, Status, StatusCounts, Which},
    inspect::Action,
};
use std::time::SystemTime;

#[async_trait]
impl FollowUps for MemoryStore {
    async fn status_counts(&self, queue: &QueueName) -> Result<StatusCounts, Error> {
        let (rooms, now) = self.enter();
        let mut counts = StatusCounts::default();
        if let Some(queue) = rooms.queues.get(queue) {
            counts.extend(queue.dockets(now).map(|(_, status, _)| (status, 1)));
        }
        Ok(counts)
    }

    async fn dockets(&self, queue: &QueueName, which: Which, limit: usize) -> Result<Vec<Docket>, Error> {
        let (rooms, now) = self.enter();
        let Some(queue) = rooms.queues.get(queue) else { return Ok(Vec::new()) };
        let is_meant = |(row, status, _): &(&Row, Status, SystemTime)| match which {
            Which::Abandoned => *status == Status::Abandoned,
            Which::Scheduled => *status == Status::Scheduled,
            Which::Overdue(than) => {
                let age = now.duration_since(row.staged_at).unwrap_or_default();
                *status != Status::Succeeded && age > than
            }
        };
        let mut found: Vec<_> = queue.dockets(now).filter(is_meant).collect();
        found.sort_by_key(|(row, _, at)| match which {
            Which::Overdue(_) => (row.staged_at, row.place),
            Which::Abandoned | Which::Scheduled => (*at, row.place),
        });
        let docket = |(row, status, at): (&Row, Status, SystemTime)| Docket {
            id: row.id,
            message: row.message.clone(),
            status,
            staged_at: row.staged_at,
            at,
            deliveries: row.deliveries,
            error: row.error.clone(),
        };
        Ok(found.into_iter().take(limit).map(docket).collect())
    }

    async fn erase_subject(
        &self,
        tenant: Option<&TenantId>,
        subject: &SubjectId,
        action: &Action,
    ) -> Result<Erased, Error> {
        action.check()?;
        let (mut rooms, now) = self.enter();
        let mut erased = Erased::default();
        let names: Vec<QueueName> = rooms.queues.keys().cloned().collect();
        for name in names {
            let Some(queue) = rooms.queues.get_mut(&name) else { continue };
            let gone = queue.erase(tenant, subject, now, &mut erased);
            if !gone.is_empty() {
                rooms.note(now, action, "erase_subject", &name, &gone, None);
            }
        }
        Ok(erased)
    }
}

impl Queue {
    /// Every row, its status, and when it is due, was given up or has succeeded.
    fn dockets(&self, now: SystemTime) -> impl Iterator<Item = (&Row, Status, SystemTime)> {
        let ready = self.ready.values().map(|row| {
            let status = if row.held.is_some() { Status::InFlight } else { waiting_status(row, true) };
            (row, status, row.due_at)
        });
        let later =
            self.later.values().map(move |row| (row, waiting_status(row, row.due_at <= now), row.due_at));
        let dead = self.dead.values().map(|letter| (&letter.row, Status::Abandoned, letter.failed_at));
        let kept = self.archive.values().map(|kept| (&kept.row, Status::Succeeded, kept.done_at));
        ready.chain(later).chain(dead).chain(kept)
    }

    fn erase(
        &mut self,
        tenant: Option<&TenantId>,
        subject: &SubjectId,
        now: SystemTime,
        erased: &mut Erased,
    ) -> Vec<MessageId> {
        let is_meant = |row: &&Row| row.message.subject() == Some(subject) && row.message.tenant() == tenant;
        let waiting = self.ready.values().chain(self.later.values());
        let dead = self.dead.values().map(|letter| &letter.row);
        let open: Vec<(MessageId, bool)> = waiting
            .chain(dead)
            .filter(is_meant)
            .map(|row| (row.id, follow_up::is_one(&row.message)))
            .collect();
        let kept: Vec<MessageId> =
            self.archive.values().map(|kept| &kept.row).filter(is_meant).map(|row| row.id).collect();
        let mut gone = Vec::new();
        for (id, is_follow_up) in open {
            if is_follow_up {
                erased.follow_ups += 1;
            } else if self.take_dead(id).is_some() {
                erased.dead += 1;
                gone.push(id);
            } else if self.is_idle(id, now) && !self.locked.contains(&id) && self.evict(id, now).is_some() {
                erased.waiting += 1;
                gone.push(id);
            } else {
                erased.in_hand += 1;
            }
        }
        for id in kept {
            if self.take_archived(id).is_some() {
                erased.archived += 1;
                gone.push(id);
            }
        }
        gone
    }
}

fn waiting_status(row: &Row, is_due: bool) -> Status {
    match (row.attempts, is_due) {
        (1.., _) => Status::Failed,
        (0, true) => Status::Pending,
        (0, false) => Status::Scheduled,
    }
}
