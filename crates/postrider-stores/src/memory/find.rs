//! Finding messages in all tables, and listing timers.

use super::MemoryStore;
use postrider_core::{
    Message, QueueName,
    inspect::{ActiveTimer, FindBy, MessageRow, StateFilter},
};

const FILTERS: [StateFilter; 4] =
    [StateFilter::Ready, StateFilter::Scheduled, StateFilter::Dead, StateFilter::Done];

impl MemoryStore {
    pub(super) fn find_rows(&self, find_by: &FindBy, limit: usize) -> Vec<MessageRow> {
        let (tables, now) = self.enter();
        let mut found: Vec<_> = tables
            .queues
            .values()
            .flat_map(|queue| FILTERS.into_iter().flat_map(move |filter| queue.views(filter, now)))
            .filter(|view| matches(find_by, &view.row.message))
            .collect();
        found.sort_by_key(|view| (view.row.staged_at, view.row.position));
        found.truncate(limit);
        found.into_iter().map(super::inspect::RowView::into_entry).collect()
    }

    pub(super) fn active_timers(&self, of: Option<&QueueName>, limit: usize) -> Vec<ActiveTimer> {
        let (tables, now) = self.enter();
        let mut timers = Vec::new();
        for (name, queue) in tables.queues.iter().filter(|(name, _)| of.is_none_or(|of| of == *name)) {
            let start = timers.len();
            timers.extend(queue.timers().filter_map(|(timer, id)| {
                let view = queue.find(id, now)?;
                Some(ActiveTimer {
                    queue: name.clone(),
                    name: timer.clone(),
                    id,
                    due_at: view.at,
                    event_type: view.row.message.event_type().cloned(),
                    state: view.state,
                })
            }));
            timers[start..].sort_by(|one, other| one.name.cmp(&other.name));
        }
        timers.truncate(limit);
        timers
    }
}

fn matches(find_by: &FindBy, message: &Message) -> bool {
    match find_by {
        FindBy::Id(id) => message.id() == Some(*id),
        FindBy::Subject(tenant, subject) => {
            message.subject() == Some(subject) && message.tenant() == tenant.as_ref()
        }
        FindBy::Key(key) => message.key() == Some(key),
        FindBy::Trace(trace) => {
            let traceparent = message.trail().traceparent.as_deref();
            traceparent.and_then(|text| text.split('-').nth(1)) == Some(trace.as_str())
        }
    }
}
