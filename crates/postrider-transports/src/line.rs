//! What transports with one connection have in common: it is made when it is needed, left when it is in doubt, and closed when
//! nobody waits for anything on it any more.

use postrider_core::PublishError;
use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::sync::{Mutex, Semaphore, SemaphorePermit};

/// One connection, from its making to its loss. There is no second life.
pub(crate) trait Link {
    /// Whether anything should be begun on it.
    fn is_good(&self) -> bool;

    /// Nothing more should be.
    fn doubt(&self);
}

/// Where a connection is, or can be made.
pub(crate) struct Line<L> {
    current: Mutex<Option<Arc<L>>>,
    /// A permit for each answer that is waited for.
    room: Semaphore,
    most: u32,
    is_closed: AtomicBool,
}

impl<L: Link> Line<L> {
    /// With room for so many answers to be waited for at once.
    pub(crate) fn new(most: usize) -> Self {
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        let room = Semaphore::new(most as usize);
        Self { current: Mutex::default(), room, most, is_closed: AtomicBool::new(false) }
    }

    /// Room for a whole batch, or for none of it: two calls that each have half of theirs would wait for each other for ever.
    pub(crate) async fn room(&self, answers: usize) -> Option<SemaphorePermit<'_>> {
        let answers = u32::try_from(answers).unwrap_or(u32::MAX).min(self.most);
        self.room.acquire_many(answers).await.ok()
    }

    /// The connection, made anew where the last one is lost.
    pub(crate) async fn link(
        &self,
        connect: impl Future<Output = Result<L, PublishError>>,
    ) -> Result<Arc<L>, PublishError> {
        let mut current = self.current.lock().await;
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(PublishError::down("it was closed"));
        }
        if let Some(link) = current.as_ref().filter(|link| link.is_good()) {
            return Ok(Arc::clone(link));
        }
        *current = None;
        let link = Arc::new(connect.await?);
        *current = Some(Arc::clone(&link));
        Ok(link)
    }

    /// Refuses whoever comes, waits for whoever is there, and gives up the connection.
    pub(crate) async fn close(&self) -> Option<Arc<L>> {
        self.is_closed.store(true, Ordering::Relaxed);
        let _all = self.room.acquire_many(self.most).await;
        self.current.lock().await.take()
    }
}

/// Puts a connection in doubt when a call is given up while it waits: the connection may be dead without having said so.
pub(crate) struct Doubt<'a, L: Link> {
    pub(crate) link: &'a L,
    pub(crate) is_cleared: bool,
}

impl<'a, L: Link> Doubt<'a, L> {
    pub(crate) fn about(link: &'a L) -> Self {
        Self { link, is_cleared: false }
    }
}

impl<L: Link> Drop for Doubt<'_, L> {
    fn drop(&mut self) {
        if !self.is_cleared {
            self.link.doubt();
        }
    }
}
