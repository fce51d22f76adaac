//! A source that receives from an in-memory queue.

use super::queue::{Holder, MemoryQueue};
use async_trait::async_trait;
use postrider_core::{
    Ack, AckHandle, Capabilities, Finding, ReceivedMessage, RedeliveryWindow, Source, SourceError,
};
use std::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::Duration,
};
use tokio::time::{Instant, sleep};

const A_YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Receives from a [`MemoryQueue`]. Messages that are not acked when it is closed or dropped are redelivered to other sources.
#[derive(Debug)]
pub struct MemorySource {
    queue: MemoryQueue,
    consumer: u64,
    is_closed: AtomicBool,
}

/// The content of an ack handle: the number of an entry, and its holder.
#[derive(Debug, Clone, Copy)]
struct EntryHandle(u64, Holder);

impl MemorySource {
    pub(super) fn new(queue: MemoryQueue, consumer: u64) -> Self {
        Self { queue, consumer, is_closed: AtomicBool::new(false) }
    }

    fn try_receive(&self, most: usize) -> Result<(Vec<ReceivedMessage>, Option<Duration>), SourceError> {
        let mut state = self.queue.lock();
        if self.is_closed.load(SeqCst) {
            return Err(SourceError::unavailable("the source is closed"));
        }
        if state.failing_receives > 0 {
            state.failing_receives -= 1;
            return Err(SourceError::unavailable("the connection was lost (injected failure)"));
        }
        let (taken, wait) = state.take(self.consumer, most, Instant::now());
        let message = |number: u64| {
            let entry = state.entries.get(&number)?;
            let handle = AckHandle::new(EntryHandle(number, entry.holder?));
            let message = ReceivedMessage::new(entry.incoming.clone(), handle).delivered(entry.deliveries);
            Some(match entry.lane {
                Some(lane) => message.in_lane(lane),
                None => message,
            })
        };
        Ok((taken.into_iter().filter_map(message).collect(), wait))
    }

    fn ack_one(&self, handle: &AckHandle, ack: Ack) -> Result<(), SourceError> {
        let EntryHandle(number, holder) = entry_handle(handle)?;
        let mut state = self.queue.lock();
        let entry = state.in_flight(number, holder).ok_or_else(stale)?;
        match ack {
            Ack::Nack { after } => {
                entry.holder = None;
                entry.due_at = Some(Instant::now() + after.min(A_YEAR));
            }
            Ack::Ack | Ack::Reject => {
                let entry = state.entries.remove(&number);
                if ack == Ack::Reject {
                    state.rejected.extend(entry.map(|entry| entry.incoming));
                }
            }
        }
        Ok(())
    }

    fn release(&self) {
        self.is_closed.store(true, SeqCst);
        for entry in self.queue.lock().entries.values_mut() {
            if entry.holder.is_some_and(|holder| holder.consumer == self.consumer) {
                entry.holder = None;
            }
        }
        self.queue.change.notify_waiters();
    }
}

fn entry_handle(handle: &AckHandle) -> Result<EntryHandle, SourceError> {
    handle
        .downcast::<EntryHandle>()
        .copied()
        .ok_or_else(|| SourceError::stale("the message came from another source"))
}

fn stale() -> SourceError {
    SourceError::stale("the message was acked before, or requeued")
}

impl Drop for MemorySource {
    fn drop(&mut self) {
        self.release();
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

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(1_000).with_delivery_counts().with_max_delay(A_YEAR)
    }

    async fn receive(&self, most: usize) -> Result<Vec<ReceivedMessage>, SourceError> {
        loop {
            let change = self.queue.change.notified();
            let (messages, wait) = self.try_receive(most)?;
            if !messages.is_empty() {
                return Ok(messages);
            }
            tokio::select! {
                () = change => {}
                () = sleep(wait.unwrap_or(A_YEAR)) => {}
            }
        }
    }

    async fn ack(&self, acks: &[(AckHandle, Ack)]) -> Vec<Result<(), SourceError>> {
        {
            let mut state = self.queue.lock();
            if state.failing_acks > 0 && !acks.is_empty() {
                state.failing_acks -= 1;
                let lost = || Err(SourceError::unavailable("the connection was lost (injected failure)"));
                return acks.iter().map(|_| lost()).collect();
            }
        }
        let results = acks.iter().map(|(handle, ack)| self.ack_one(handle, *ack)).collect();
        self.queue.change.notify_waiters();
        results
    }

    async fn extend(&self, handles: &[AckHandle]) -> Vec<Result<(), SourceError>> {
        let extend = |handle| {
            let EntryHandle(number, holder) = entry_handle(handle)?;
            self.queue.lock().in_flight(number, holder).map(|_| ()).ok_or_else(stale)
        };
        handles.iter().map(extend).collect()
    }

    async fn redelivery_window(&self) -> Result<RedeliveryWindow, SourceError> {
        Ok(RedeliveryWindow::unbounded("an in-memory queue keeps its messages while the process runs"))
    }

    async fn check(&self) -> Result<Vec<Finding>, SourceError> {
        let lost = Finding::warning("in_memory", self.origin());
        let lost = lost.because("its messages are lost when the process ends");
        Ok(vec![lost.fixed_by("receive from a broker that keeps messages on disk")])
    }

    async fn close(&self) {
        self.release();
    }
}
