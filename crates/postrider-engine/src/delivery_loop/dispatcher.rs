//! The dispatcher: claimed messages wait here for an executor. It is bounded, and fair between queues.
//!
//! Each queue has a share. A free executor takes from the queue that has received least of its share, among those that have
//! messages waiting and concurrency left. So no executor waits while there is something to run, and under overload the weights
//! decide. A queue that was empty gains no credit for that time.
//!
//! A message whose leases expired more than once may be killing its processes, or may only have been in flight when another one did. Such a
//! **suspect** runs in isolation: nothing else of its queue runs beside it, and no other suspect of any queue. If the process dies, that
//! counts against the suspect and against nothing that merely waited. Suspects that were isolated least often run first, so the innocent
//! ones are delivered before the guilty one has its next turn. Between two suspects as many other units run as were waiting, so that
//! neither holds up the other.

use super::{delivery::WorkUnit, wakeup::Wakeup};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::Notify;

#[derive(Debug)]
pub(super) struct Dispatcher {
    state: Mutex<State>,
    ready: Notify,
}

#[derive(Debug)]
struct State {
    queues: Vec<QueueShare>,
    is_open: bool,
    /// A suspect runs, of any queue.
    is_isolating: bool,
    /// The share up to which every queue was served.
    served: f64,
}

#[derive(Debug)]
struct QueueShare {
    waiting: VecDeque<WorkUnit>,
    /// Units with a suspect, by the number of times it was isolated before, and in the order of their arrival.
    suspects: BTreeMap<(u32, u64), WorkUnit>,
    arrivals: u64,
    /// The number of waiting units that run before the next suspect.
    before_suspect: usize,
    /// A suspect of this queue runs.
    is_isolating: bool,
    /// Messages that wait.
    queued: usize,
    /// Messages of the units that are assigned to executors.
    assigned: usize,
    /// Of those, the messages that run at this moment.
    running: usize,
    concurrency: usize,
    weight: f64,
    /// The messages that it has received, divided by its weight.
    share: f64,
    /// Maximum number of messages, waiting and assigned.
    capacity: usize,
    /// Notified when half of the capacity is free, if the claimer waits for that.
    claimer: Arc<Wakeup>,
    claimer_waits: bool,
}

/// A unit assigned to an executor.
#[derive(Debug)]
pub(super) struct Assignment {
    pub(super) unit: WorkUnit,
    pub(super) slot: Slot,
}

/// The capacity that a unit occupies while it runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    queue: usize,
    len: usize,
    concurrency: usize,
    /// The unit has a suspect, and occupies its whole queue.
    pub(super) is_isolated: bool,
}

impl Dispatcher {
    pub(super) fn new(queues: impl IntoIterator<Item = (usize, u32, Arc<Wakeup>)>) -> Self {
        let queue = |(concurrency, weight, claimer)| QueueShare {
            waiting: VecDeque::new(),
            suspects: BTreeMap::new(),
            arrivals: 0,
            before_suspect: 0,
            is_isolating: false,
            queued: 0,
            assigned: 0,
            running: 0,
            concurrency,
            weight: f64::from(weight),
            share: 0.0,
            capacity: 0,
            claimer,
            claimer_waits: false,
        };
        let queues = queues.into_iter().map(queue).collect();
        Self {
            state: Mutex::new(State { queues, is_open: true, is_isolating: false, served: 0.0 }),
            ready: Notify::new(),
        }
    }

    /// Free capacity of a queue, if that is at least half of `capacity`. Otherwise its claimer is notified when it is.
    pub(super) fn free_capacity(&self, queue: usize, capacity: usize) -> Option<usize> {
        let mut state = self.lock();
        let queue = state.queues.get_mut(queue)?;
        queue.capacity = capacity;
        let free = capacity.saturating_sub(queue.queued + queue.assigned);
        queue.claimer_waits = free * 2 < capacity;
        (!queue.claimer_waits).then_some(free)
    }

    /// Enqueues claimed units. Returns them when the dispatcher is closed.
    pub(super) fn enqueue(&self, queue: usize, units: Vec<WorkUnit>) -> Result<(), Vec<WorkUnit>> {
        let count = units.len();
        {
            let mut state = self.lock();
            if !state.is_open {
                return Err(units);
            }
            let served = state.served;
            let Some(queue) = state.queues.get_mut(queue) else { return Err(units) };
            if queue.queued == 0 && queue.running == 0 {
                queue.share = queue.share.max(served);
            }
            queue.enqueue(units);
        }
        for _ in 0..count {
            self.ready.notify_one();
        }
        Ok(())
    }

