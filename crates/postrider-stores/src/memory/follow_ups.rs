//! Counting, listing and erasing follow-ups.

use super::{MemoryStore, queue::Queue, row::Row};
use postrider_core::{
    Error, MessageId, QueueName, SubjectId, TenantId,
    follow_up::{self, ErasureReport, FollowUpFilter, FollowUpRow, FollowUpStatus, StatusCounts},
    inspect::Action,
};
use std::time::SystemTime;

impl MemoryStore {
    pub(super) fn status_counts(&self, queue: &QueueName) -> Result<StatusCounts, Error> {
        let (tables, now) = self.enter();
        let mut counts = StatusCounts::default();
        if let Some(queue) = tables.queues.get(queue) {
            counts.extend(queue.follow_up_rows(now).map(|(_, status, _)| (status, 1)));
        }
        Ok(counts)
    }

    pub(super) fn follow_up_rows(
        &self,
        queue: &QueueName,
        which: FollowUpFilter,
        limit: usize,
    ) -> Result<Vec<FollowUpRow>, Error> {
        let (tables, now) = self.enter();
        let Some(queue) = tables.queues.get(queue) else { return Ok(Vec::new()) };
        let is_selected = |(row, status, _): &(&Row, FollowUpStatus, SystemTime)| match which {
            FollowUpFilter::Abandoned => *status == FollowUpStatus::Abandoned,
            FollowUpFilter::Scheduled => *status == FollowUpStatus::Scheduled,
            FollowUpFilter::Overdue(than) => {
                let age = now.duration_since(row.staged_at).unwrap_or_default();
                *status != FollowUpStatus::Succeeded && age > than
            }
        };
        let mut found: Vec<_> = queue.follow_up_rows(now).filter(is_selected).collect();
        found.sort_by_key(|(row, _, at)| match which {
            FollowUpFilter::Overdue(_) => (row.staged_at, row.position),
            FollowUpFilter::Abandoned | FollowUpFilter::Scheduled => (*at, row.position),
        });
        let follow_up_row = |(row, status, at): (&Row, FollowUpStatus, SystemTime)| FollowUpRow {
            id: row.id,
            message: row.message.clone(),
            status,
            staged_at: row.staged_at,
            at,
            deliveries: row.deliveries,
            error: row.error.clone(),
        };
        Ok(found.into_iter().take(limit).map(follow_up_row).collect())
    }

    pub(super) fn erase_subject(
        &self,
        tenant: Option<&TenantId>,
        subject: &SubjectId,
        action: &Action,
    ) -> Result<ErasureReport, Error> {
        action.check()?;
        let (mut tables, now) = self.enter();
        let mut erased = ErasureReport::default();
        let names: Vec<QueueName> = tables.queues.keys().cloned().collect();
        for name in names {
            let Some(queue) = tables.queues.get_mut(&name) else { continue };
            let removed = queue.erase(tenant, subject, now, &mut erased);
            if !removed.is_empty() {
                tables.write_audit_row(now, action, "erase_subject", &name, &removed, None);
            }
        }
        Ok(erased)
    }
}

impl Queue {
    /// Every row, its status, and the time at which it is due, was abandoned or has succeeded.
    fn follow_up_rows(&self, now: SystemTime) -> impl Iterator<Item = (&Row, FollowUpStatus, SystemTime)> {
        let ready = self.ready.values().map(|row| {
            let status =
                if row.lease.is_some() { FollowUpStatus::InFlight } else { waiting_status(row, true) };
            (row, status, row.due_at)
        });
        let scheduled =
            self.scheduled.values().map(move |row| (row, waiting_status(row, row.due_at <= now), row.due_at));
        let dead =
            self.dead.values().map(|letter| (&letter.row, FollowUpStatus::Abandoned, letter.failed_at));
        let archived = self
            .archive
            .values()
            .map(|archived| (&archived.row, FollowUpStatus::Succeeded, archived.done_at));
        ready.chain(scheduled).chain(dead).chain(archived)
    }

    fn erase(
        &mut self,
        tenant: Option<&TenantId>,
        subject: &SubjectId,
        now: SystemTime,
        erased: &mut ErasureReport,
    ) -> Vec<MessageId> {
        let is_selected =
            |row: &&Row| row.message.subject() == Some(subject) && row.message.tenant() == tenant;
        let waiting = self.ready.values().chain(self.scheduled.values());
        let dead = self.dead.values().map(|letter| &letter.row);
        let open: Vec<(MessageId, bool)> = waiting
            .chain(dead)
            .filter(is_selected)
            .map(|row| (row.id, follow_up::is_one(&row.message)))
            .collect();
        let archived: Vec<MessageId> = self
            .archive
            .values()
            .map(|archived| &archived.row)
            .filter(is_selected)
            .map(|row| row.id)
            .collect();
        let mut removed = Vec::new();
        for (id, is_follow_up) in open {
            if is_follow_up {
                erased.follow_ups += 1;
            } else if self.take_dead(id).is_some() {
                erased.dead += 1;
                removed.push(id);
            } else if self.is_unleased(id, now)
                && !self.locked.contains(&id)
                && self.remove(id, now).is_some()
            {
                erased.waiting += 1;
                removed.push(id);
            } else {
                erased.in_flight += 1;
            }
        }
        for id in archived {
            if self.take_archived(id).is_some() {
                erased.archived += 1;
                removed.push(id);
            }
        }
        removed
    }
}

fn waiting_status(row: &Row, is_due: bool) -> FollowUpStatus {
    match (row.attempts, is_due) {
        (1.., _) => FollowUpStatus::Failed,
        (0, true) => FollowUpStatus::Pending,
        (0, false) => FollowUpStatus::Scheduled,
    }
}
