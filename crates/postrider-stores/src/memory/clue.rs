//! What is known of a message, wherever that is.

use super::MemoryStore;
use postrider_core::{
    Message, QueueName,
    inspect::{Clue, Entry, LivingTimer, Room},
};

const ROOMS: [Room; 4] = [Room::Ready, Room::Later, Room::Dead, Room::Archive];

impl MemoryStore {
    pub(super) fn found(&self, clue: &Clue, limit: usize) -> Vec<Entry> {
        let (rooms, now) = self.enter();
        let mut found: Vec<_> = rooms
            .queues
            .values()
            .flat_map(|queue| ROOMS.into_iter().flat_map(move |room| queue.sights(room, now)))
            .filter(|sight| leads_to(clue, &sight.row.message))
            .collect();
        found.sort_by_key(|sight| (sight.row.staged_at, sight.row.place));
        found.truncate(limit);
        found.into_iter().map(super::inspect::Sight::into_entry).collect()
    }

    pub(super) fn living_timers(&self, of: Option<&QueueName>, limit: usize) -> Vec<LivingTimer> {
        let (rooms, now) = self.enter();
        let mut timers = Vec::new();
        for (name, queue) in rooms.queues.iter().filter(|(name, _)| of.is_none_or(|of| of == *name)) {
            let start = timers.len();
            timers.extend(queue.timers().filter_map(|(timer, id)| {
                let sight = queue.find(id, now)?;
                Some(LivingTimer {
                    queue: name.clone(),
                    name: timer.clone(),
                    id,
                    due_at: sight.at,
                    event_type: sight.row.message.event_type().cloned(),
                    state: sight.state,
                })
            }));
            timers[start..].sort_by(|one, other| one.name.cmp(&other.name));
        }
        timers.truncate(limit);
        timers
    }
}

fn leads_to(clue: &Clue, message: &Message) -> bool {
    match clue {
        Clue::Id(id) => message.id() == Some(*id),
        Clue::Subject(tenant, subject) => {
            message.subject() == Some(subject) && message.tenant() == tenant.as_ref()
        }
        Clue::Key(key) => message.key() == Some(key),
        Clue::Trace(trace) => {
            let traceparent = message.trail().traceparent.as_deref();
            traceparent.and_then(|text| text.split('-').nth(1)) == Some(trace.as_str())
        }
    }
}
