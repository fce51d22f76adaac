//! The dispatcher: received messages wait here for a processor task, and lanes keep their order.
//!
//! One processor task at a time has the messages of a lane. When one of them is nacked, its lane is *halted*: the messages that
//! wait behind it are nacked, too, and so are those that the source delivered before it got the nack. The halt is lifted by the
//! message that was nacked first, since the messages after it arrive in order again, by the promise of
//! [`ReceivedMessage::lane`](postrider_core::ReceivedMessage); or, when that message goes to another consumer, by the first
//! call of [`receive`](postrider_core::Source::receive) that began after the source got the nack.

use super::in_flight::InFlightMessage;
use postrider_core::{LaneId, MessageId};
use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};
use tokio::sync::Notify;

/// Messages that wait for a processor task.
#[derive(Debug, Default)]
pub(super) struct Dispatcher {
    state: Mutex<State>,
    change: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Messages without a lane.
    unlaned: VecDeque<InFlightMessage>,
    lanes: HashMap<LaneId, LaneQueue>,
    /// Lanes that wait for a processor task, in turn.
    ready: VecDeque<LaneId>,
    waiting: usize,
    halts: u64,
    is_closed: bool,
}

#[derive(Debug, Default)]
struct LaneQueue {
    waiting: VecDeque<InFlightMessage>,
    /// A processor task has messages of this lane.
    is_busy: bool,
    halt: Option<Halt>,
}

#[derive(Debug)]
struct Halt {
    number: u64,
    /// The message that was nacked first.
    first: Option<MessageId>,
    /// Nacks that the source has not got yet.
    pending_nacks: usize,
    /// Messages of receive calls up to this one may be out of order.
    last_call: u64,
}

impl Halt {
    fn is_over_for(&self, message: &InFlightMessage) -> bool {
        let is_first = self.first.is_some() && self.first == message.id();
        is_first || (self.pending_nacks == 0 && message.call > self.last_call)
    }
}

impl LaneQueue {
    fn is_idle(&self, call: u64) -> bool {
        let is_halted =
            self.halt.as_ref().is_some_and(|halt| halt.pending_nacks > 0 || call <= halt.last_call);
        self.waiting.is_empty() && !self.is_busy && !is_halted
    }
}

/// Above this many lanes, idle ones are removed.
const PRUNE_LANES_ABOVE: usize = 10_000;

impl Dispatcher {
    /// Enqueues messages in the order in which they were received. Returns those that must be nacked.
    pub(super) fn enqueue(&self, messages: Vec<InFlightMessage>) -> Vec<InFlightMessage> {
        let mut state = self.lock();
        let state = &mut *state;
        let mut to_nack = Vec::new();
        for mut message in messages {
            if state.is_closed {
                to_nack.push(message);
                continue;
            }
            let Some(lane) = message.lane else {
                state.unlaned.push_back(message);
                state.waiting += 1;
                continue;
            };
            if state.lanes.len() > PRUNE_LANES_ABOVE {
                let call = message.call;
                state.lanes.retain(|_, lane_queue| !lane_queue.is_idle(call));
            }
            let lane_queue = state.lanes.entry(lane).or_default();
            if let Some(halt) = &mut lane_queue.halt {
                if !halt.is_over_for(&message) {
                    halt.pending_nacks += 1;
                    message.halt = halt.number;
                    to_nack.push(message);
                    continue;
                }
                lane_queue.halt = None;
            }
            if lane_queue.waiting.is_empty() && !lane_queue.is_busy {
                state.ready.push_back(lane);
            }
            lane_queue.waiting.push_back(message);
            state.waiting += 1;
        }
        self.change.notify_waiters();
        to_nack
    }

    /// Waits for messages and takes a fair share: the waiting messages divided by the number of tasks, at most `max`.
    /// Returns `None` when the dispatcher is closed and empty.
    pub(super) async fn take(&self, tasks: usize, max: usize) -> Option<Vec<InFlightMessage>> {
        loop {
            let change = self.change.notified();
            {
                let mut state = self.lock();
                if state.waiting > 0 {
                    let share = state.waiting.div_ceil(tasks).clamp(1, max);
                    let taken = state.take(share);
                    if !taken.is_empty() {
                        return Some(taken);
                    }
                }
                if state.is_closed {
                    return None;
                }
            }
            change.await;
        }
    }

    /// Whether messages wait.
    pub(super) fn has_waiting(&self) -> bool {
        self.lock().waiting > 0
    }

    /// A task has finished the messages of these lanes.
    pub(super) fn end(&self, lanes: impl IntoIterator<Item = LaneId>) {
        let mut state = self.lock();
        let state = &mut *state;
        for lane in lanes {
            let Some(lane_queue) = state.lanes.get_mut(&lane) else { continue };
            lane_queue.is_busy = false;
            if !lane_queue.waiting.is_empty() {
                state.ready.push_back(lane);
            } else if lane_queue.halt.is_none() {
                state.lanes.remove(&lane);
            }
        }
        self.change.notify_waiters();
    }

    /// A message of a lane is about to be nacked. Returns the messages that wait behind it, which must be nacked as well.
    pub(super) fn halt(&self, lane: LaneId, message: &mut InFlightMessage) -> Vec<InFlightMessage> {
        let mut state = self.lock();
        let state = &mut *state;
        let lane_queue = state.lanes.entry(lane).or_default();
        let halt = lane_queue.halt.get_or_insert_with(|| {
            state.halts += 1;
            Halt { number: state.halts, first: message.id(), pending_nacks: 0, last_call: 0 }
        });
        let mut behind: Vec<_> = lane_queue.waiting.drain(..).collect();
        halt.pending_nacks += 1 + behind.len();
        message.halt = halt.number;
        behind.iter_mut().for_each(|message| message.halt = halt.number);
        state.waiting -= behind.len();
        behind
    }

    /// The source got the nack of a message of a halted lane; `call` is the last receive call that had begun by then.
    pub(super) fn nack_sent(&self, lane: LaneId, halt: u64, call: u64) {
        let mut state = self.lock();
        let halted = state.lanes.get_mut(&lane).and_then(|lane_queue| lane_queue.halt.as_mut());
        if let Some(halted) = halted.filter(|halted| halted.number == halt) {
            halted.pending_nacks = halted.pending_nacks.saturating_sub(1);
            halted.last_call = halted.last_call.max(call);
        }
    }

    /// Closes the dispatcher and returns the messages that wait.
    pub(super) fn close(&self) -> Vec<InFlightMessage> {
        let mut state = self.lock();
        let state = &mut *state;
        state.is_closed = true;
        state.waiting = 0;
        state.ready.clear();
        let mut left: Vec<_> = state.unlaned.drain(..).collect();
        for lane_queue in state.lanes.values_mut() {
            left.extend(lane_queue.waiting.drain(..));
        }
        self.change.notify_waiters();
        left
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Lanes and messages without a lane take turns, so that neither starves.
    fn take(&mut self, share: usize) -> Vec<InFlightMessage> {
        let mut taken = Vec::new();
        while taken.len() < share {
            let before = taken.len();
            if let Some(message) = self.unlaned.pop_front() {
                taken.push(message);
            }
            if taken.len() < share
                && let Some(lane) = self.ready.pop_front()
                && let Some(lane_queue) = self.lanes.get_mut(&lane)
            {
                let remaining = share - taken.len();
                let count = lane_queue.waiting.len().min(remaining);
                taken.extend(lane_queue.waiting.drain(..count));
                lane_queue.is_busy = true;
            }
            if taken.len() == before {
                break;
            }
        }
        self.waiting -= taken.len();
        taken
    }
}
