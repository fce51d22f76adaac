//! A consumer of a queue in memory.

use super::queue::{Holder, MemoryQueue};
use async_trait::async_trait;
use postrider_core::{Abilities, Answer, Finding, Parcel, Redelivers, Source, SourceError, Ticket};
use std::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::Duration,
};
use tokio::time::{Instant, sleep};

const A_YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A consumer of a [`MemoryQueue`]. What it has not answered when it is closed or dropped comes to others.
#[derive(Debug)]
pub struct MemorySource {
    queue: MemoryQueue,
    consumer: u64,
    is_closed: AtomicBool,
}

/// Which entry, and in whose hand.
#[derive(Debug, Clone, Copy)]
struct Held(u64, Holder);

impl MemorySource {
    pub(super) fn new(queue: MemoryQueue, consumer: u64) -> Self {
        Self { queue, consumer, is_closed: AtomicBool::new(false) }
    }

    fn try_receive(&self, most: usize) -> Result<(Vec<Parcel>, Option<Duration>), SourceError> {
        let mut shelf = self.queue.lock();
        if self.is_closed.load(SeqCst) {
            return Err(SourceError::down("it was closed"));
        }
        if shelf.failing_receives > 0 {
            shelf.failing_receives -= 1;
            return Err(SourceError::down("the connection was lost, as ordered"));
        }
        let (taken, wait) = shelf.take(self.consumer, most, Instant::now());
        let parcel = |number: u64| {
            let entry = shelf.entries.get(&number)?;
            let ticket = Ticket::new(Held(number, entry.holder?));
            let parcel = Parcel::new(entry.incoming.clone(), ticket).delivered(entry.deliveries);
            Some(match entry.lane {
                Some(lane) => parcel.in_lane(lane),
                None => parcel,
            })
        };
        Ok((taken.into_iter().filter_map(parcel).collect(), wait))
    }

    fn answer_one(&self, ticket: &Ticket, answer: Answer) -> Result<(), SourceError> {
        let Held(number, holder) = held(ticket)?;
        let mut shelf = self.queue.lock();
        let entry = shelf.held(number, holder).ok_or_else(stale)?;
        match answer {
            Answer::Again { after } => {
                entry.holder = None;
                entry.due_at = Some(Instant::now() + after.min(A_YEAR));
            }
            Answer::Done | Answer::Refuse => {
                let entry = shelf.entries.remove(&number);
                if answer == Answer::Refuse {
                    shelf.refused.extend(entry.map(|entry| entry.incoming));
                }
            }
        }
        Ok(())
    }

    fn give_back(&self) {
        self.is_closed.store(true, SeqCst);
        for entry in self.queue.lock().entries.values_mut() {
            if entry.holder.is_some_and(|holder| holder.consumer == self.consumer) {
                entry.holder = None;
            }
        }
        self.queue.change.notify_waiters();
    }
}

fn held(ticket: &Ticket) -> Result<Held, SourceError> {
    ticket.inside::<Held>().copied().ok_or_else(|| SourceError::stale("another source received it"))
}

fn stale() -> SourceError {
    SourceError::stale("it was answered before, or taken back")
}

impl Drop for MemorySource {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[async_trait]
impl Source for MemorySource {
    fn kind(&self) -> &'static str {
        "memory"
    }

    fn origin(&self) -> &str {
        self.queue.name()
    }

    fn abilities(&self) -> Abilities {
        Abilities::answering(1_000).counting().delaying(A_YEAR)
    }

    async fn receive(&self, most: usize) -> Result<Vec<Parcel>, SourceError> {
        loop {
            let change = self.queue.change.notified();
            let (parcels, wait) = self.try_receive(most)?;
            if !parcels.is_empty() {
                return Ok(parcels);
            }
            tokio::select! {
                () = change => {}
                () = sleep(wait.unwrap_or(A_YEAR)) => {}
            }
        }
    }

    async fn answer(&self, answers: &[(Ticket, Answer)]) -> Vec<Result<(), SourceError>> {
        {
            let mut shelf = self.queue.lock();
            if shelf.failing_answers > 0 && !answers.is_empty() {
                shelf.failing_answers -= 1;
                let lost = || Err(SourceError::down("the connection was lost, as ordered"));
                return answers.iter().map(|_| lost()).collect();
            }
        }
        let told = answers.iter().map(|(ticket, answer)| self.answer_one(ticket, *answer)).collect();
        self.queue.change.notify_waiters();
        told
    }

    async fn extend(&self, tickets: &[Ticket]) -> Vec<Result<(), SourceError>> {
        let extend = |ticket| {
            let Held(number, holder) = held(ticket)?;
            self.queue.lock().held(number, holder).map(|_| ()).ok_or_else(stale)
        };
        tickets.iter().map(extend).collect()
    }

    async fn redelivers(&self) -> Result<Redelivers, SourceError> {
        Ok(Redelivers::for_ever("a queue in memory forgets nothing while its process lives"))
    }

    async fn check(&self) -> Result<Vec<Finding>, SourceError> {
        let lost = Finding::warning("in_memory", self.origin());
        let lost = lost.because("what it holds is gone with the process");
        Ok(vec![lost.fixed_by("receive from a broker that keeps messages on disk")])
    }

    async fn close(&self) {
        self.give_back();
    }
}
