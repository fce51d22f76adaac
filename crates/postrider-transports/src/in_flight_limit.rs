//! The limit of messages in flight on a connection, over all calls together.

use tokio::sync::{Semaphore, SemaphorePermit};

/// Limits the messages in flight, and waits for them before a transport closes.
pub(crate) struct InFlightLimit {
    /// A permit for each message in flight.
    permits: Semaphore,
    max: u32,
}

impl InFlightLimit {
    pub(crate) fn new(max: usize) -> Self {
        let max = u32::try_from(max).unwrap_or(u32::MAX);
        Self { permits: Semaphore::new(max as usize), max }
    }

    /// Permits for a whole batch, or for none of it: two calls that each hold half of theirs would deadlock. `None` after the limit was
    /// closed.
    pub(crate) async fn reserve(&self, messages: usize) -> Option<SemaphorePermit<'_>> {
        let messages = u32::try_from(messages).unwrap_or(u32::MAX).min(self.max);
        self.permits.acquire_many(messages).await.ok()
    }

    /// Waits for the calls in flight. Later calls get no permits.
    pub(crate) async fn close(&self) {
        let _all = self.permits.acquire_many(self.max).await;
        self.permits.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn batch_above_the_limit_takes_all_permits() {
        let limit = InFlightLimit::new(2);
        let all = limit.reserve(5).await.unwrap();
        assert!(limit.reserve(1).now_or_never().is_none());
        drop(all);
        assert!(limit.reserve(1).await.is_some());
    }

    #[tokio::test]
    async fn close_waits_for_calls_in_flight_and_refuses_later_ones() {
        let limit = InFlightLimit::new(2);
        let in_flight = limit.reserve(1).await.unwrap();
        let mut closing = std::pin::pin!(limit.close());
        assert!(closing.as_mut().now_or_never().is_none());
        assert!(limit.reserve(1).now_or_never().is_none(), "a later call waits for the close");
        drop(in_flight);
        closing.await;
        limit.close().await;
        assert!(limit.reserve(1).await.is_none());
    }
}
