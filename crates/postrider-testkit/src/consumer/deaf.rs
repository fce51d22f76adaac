//! A source whose answers get lost.

use async_trait::async_trait;
use postrider_core::{Abilities, Answer, Finding, Parcel, Redelivers, Source, SourceError, Ticket};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

/// Passes everything on but the first answers, which do not get through.
#[derive(Debug)]
pub struct Deaf {
    source: Arc<dyn Source>,
    /// How many answers still get lost.
    left: AtomicUsize,
}

impl Deaf {
    /// The first so many answers to `source` do not get through.
    pub fn to(source: Arc<dyn Source>, answers: usize) -> Self {
        Self { source, left: AtomicUsize::new(answers) }
    }
}

#[async_trait]
impl Source for Deaf {
    fn kind(&self) -> &'static str {
        self.source.kind()
    }

    fn origin(&self) -> &str {
        self.source.origin()
    }

    fn abilities(&self) -> Abilities {
        self.source.abilities()
    }

    async fn receive(&self, most: usize) -> Result<Vec<Parcel>, SourceError> {
        self.source.receive(most).await
    }

    async fn answer(&self, answers: &[(Ticket, Answer)]) -> Vec<Result<(), SourceError>> {
        let mut told = Vec::with_capacity(answers.len());
        for answer in answers {
            let is_lost = self.left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
            match is_lost {
                true => told.push(Err(SourceError::down("it was lost, as ordered"))),
                false => told.extend(self.source.answer(std::slice::from_ref(answer)).await),
            }
        }
        told
    }

    async fn extend(&self, tickets: &[Ticket]) -> Vec<Result<(), SourceError>> {
        self.source.extend(tickets).await
    }

    async fn redelivers(&self) -> Result<Redelivers, SourceError> {
        self.source.redelivers().await
    }

    async fn check(&self) -> Result<Vec<Finding>, SourceError> {
        self.source.check().await
    }

    async fn close(&self) {
        self.source.close().await;
    }
}
