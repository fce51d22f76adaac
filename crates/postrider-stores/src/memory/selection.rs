//! Bulk operations.

use super::{MemoryStore, inspect::RowView, queue::Queue};
use postrider_core::{
    Error, Invalid, MessageId, QueueName,
    follow_up::is_one,
    inspect::{
        Action, ChangeReport, Chunk, Cursor, DeadGroup, Fence, Selection, SelectionSummary, StateFilter,
        error_kind,
    },
};
use std::{cmp::Reverse, collections::HashMap, time::SystemTime};

/// The change to a chunk.
#[derive(Debug, Clone, Copy)]
pub(super) enum BulkAction {
    Requeue,
    Discard,
}

impl MemoryStore {
    pub(super) fn summarize(&self, selection: &Selection) -> SelectionSummary {
        let (tables, now) = self.enter();
        let mut selected =
            SelectionSummary { count: 0, follow_ups: 0, fence: Fence { at: now, position: 0 } };
        for view in tables
            .queues
            .get(&selection.queue)
            .into_iter()
            .flat_map(|queue| queue.views(selection.state, now))
        {
            if !view.is_in(selection) {
                continue;
            }
            selected.fence.position = selected.fence.position.max(view.row.position);
            if is_one(&view.row.message) {
                selected.follow_ups += 1;
            } else {
                selected.count += 1;
            }
        }
        selected
    }

    pub(super) fn change_next(
        &self,
        verb: BulkAction,
        selection: &Selection,
        chunk: &Chunk,
        action: &Action,
    ) -> Result<ChangeReport, Error> {
        action.check()?;
        if matches!(verb, BulkAction::Requeue)
            && !matches!(selection.state, StateFilter::Dead | StateFilter::Done)
        {
            return Err(
                Invalid::rule("state", "only dead letters and archived messages can be requeued").into()
            );
        }
        let (mut tables, now) = self.enter();
        let Some(queue) = tables.queues.get(&selection.queue) else {
            return Ok(ChangeReport { looked_at: 0, changed: 0, next: None });
        };
        let (ids, next) = queue.next_of(selection, chunk, now);
        let changed = match verb {
            BulkAction::Requeue if selection.state == StateFilter::Done => {
                tables.replay(&selection.queue, &ids, action, now)
            }
            BulkAction::Requeue => tables.requeue(&selection.queue, &ids, action, now)?,
            BulkAction::Discard => tables.discard(&selection.queue, &ids, action, now)?,
        };
        Ok(ChangeReport { looked_at: ids.len() as u64, changed: changed.len() as u64, next })
    }

    pub(super) fn dead_groups_of(&self, of: Option<&QueueName>, limit: usize) -> Vec<DeadGroup> {
        let (tables, _) = self.enter();
        let mut groups: HashMap<_, DeadGroup> = HashMap::new();
        for (name, queue) in tables.queues.iter().filter(|(name, _)| of.is_none_or(|of| of == *name)) {
            for letter in queue.dead.values() {
                let error = letter.row.error.as_deref().map(|error| error_kind(error).to_owned());
                let (reason, at) = (Some(letter.reason), letter.failed_at);
                let group = groups.entry((name, letter.reason, error.clone())).or_insert(DeadGroup {
                    queue: name.clone(),
                    reason,
                    error,
                    count: 0,
                    oldest: at,
                    newest: at,
                });
                group.count += 1;
                group.oldest = group.oldest.min(at);
                group.newest = group.newest.max(at);
            }
        }
        let mut groups: Vec<_> = groups.into_values().collect();
        groups.sort_by(|one, other| {
            let key = |group: &DeadGroup| (Reverse(group.count), group.queue.clone(), group.error.clone());
            key(one).cmp(&key(other))
        });
        groups.truncate(limit);
        groups
    }
}

impl Queue {
    /// The ids of the next messages of a selection, and the cursor after them.
    fn next_of(
        &self,
        selection: &Selection,
        chunk: &Chunk,
        now: SystemTime,
    ) -> (Vec<MessageId>, Option<Cursor>) {
        let by_position = matches!(selection.state, StateFilter::Ready | StateFilter::Dead);
        let order = |view: &RowView<'_>| (if by_position { None } else { Some(view.at) }, view.row.position);
        let after = chunk.after.as_ref().map(|cursor| (cursor.at, cursor.position));
        let mut views: Vec<_> = self
            .views(selection.state, now)
            .filter(|view| view.is_in(selection) && !is_one(&view.row.message))
            .filter(|view| view.row.position <= chunk.up_to.position)
            .filter(|view| !is_past(selection.state) || view.at <= chunk.up_to.at)
            .filter(|view| after.is_none_or(|after| order(view) > after))
            .collect();
        views.sort_by_key(order);
        views.truncate(chunk.limit);
        let last = views.last().filter(|_| views.len() == chunk.limit).map(order);
        let next = last.map(|(at, position)| Cursor { at, position });
        (views.into_iter().map(|view| view.row.id).collect(), next)
    }
}

/// Whether the time of a message is that of its arrival in the table.
fn is_past(filter: StateFilter) -> bool {
    matches!(filter, StateFilter::Dead | StateFilter::Done)
}

impl RowView<'_> {
    fn is_in(&self, selection: &Selection) -> bool {
        let message = &self.row.message;
        selection.key.as_ref().is_none_or(|key| self.row.lane == *key)
            && selection.event_type.as_ref().is_none_or(|wanted| message.event_type() == Some(wanted))
            && selection.reason.is_none_or(|reason| self.reason == Some(reason))
            && selection.error.as_ref().is_none_or(|wanted| self.failed_with(wanted))
            && selection.since.is_none_or(|since| self.at >= since)
            && selection.until.is_none_or(|until| self.at <= until)
    }
}
