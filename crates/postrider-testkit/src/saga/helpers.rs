//! Helpers of the saga suite.

use super::SagaFixture;
pub(crate) use crate::store::helpers::*;
use async_trait::async_trait;
use postrider_core::{
    AuditError, AuditEvent, AuditKind, AuditRecord, AuditSink, Error, FollowUp, IntoMessage, Message,
    MessageId, Reference, SubjectId,
    follow_up::{FollowUpStatus, QUEUE},
};
use postrider_engine::{
    Failure,
    saga::{Resolution, Resolver, ResolverCall, SagaRunner, SagaRunnerBuilder},
};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::SystemTime,
};

type Script = dyn Fn(&ResolverCall) -> Result<Resolution, Failure> + Send + Sync;

/// A resolver that erases customers, with scripted results.
#[derive(Clone)]
pub(crate) struct Scripted {
    name: &'static str,
    answer: Arc<Script>,
    /// The subject, the key and the attempt of each call.
    pub(crate) calls: Arc<Mutex<Vec<(String, MessageId, u32)>>>,
}

impl Scripted {
    pub(crate) fn new(
        name: &'static str,
        answer: impl Fn(&ResolverCall) -> Result<Resolution, Failure> + Send + Sync + 'static,
    ) -> Self {
        Self { name, answer: Arc::new(answer), calls: Arc::default() }
    }

    /// A resolver that always succeeds.
    pub(crate) fn done(name: &'static str) -> Self {
        Self::new(name, |_| Ok(Resolution::Done))
    }

    /// The subjects of the calls, in order.
    pub(crate) fn subjects(&self) -> Vec<String> {
        self.calls.lock().unwrap().iter().map(|(subject, ..)| subject.clone()).collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.calls.lock().unwrap().len()
    }
}

#[async_trait]
impl Resolver for Scripted {
    fn name(&self) -> &str {
        self.name
    }

    fn operations(&self) -> &[&str] {
        &["erase", "rectify"]
    }

    async fn resolve(&self, call: &ResolverCall) -> Result<Resolution, Failure> {
        let noted = (call.subject().to_string(), call.idempotency_key(), call.attempt());
        self.calls.lock().unwrap().push(noted);
        (self.answer)(call)
    }
}

/// Erases a customer at a resolver.
pub(crate) fn erase(subject: &str, resolver: &str) -> FollowUp {
    FollowUp::new(subject, resolver, "erase", Reference::new("customer", format!("there-{subject}"))).unwrap()
}

/// Stages follow-ups and commits.
pub(crate) async fn follow_up<F: SagaFixture>(
    fixture: &F,
    follow_ups: impl IntoIterator<Item = FollowUp>,
) -> Vec<MessageId> {
    let messages: Vec<Message> = follow_ups.into_iter().map(|one| one.into_message().unwrap()).collect();
    stage(fixture, &messages).await
}

/// A runner of these resolvers.
pub(crate) fn runner<F: SagaFixture>(fixture: &F, resolvers: &[&Scripted]) -> SagaRunner<F::Sagas> {
    builder(fixture, resolvers).build().unwrap()
}

/// The builder of a runner of these resolvers.
pub(crate) fn builder<F: SagaFixture>(fixture: &F, resolvers: &[&Scripted]) -> SagaRunnerBuilder<F::Sagas> {
    let builder = SagaRunner::builder(fixture.sagas());
    resolvers.iter().fold(builder, |builder, resolver| builder.resolver((*resolver).clone()))
}

/// Runs batches until nothing is due, and returns the number of follow-ups.
pub(crate) async fn run<F: SagaFixture>(runner: &SagaRunner<F::Sagas>) -> u64 {
    let mut all = 0;
    loop {
        match runner.run_batch().await.unwrap().claimed {
            0 => return all,
            some => all += some,
        }
    }
}

/// The number of follow-ups in each status that has any.
pub(crate) async fn statuses<F: SagaFixture>(runner: &SagaRunner<F::Sagas>) -> Vec<(FollowUpStatus, u64)> {
    let counts = runner.status_counts().await.unwrap();
    counts.iter().filter(|(_, count)| *count > 0).collect()
}

/// The events of a subject in the store's own audit chain, by kind.
pub(crate) async fn audited<F: SagaFixture>(fixture: &F, subject: &str) -> Vec<AuditKind> {
    let recorded = fixture.chain().read(&SubjectId::new(subject).unwrap()).await.unwrap();
    recorded.into_iter().map(|recorded| recorded.event.kind).collect()
}

/// Declares that succeeded follow-ups are archived.
pub(crate) async fn keep<F: SagaFixture>(fixture: &F) {
    let policy = postrider_core::QueuePolicy::default().with_keep_for(minutes(60));
    declare(fixture, QUEUE, policy).await;
}

/// A sink that fails on demand, and stores its events otherwise.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flaky {
    /// The number of next appends that fail.
    pub(crate) outages: Arc<AtomicUsize>,
    /// Only appends of this kind fail while there are outages left; appends of any kind if it is `None`.
    pub(crate) only: Option<AuditKind>,
    pub(crate) events: Arc<Mutex<Vec<AuditEvent>>>,
}

impl Flaky {
    pub(crate) fn kinds(&self) -> Vec<AuditKind> {
        self.events.lock().unwrap().iter().map(|event| event.kind).collect()
    }
}

#[async_trait]
impl AuditSink for Flaky {
    async fn append(&self, events: &[AuditEvent]) -> Result<(), AuditError> {
        let is_meant = self.only.is_none_or(|kind| events.iter().any(|event| event.kind == kind));
        if is_meant && self.outages.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
            return Err(Error::Unavailable("the sink is away".into()).into());
        }
        self.events.lock().unwrap().extend_from_slice(events);
        Ok(())
    }

    async fn read(&self, subject: &SubjectId) -> Result<Vec<AuditRecord>, AuditError> {
        let all = self.read_since(SystemTime::UNIX_EPOCH, usize::MAX).await?;
        Ok(all.into_iter().filter(|recorded| recorded.event.subject.as_ref() == Some(subject)).collect())
    }

    async fn read_since(&self, _: SystemTime, limit: usize) -> Result<Vec<AuditRecord>, AuditError> {
        let events = self.events.lock().unwrap();
        let recorded = |(index, event): (usize, &AuditEvent)| AuditRecord {
            position: index as u64 + 1,
            at: SystemTime::UNIX_EPOCH,
            event: event.clone(),
        };
        Ok(events.iter().enumerate().take(limit).map(recorded).collect())
    }
}
