//! Error texts and payloads occur in no log line, metric, audit event, dead letter or archived row.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/log.rs"]
#[allow(dead_code, reason = "not every test program needs all of it")]
mod log;

use async_trait::async_trait;
use log::Log;
use metrics_util::debugging::DebuggingRecorder;
use postrider_core::{
    AuditError, AuditEvent, AuditRecord, AuditSink, Error, FollowUp, FollowUpExt, QueueName, QueuePolicy,
    Reference, SubjectId,
    audit::AuditChain as _,
    follow_up::{FollowUpStatus, QUEUE},
    inspect::{Inspect, ListRequest, StateFilter},
    saga::{Plan, StepCall as To},
    schema::Schema,
};
use postrider_engine::{
    Failure, SagaRunner,
    saga::{Abandonment, Resolution, Resolver, ResolverCall},
};
use postrider_stores::memory::{MemoryLedger, MemoryStore};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, SystemTime},
};

const CANARY: &str = "canary-4711";

/// Fails in every possible way, each time with the canary in its error text.
struct Leaky;

#[async_trait]
impl Resolver for Leaky {
    fn name(&self) -> &str {
        "leaky"
    }

    fn operations(&self) -> &[&str] {
        &["erase", "undo"]
    }

    async fn resolve(&self, call: &ResolverCall) -> Result<Resolution, Failure> {
        #[derive(Debug, thiserror::Error)]
        #[error("{CANARY}")]
        struct Declined(#[source] std::io::Error);

        let chained = || Declined(std::io::Error::other(CANARY));
        match call.subject().as_str() {
            "panicking" if call.attempt() == 1 => panic!("{CANARY}"),
            "failing" => Err(chained())?,
            "refused" | "saga" => Err(Failure::reject(chained())),
            "unreadable" => call.json::<u64>().map(|_| Resolution::Done),
            "later" if call.attempt() == 1 => Err(Failure::retry_after(Duration::from_secs(1), CANARY)),
            _ => Ok(Resolution::Done),
        }
    }

    async fn has_happened(&self, _: &ResolverCall) -> Result<Option<bool>, Failure> {
        Err(Failure::from(CANARY))
    }
}

/// The store's ledger, which fails now and then, with the canary in its error text.
#[derive(Debug)]
struct Dropping(MemoryLedger, AtomicUsize);

#[async_trait]
impl AuditSink for Dropping {
    async fn append(&self, events: &[AuditEvent]) -> Result<(), AuditError> {
        if self.1.fetch_add(1, SeqCst).is_multiple_of(3) {
            return Err(Error::Unavailable(CANARY.into()).into());
        }
        self.0.append(events).await
    }

    async fn read(&self, subject: &SubjectId) -> Result<Vec<AuditRecord>, AuditError> {
        self.0.read(subject).await
    }

    async fn read_since(&self, at: SystemTime, limit: usize) -> Result<Vec<AuditRecord>, AuditError> {
        self.0.read_since(at, limit).await
    }
}

#[tokio::test]
async fn error_texts_and_payloads_leak_nowhere() {
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    recorder.install().unwrap();
    let log = Log::listen();

    let store = MemoryStore::new();
    let queue = QueueName::new(QUEUE).unwrap();
    let policy = QueuePolicy::default().with_keep_for(Duration::from_secs(365 * 24 * 3600));
    store.declare(&queue, &policy).await.unwrap();
    let subjects = ["panicking", "failing", "refused", "unreadable", "later", "well"];
    let reference = || Reference::new("customer", "c-1");
    let follow_ups = subjects.map(|subject| {
        FollowUp::new(subject, "leaky", "erase", reference()).unwrap().with_json(CANARY).unwrap()
    });
    let plan = Plan::builder("doomed")
        .compensatable("first", To::to("leaky", "erase").undone_by("undo"))
        .pivot("second", To::to("leaky", "erase"))
        .build()
        .unwrap();
    let mut tx = store.begin();
    store.follow_up(&mut tx, follow_ups).await.unwrap();
    store.follow_up(&mut tx, [plan.begin("saga", reference()).unwrap()]).await.unwrap();
    tx.commit();

    let abandoned: Arc<Mutex<Vec<Abandonment>>> = Arc::default();
    let noted = Arc::clone(&abandoned);
    let runner = SagaRunner::builder(store.clone())
        .resolver(Leaky)
        .plan(plan)
        .audit(Dropping(store.ledger(), AtomicUsize::new(0)))
        .max_attempts(6)
        .on_complete(|_, completed| async move {
            if completed.subject.as_str() == "well" { Err(Failure::retry(CANARY)) } else { Ok(()) }
        })
        .on_abandoned(move |one| {
            noted.lock().unwrap().push(one);
            panic!("{CANARY}");
        })
        .build()
        .unwrap();
    for _ in 0..30 {
        while runner.run_batch().await.unwrap().claimed > 0 {}
        store.advance(Duration::from_secs(2 * 3600));
    }
    let counts = runner.status_counts().await.unwrap();
    let open = [
        FollowUpStatus::Pending,
        FollowUpStatus::InFlight,
        FollowUpStatus::Failed,
        FollowUpStatus::Scheduled,
    ]
    .map(|status| counts.of(status));
    assert_eq!(open, [0; 4], "{counts:?}");

    let mut kept = format!("{:?}", abandoned.lock().unwrap());
    kept += &format!("{:?}", store.ledger().links(0, 1_000).await.unwrap());
    for state in [StateFilter::Ready, StateFilter::Scheduled, StateFilter::Dead, StateFilter::Done] {
        kept += &format!("{:?}", store.list(&ListRequest::new(queue.clone(), state)).await.unwrap());
    }
    kept += &format!("{:?}", snapshots.snapshot().into_vec());
    let lines = log.text();
    for event in [
        "postrider.abandoned",
        "postrider.retried",
        "postrider.outcome_not_recorded",
        "postrider.hook_panicked",
    ] {
        assert!(lines.contains(event), "{event} was not logged:\n{lines}");
    }
    assert!(kept.contains("refused") && kept.contains("postrider_dead_total"));
    assert!(!kept.contains(CANARY), "{kept}");
    assert!(!lines.contains(CANARY), "{lines}");
}
