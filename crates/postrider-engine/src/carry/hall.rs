//! Where claimed messages wait for a runner: a bounded hand-off, fair between queues.
//!
//! Each queue has a line. A runner that is free takes from the line that has had least of its share so far, among those that
//! have something waiting and may run more. So nobody waits while there is something to run, and when there is more than can
//! be run, the weights decide. A line that was empty has no claim on the past.

use super::{alarm::Alarm, delivery::Unit};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::Notify;

#[derive(Debug)]
pub(super) struct Hall {
    state: Mutex<State>,
    bell: Notify,
}

#[derive(Debug)]
struct State {
    lines: Vec<Line>,
    is_open: bool,
    /// The share up to which everybody was served.
    served: f64,
}

#[derive(Debug)]
struct Line {
    waiting: VecDeque<Unit>,
    /// Messages that wait.
    queued: usize,
    /// Messages of the units that run.
    taken: usize,
    /// Of those, the ones that run at this moment.
    running: usize,
    concurrency: usize,
    weight: f64,
    /// How much of its share it has had.
    share: f64,
    /// How many messages it may hold.
    room: usize,
    /// Rung when half of the room is free, if the fetcher waits for that.
    fetcher: Arc<Alarm>,
    is_awaited: bool,
}

/// A unit in a runner's hands.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) unit: Unit,
    pub(super) place: Place,
}

/// What a unit takes up while it runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    line: usize,
    len: usize,
    at_once: usize,
}

impl Hall {
    pub(super) fn new(lines: impl IntoIterator<Item = (usize, u32, Arc<Alarm>)>) -> Self {
        let line = |(concurrency, weight, fetcher)| Line {
            waiting: VecDeque::new(),
            queued: 0,
            taken: 0,
            running: 0,
            concurrency,
            weight: f64::from(weight),
            share: 0.0,
            room: 0,
            fetcher,
            is_awaited: false,
        };
        let lines = lines.into_iter().map(line).collect();
        Self { state: Mutex::new(State { lines, is_open: true, served: 0.0 }), bell: Notify::new() }
    }

    /// How many messages a line may still hold, if that is at least half of `room`. Otherwise the fetcher is rung when it is.
    pub(super) fn free(&self, line: usize, room: usize) -> Option<usize> {
        let mut state = self.lock();
        let line = state.lines.get_mut(line)?;
        line.room = room;
        let free = room.saturating_sub(line.queued + line.taken);
        line.is_awaited = free * 2 < room;
        (!line.is_awaited).then_some(free)
    }

    /// Hands over what was claimed. After the hall has closed, gives it back.
    pub(super) fn put(&self, line: usize, units: Vec<Unit>) -> Result<(), Vec<Unit>> {
        let count = units.len();
        {
            let mut state = self.lock();
            if !state.is_open {
                return Err(units);
            }
            let served = state.served;
            let Some(line) = state.lines.get_mut(line) else { return Err(units) };
            if line.waiting.is_empty() && line.running == 0 {
                line.share = line.share.max(served);
            }
            line.queued += units.iter().map(Unit::len).sum::<usize>();
            line.waiting.extend(units);
        }
        for _ in 0..count {
            self.bell.notify_one();
        }
        Ok(())
    }

    /// The next unit to run; `None` when the hall is closed.
    pub(super) async fn next(&self) -> Option<Taken> {
        loop {
            let mut rung = std::pin::pin!(self.bell.notified());
            // Before looking, so that what comes after the look is heard.
            rung.as_mut().enable();
            {
                let mut state = self.lock();
                if !state.is_open {
                    return None;
                }
                if let Some(taken) = state.take() {
                    return Some(taken);
                }
            }
            rung.await;
        }
    }

    /// A unit has run. Answers whether nothing else waits or runs.
    pub(super) fn finish(&self, Place { line, len, at_once }: Place) -> bool {
        let (is_idle, may_run_more) = {
            let mut state = self.lock();
            let mut may_run_more = false;
            if let Some(line) = state.lines.get_mut(line) {
                let was_full = !line.has_a_place();
                line.taken -= len;
                line.running -= at_once;
                may_run_more = was_full && line.has_a_place();
                line.ring();
            }
            let is_idle = state.lines.iter().all(|line| line.queued + line.taken == 0);
            (is_idle, may_run_more)
        };
        // Others may be waiting because this line was at its limit.
        if may_run_more {
            self.bell.notify_one();
        }
        is_idle
    }

    /// Closes the hall, and answers with everything that nobody has begun.
    pub(super) fn close(&self) -> Vec<Unit> {
        let mut left = Vec::new();
        {
            let mut state = self.lock();
            state.is_open = false;
            for line in &mut state.lines {
                left.extend(line.waiting.drain(..));
                line.queued = 0;
            }
        }
        self.bell.notify_waiters();
        left
    }

    /// Whether what is in a runner's hands is to be cut short.
    pub(super) fn is_closed(&self) -> bool {
        !self.lock().is_open
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take(&mut self) -> Option<Taken> {
        let candidates = self.lines.iter().enumerate();
        let candidates = candidates.filter(|(_, line)| line.has_a_place());
        let (index, _) = candidates.min_by(|(_, one), (_, other)| one.share.total_cmp(&other.share))?;
        let line = self.lines.get_mut(index)?;
        let unit = line.waiting.pop_front()?;
        let (len, at_once) = (unit.len(), unit.at_once());
        self.served = line.share;
        line.share += len as f64 / line.weight;
        line.queued -= len;
        line.taken += len;
        line.running += at_once;
        Some(Taken { unit, place: Place { line: index, len, at_once } })
    }
}

impl Line {
    /// Whether something waits that may run now.
    fn has_a_place(&self) -> bool {
        self.waiting.front().is_some_and(|next| self.running + next.at_once() <= self.concurrency)
    }

    fn ring(&mut self) {
        let free = self.room.saturating_sub(self.queued + self.taken);
        if self.is_awaited && free * 2 >= self.room {
            self.is_awaited = false;
            self.fetcher.ring();
        }
    }
}
