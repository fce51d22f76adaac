//! A source that fails on demand.

use async_trait::async_trait;
use postrider_core::{
    Ack, AckHandle, Capabilities, Finding, ReceivedMessage, RedeliveryWindow, Source, SourceError,
};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
};

/// Forwards every call to a source, except those that a test lets fail.
#[derive(Debug)]
pub struct FaultySource {
    source: Arc<dyn Source>,
    /// The number of acks that are still dropped.
    acks_to_drop: AtomicUsize,
    is_silent: AtomicBool,
}

impl FaultySource {
    /// Forwards every call to `source`.
    pub fn new(source: Arc<dyn Source>) -> Self {
        Self { source, acks_to_drop: AtomicUsize::new(0), is_silent: AtomicBool::new(false) }
    }

    /// Drops the next acks.
    #[must_use]
    pub fn drop_acks(self, acks: usize) -> Self {
        self.acks_to_drop.store(acks, SeqCst);
        self
    }

    /// Whether the source fails to report its redelivery window.
    pub fn set_silent(&self, is_silent: bool) {
        self.is_silent.store(is_silent, SeqCst);
    }
}

#[async_trait]
impl Source for FaultySource {
    fn kind(&self) -> &'static str {
        self.source.kind()
    }

    fn origin(&self) -> &str {
        self.source.origin()
    }

    fn capabilities(&self) -> Capabilities {
        self.source.capabilities()
    }

    async fn receive(&self, max: usize) -> Result<Vec<ReceivedMessage>, SourceError> {
        self.source.receive(max).await
    }

    async fn ack(&self, acks: &[(AckHandle, Ack)]) -> Vec<Result<(), SourceError>> {
        let mut results = Vec::with_capacity(acks.len());
        for ack in acks {
            let is_dropped =
                self.acks_to_drop.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
            match is_dropped {
                true => results.push(Err(SourceError::unavailable("ack dropped by the test"))),
                false => results.extend(self.source.ack(std::slice::from_ref(ack)).await),
            }
        }
        results
    }

    async fn extend(&self, handles: &[AckHandle]) -> Vec<Result<(), SourceError>> {
        self.source.extend(handles).await
    }

    async fn redelivery_window(&self) -> Result<RedeliveryWindow, SourceError> {
        match self.is_silent.load(SeqCst) {
            true => Err(SourceError::unavailable("connection refused by the test")),
            false => self.source.redelivery_window().await,
        }
    }

    async fn check(&self) -> Result<Vec<Finding>, SourceError> {
        self.source.check().await
    }

    async fn close(&self) {
        self.source.close().await;
    }
}
