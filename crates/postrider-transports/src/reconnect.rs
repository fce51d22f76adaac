//! A connection that is opened on first use, replaced after a failure, and closed once no call is in flight on it. Shared by the
//! transports that hold one connection.

use postrider_core::PublishError;
use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::sync::{Mutex, Semaphore, SemaphorePermit};

/// A connection, from connect to loss. It never recovers: a lost or suspect connection is replaced by a new one.
pub(crate) trait ReusableConnection {
    /// Whether new calls may start on this connection.
    fn is_usable(&self) -> bool;

    /// No new call starts on this connection.
    fn mark_suspect(&self);
}

/// Holds the current connection, and opens a new one when there is none or the last one is unusable.
pub(crate) struct ConnectionSlot<C> {
    current: Mutex<Option<Arc<C>>>,
    /// A permit for each reply in flight.
    permits: Semaphore,
    max_in_flight: u32,
    is_closed: AtomicBool,
}

impl<C: ReusableConnection> ConnectionSlot<C> {
    /// At most `max_in_flight` replies are awaited at once.
    pub(crate) fn new(max_in_flight: usize) -> Self {
        let max_in_flight = u32::try_from(max_in_flight).unwrap_or(u32::MAX);
        let permits = Semaphore::new(max_in_flight as usize);
        Self { current: Mutex::default(), permits, max_in_flight, is_closed: AtomicBool::new(false) }
    }

    /// Permits for a whole batch, or for none of it: two calls that each hold half of theirs would deadlock.
    pub(crate) async fn reserve(&self, replies: usize) -> Option<SemaphorePermit<'_>> {
        let replies = u32::try_from(replies).unwrap_or(u32::MAX).min(self.max_in_flight);
        self.permits.acquire_many(replies).await.ok()
    }

    /// The current connection, or a new one if the last one is unusable.
    pub(crate) async fn connection(
        &self,
        connect: impl Future<Output = Result<C, PublishError>>,
    ) -> Result<Arc<C>, PublishError> {
        let mut current = self.current.lock().await;
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(PublishError::unavailable("the client is closed"));
        }
        if let Some(connection) = current.as_ref().filter(|connection| connection.is_usable()) {
            return Ok(Arc::clone(connection));
        }
        *current = None;
        let connection = Arc::new(connect.await?);
        *current = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// Refuses new calls, waits for the calls in flight, and gives up the connection.
    pub(crate) async fn close(&self) -> Option<Arc<C>> {
        self.is_closed.store(true, Ordering::Relaxed);
        let _all = self.permits.acquire_many(self.max_in_flight).await;
        self.current.lock().await.take()
    }
}

/// Marks a connection as suspect when a call is dropped while it waits for replies: the connection may be dead without an error.
pub(crate) struct SuspectGuard<'a, C: ReusableConnection> {
    pub(crate) connection: &'a C,
    pub(crate) is_disarmed: bool,
}

impl<'a, C: ReusableConnection> SuspectGuard<'a, C> {
    pub(crate) fn new(connection: &'a C) -> Self {
        Self { connection, is_disarmed: false }
    }
}

impl<C: ReusableConnection> Drop for SuspectGuard<'_, C> {
    fn drop(&mut self) {
        if !self.is_disarmed {
            self.connection.mark_suspect();
        }
    }
}
