//! Where messages wait for a runner, and how lanes keep their order.
//!
//! The messages of a lane are with one runner at a time. When one of them is handed back, its lane is *halted*: what waits behind it
//! is handed back, too, and so is whatever the source had given out before it was told. The halt is lifted by the very message that was
//! handed back first, since what comes after it comes in its order again, by the promise of [`Parcel::lane`](postrider_core::Parcel);
//! or, where that message goes to somebody else, by the first call of [`receive`](postrider_core::Source::receive) that began after the
//! source was told.

use super::mail::Mail;
use postrider_core::{Lane, MessageId};
use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};
use tokio::sync::Notify;

/// Where messages wait.
#[derive(Debug, Default)]
pub(super) struct Hall {
    state: Mutex<State>,
    change: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Those without a lane.
    free: VecDeque<Mail>,
    lanes: HashMap<Lane, Line>,
    /// The lanes that wait for a runner, in turn.
    ready: VecDeque<Lane>,
    waiting: usize,
    halts: u64,
    is_closed: bool,
}

#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<Mail>,
    /// A runner has messages of it.
    is_busy: bool,
    halt: Option<Halt>,
}

#[derive(Debug)]
struct Halt {
    number: u64,
    /// What was handed back first.
    first: Option<MessageId>,
    /// How many answers the source has not been told yet.
    untold: usize,
    /// What calls up to this one bring may be out of order.
    through: u64,
}

impl Halt {
    fn is_over_for(&self, mail: &Mail) -> bool {
        let is_first = self.first.is_some() && self.first == mail.id();
        is_first || (self.untold == 0 && mail.call > self.through)
    }
}

impl Line {
    fn is_idle(&self, call: u64) -> bool {
        let is_halted = self.halt.as_ref().is_some_and(|halt| halt.untold > 0 || call <= halt.through);
        self.waiting.is_empty() && !self.is_busy && !is_halted
    }
}

/// Above so many lanes it is worth to look which are of no use any more.
const MANY_LANES: usize = 10_000;

impl Hall {
    /// Lets messages in, in the order in which they were received. Answers with those that are to be handed back.
    pub(super) fn put(&self, mails: Vec<Mail>) -> Vec<Mail> {
        let mut state = self.lock();
        let state = &mut *state;
        let mut back = Vec::new();
        for mut mail in mails {
            if state.is_closed {
                back.push(mail);
                continue;
            }
            let Some(lane) = mail.lane else {
                state.free.push_back(mail);
                state.waiting += 1;
                continue;
            };
            if state.lanes.len() > MANY_LANES {
                let call = mail.call;
                state.lanes.retain(|_, line| !line.is_idle(call));
            }
            let line = state.lanes.entry(lane).or_default();
            if let Some(halt) = &mut line.halt {
                if !halt.is_over_for(&mail) {
                    halt.untold += 1;
                    mail.halt = halt.number;
                    back.push(mail);
                    continue;
                }
                line.halt = None;
            }
            if line.waiting.is_empty() && !line.is_busy {
                state.ready.push_back(lane);
            }
            line.waiting.push_back(mail);
            state.waiting += 1;
        }
        self.change.notify_waiters();
        back
    }

    /// Waits for work, and takes a fair share of it: as much as there is for each of so many runners, and no more than `most`. Ends when
    /// the hall is closed and empty.
    pub(super) async fn take(&self, runners: usize, most: usize) -> Option<Vec<Mail>> {
        loop {
            let change = self.change.notified();
            {
                let mut state = self.lock();
                if state.waiting > 0 {
                    let share = state.waiting.div_ceil(runners).clamp(1, most);
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

    /// A runner is done with messages of these lanes.
    pub(super) fn end(&self, lanes: impl IntoIterator<Item = Lane>) {
        let mut state = self.lock();
        let state = &mut *state;
        for lane in lanes {
            let Some(line) = state.lanes.get_mut(&lane) else { continue };
            line.is_busy = false;
            if !line.waiting.is_empty() {
                state.ready.push_back(lane);
            } else if line.halt.is_none() {
                state.lanes.remove(&lane);
            }
        }
        self.change.notify_waiters();
    }

    /// A message of a lane is about to be handed back. Answers with those that wait behind it, to be handed back as well.
    pub(super) fn halt(&self, lane: Lane, mail: &mut Mail) -> Vec<Mail> {
        let mut state = self.lock();
        let state = &mut *state;
        let line = state.lanes.entry(lane).or_default();
        let halt = line.halt.get_or_insert_with(|| {
            state.halts += 1;
            Halt { number: state.halts, first: mail.id(), untold: 0, through: 0 }
        });
        let mut behind: Vec<_> = line.waiting.drain(..).collect();
        halt.untold += 1 + behind.len();
        mail.halt = halt.number;
        behind.iter_mut().for_each(|mail| mail.halt = halt.number);
        state.waiting -= behind.len();
        behind
    }

    /// The source was told about a message of a lane that was handed back, while no call after this one had begun.
    pub(super) fn told(&self, lane: Lane, halt: u64, call: u64) {
        let mut state = self.lock();
        let halted = state.lanes.get_mut(&lane).and_then(|line| line.halt.as_mut());
        if let Some(halted) = halted.filter(|halted| halted.number == halt) {
            halted.untold = halted.untold.saturating_sub(1);
            halted.through = halted.through.max(call);
        }
    }

    /// Lets nobody in any more. Answers with those who wait.
    pub(super) fn close(&self) -> Vec<Mail> {
        let mut state = self.lock();
        let state = &mut *state;
        state.is_closed = true;
        state.waiting = 0;
        state.ready.clear();
        let mut left: Vec<_> = state.free.drain(..).collect();
        for line in state.lanes.values_mut() {
            left.extend(line.waiting.drain(..));
        }
        self.change.notify_waiters();
        left
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Lanes and those without one take turns, so that neither waits for ever.
    fn take(&mut self, share: usize) -> Vec<Mail> {
        let mut taken = Vec::new();
        while taken.len() < share {
            let before = taken.len();
            if let Some(mail) = self.free.pop_front() {
                taken.push(mail);
            }
            if taken.len() < share
                && let Some(lane) = self.ready.pop_front()
                && let Some(line) = self.lanes.get_mut(&lane)
            {
                let room = share - taken.len();
                let count = line.waiting.len().min(room);
                taken.extend(line.waiting.drain(..count));
                line.is_busy = true;
            }
            if taken.len() == before {
                break;
            }
        }
        self.waiting -= taken.len();
        taken
    }
}
