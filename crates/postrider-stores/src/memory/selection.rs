//! Many messages at once.

use super::{MemoryStore, inspect::Sight, queue::Queue};
use postrider_core::{
    Error, Invalid, MessageId, QueueName,
    follow_up::is_one,
    inspect::{Action, Changed, Chunk, Cursor, DeadGroup, Fence, Room, Selected, Selection, error_kind},
};
use std::{cmp::Reverse, collections::HashMap, time::SystemTime};

/// What is done with a chunk.
#[derive(Debug, Clone, Copy)]
pub(super) enum Verb {
    Requeue,
    Discard,
}

impl MemoryStore {
    pub(super) fn tallied(&self, selection: &Selection) -> Selected {
        let (rooms, now) = self.enter();
        let mut selected = Selected { count: 0, follow_ups: 0, fence: Fence { at: now, place: 0 } };
        for sight in
            rooms.queues.get(&selection.queue).into_iter().flat_map(|queue| queue.sights(selection.room, now))
        {
            if !sight.is_in(selection) {
                continue;
            }
            selected.fence.place = selected.fence.place.max(sight.row.place);
            if is_one(&sight.row.message) {
                selected.follow_ups += 1;
            } else {
                selected.count += 1;
            }
        }
        selected
    }

    pub(super) fn change_next(
        &self,
        verb: Verb,
        selection: &Selection,
        chunk: &Chunk,
        action: &Action,
    ) -> Result<Changed, Error> {
        action.check()?;
        if matches!(verb, Verb::Requeue) && !matches!(selection.room, Room::Dead | Room::Archive) {
            return Err(Invalid::rule("room", "only dead letters and what is kept can be put back").into());
        }
        let (mut rooms, now) = self.enter();
        let Some(queue) = rooms.queues.get(&selection.queue) else {
            return Ok(Changed { looked_at: 0, changed: 0, next: None });
        };
        let (ids, next) = queue.next_of(selection, chunk, now);
        let changed = match verb {
            Verb::Requeue if selection.room == Room::Archive => {
                rooms.replay(&selection.queue, &ids, action, now)
            }
            Verb::Requeue => rooms.requeue(&selection.queue, &ids, action, now)?,
            Verb::Discard => rooms.discard(&selection.queue, &ids, action, now)?,
        };
        Ok(Changed { looked_at: ids.len() as u64, changed: changed.len() as u64, next })
    }

    pub(super) fn grouped(&self, of: Option<&QueueName>, limit: usize) -> Vec<DeadGroup> {
        let (rooms, _) = self.enter();
        let mut groups: HashMap<_, DeadGroup> = HashMap::new();
        for (name, queue) in rooms.queues.iter().filter(|(name, _)| of.is_none_or(|of| of == *name)) {
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
    /// The identities of the next messages of a selection, and where they end.
    fn next_of(
        &self,
        selection: &Selection,
        chunk: &Chunk,
        now: SystemTime,
    ) -> (Vec<MessageId>, Option<Cursor>) {
        let by_place = matches!(selection.room, Room::Ready | Room::Dead);
        let order = |sight: &Sight<'_>| (if by_place { None } else { Some(sight.at) }, sight.row.place);
        let after = chunk.after.as_ref().map(|cursor| (cursor.at, cursor.place));
        let mut sights: Vec<_> = self
            .sights(selection.room, now)
            .filter(|sight| sight.is_in(selection) && !is_one(&sight.row.message))
            .filter(|sight| sight.row.place <= chunk.up_to.place)
            .filter(|sight| !is_past(selection.room) || sight.at <= chunk.up_to.at)
            .filter(|sight| after.is_none_or(|after| order(sight) > after))
            .collect();
        sights.sort_by_key(order);
        sights.truncate(chunk.limit);
        let last = sights.last().filter(|_| sights.len() == chunk.limit).map(order);
        let next = last.map(|(at, place)| Cursor { at, place });
        (sights.into_iter().map(|sight| sight.row.id).collect(), next)
    }
}

/// Whether the time of a room is when messages came there.
fn is_past(room: Room) -> bool {
    matches!(room, Room::Dead | Room::Archive)
}

impl Sight<'_> {
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
