//! A source that drops acks.

use async_trait::async_trait;
use postrider_core::{
    Ack, AckHandle, Capabilities, Finding, ReceivedMessage, RedeliveryWindow, Source, SourceError,
};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

/// Forwards every call, but drops the first acks.
#[derive(Debug)]
pub struct AckDroppingSource {
    source: Arc<dyn Source>,
    /// The number of acks that are still dropped.
    left: AtomicUsize,
}

impl AckDroppingSource {
    /// Drops the first `acks` acks to `source`.
    pub fn new(source: Arc<dyn Source>, acks: usize) -> Self {
        Self { source, left: AtomicUsize::new(acks) }
    }
}

#[async_trait]
impl Source for AckDroppingSource {
    fn kind(&self) -> &'static str {
        self.source.kind()
    }

    fn origin(&self) -> &str {
        self.source.origin()
    }

    fn capabilities(&self) -> Capabilities {
        self.source.capabilities()
    }

    async fn receive(&self, most: usize) -> Result<Vec<ReceivedMessage>, SourceError> {
        self.source.receive(most).await
    }

    async fn ack(&self, acks: &[(AckHandle, Ack)]) -> Vec<Result<(), SourceError>> {
        let mut told = Vec::with_capacity(acks.len());
        for answer in acks {
            let is_lost = self.left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
            match is_lost {
                true => told.push(Err(SourceError::unavailable("it was lost, as ordered"))),
                false => told.extend(self.source.ack(std::slice::from_ref(answer)).await),
            }
        }
        told
    }

    async fn extend(&self, tickets: &[AckHandle]) -> Vec<Result<(), SourceError>> {
        self.source.extend(tickets).await
    }

    async fn redelivery_window(&self) -> Result<RedeliveryWindow, SourceError> {
        self.source.redelivery_window().await
    }

    async fn check(&self) -> Result<Vec<Finding>, SourceError> {
        self.source.check().await
    }

    async fn close(&self) {
        self.source.close().await;
    }
}