    /// The next unit to run; `None` when the dispatcher is closed.
    pub(super) async fn next(&self) -> Option<Assignment> {
        loop {
            let mut ready = std::pin::pin!(self.ready.notified());
            // Before the check, so that a notification after it is not missed.
            ready.as_mut().enable();
            {
                let mut state = self.lock();
                if !state.is_open {
                    return None;
                }
                if let Some(assigned) = state.assign() {
                    return Some(assigned);
                }
            }
            ready.await;
        }
    }

    /// A unit has run. Returns whether nothing else waits or runs.
    pub(super) fn finish(&self, Slot { queue, len, concurrency, is_isolated }: Slot) -> bool {
        let (is_idle, may_run_more) = {
            let mut state = self.lock();
            let mut may_run_more = false;
            state.is_isolating &= !is_isolated;
            let is_isolating = state.is_isolating;
            if let Some(queue) = state.queues.get_mut(queue) {
                let was_full = !queue.can_run_next(is_isolating);
                queue.assigned -= len;
                queue.running -= concurrency;
                if is_isolated {
                    queue.is_isolating = false;
                    queue.before_suspect = queue.waiting.len();
                }
                may_run_more = was_full && queue.can_run_next(is_isolating);
                queue.wake_claimer();
            }
            let is_idle = state.queues.iter().all(|queue| queue.queued + queue.assigned == 0);
            (is_idle, may_run_more)
        };
        if is_isolated {
            // Every executor may have waited for the end of the isolation.
            self.ready.notify_waiters();
        }
        // Other executors may wait because this queue was at its concurrency limit.
        if may_run_more {
            self.ready.notify_one();
        }
        is_idle
    }

    /// Closes the dispatcher and returns all units that were not started.
    pub(super) fn close(&self) -> Vec<WorkUnit> {
        let mut left = Vec::new();
        {
            let mut state = self.lock();
            state.is_open = false;
            for queue in &mut state.queues {
                left.extend(queue.waiting.drain(..));
                left.extend(std::mem::take(&mut queue.suspects).into_values());
                queue.queued = 0;
            }
        }
        self.ready.notify_waiters();
        left
    }

    /// Whether executors must stop after the message that they deliver.
    pub(super) fn is_closed(&self) -> bool {
        !self.lock().is_open
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn assign(&mut self) -> Option<Assignment> {
        let candidates = self.queues.iter().enumerate();
        let candidates = candidates.filter(|(_, queue)| queue.can_run_next(self.is_isolating));
        let (index, _) = candidates.min_by(|(_, one), (_, other)| one.share.total_cmp(&other.share))?;
        let queue = self.queues.get_mut(index)?;
        let is_isolated = queue.is_suspect_next();
        let unit = if is_isolated {
            (self.is_isolating, queue.is_isolating) = (true, true);
            queue.suspects.pop_first().map(|(_, unit)| unit)?
        } else {
            queue.before_suspect = queue.before_suspect.saturating_sub(1);
            queue.waiting.pop_front()?
        };
        let (len, concurrency) = (unit.len(), unit.concurrency());
        self.served = queue.share;
        queue.share += len as f64 / queue.weight;
        queue.queued -= len;
        queue.assigned += len;
        queue.running += concurrency;
        Some(Assignment { unit, slot: Slot { queue: index, len, concurrency, is_isolated } })
    }
}

impl QueueShare {
    fn enqueue(&mut self, units: Vec<WorkUnit>) {
        self.queued += units.iter().map(WorkUnit::len).sum::<usize>();
        let had_suspects = !self.suspects.is_empty();
        for unit in units {
            match unit.isolated_before() {
                None => self.waiting.push_back(unit),
                Some(isolated_before) => {
                    self.suspects.insert((isolated_before, self.arrivals), unit);
                    self.arrivals += 1;
                }
            }
        }
        if !had_suspects {
            self.before_suspect = self.waiting.len();
        }
    }

    fn is_suspect_next(&self) -> bool {
        !self.suspects.is_empty() && (self.before_suspect == 0 || self.waiting.is_empty())
    }

    /// Whether the next unit fits into the queue's concurrency, or may be isolated. `is_isolating`: whether any queue has a suspect
    /// that runs.
    fn can_run_next(&self, is_isolating: bool) -> bool {
        if self.is_isolating {
            return false;
        }
        if self.is_suspect_next() {
            return self.running == 0 && !is_isolating;
        }
        self.waiting.front().is_some_and(|next| self.running + next.concurrency() <= self.concurrency)
    }

    fn wake_claimer(&mut self) {
        let free = self.capacity.saturating_sub(self.queued + self.assigned);
        if self.claimer_waits && free * 2 >= self.capacity {
            self.claimer_waits = false;
            self.claimer.notify();
        }
    }
}
