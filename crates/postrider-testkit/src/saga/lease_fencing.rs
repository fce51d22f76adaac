//! Runners that are late, stopped or broken change nothing.

use super::{SagaFixture, helpers::*};
use postrider_core::{
    AuditKind,
    follow_up::{FollowUpStatus, QUEUE},
    inspect::StateFilter,
};
use postrider_engine::{
    Failure,
    saga::{Abandonment, Resolution, Resolver, ResolverCall},
};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::sync::Semaphore;

/// A resolver that signals each call, and returns when the test lets it.
#[derive(Clone)]
struct Held {
    called: Arc<Semaphore>,
    may_answer: Arc<Semaphore>,
    answer: fn() -> Result<Resolution, Failure>,
}

impl Held {
    fn new(answer: fn() -> Result<Resolution, Failure>) -> Self {
        Self { called: Arc::new(Semaphore::new(0)), may_answer: Arc::new(Semaphore::new(0)), answer }
    }
}

#[async_trait::async_trait]
impl Resolver for Held {
    fn name(&self) -> &str {
        "payments"
    }

    fn operations(&self) -> &[&str] {
        &["erase"]
    }

    async fn resolve(&self, _: &ResolverCall) -> Result<Resolution, Failure> {
        self.called.add_permits(1);
        self.may_answer.acquire().await?.forget();
        (self.answer)()
    }
}

/// Every kind of result.
const ANSWERS: [fn() -> Result<Resolution, Failure>; 4] = [
    || Ok(Resolution::Done),
    || Err(Failure::retry("away")),
    || Err(Failure::reject("no")),
    || Err(Failure::snooze(minutes(5))),
];

/// A runner whose follow-up was reclaimed and finished by another changes nothing, whatever the result of its call.
pub async fn a_stale_runner_changes_nothing<F: SagaFixture>(fixture: F) {
    keep(&fixture).await;
    for (number, answer) in ANSWERS.into_iter().enumerate() {
        let subject = format!("customer-{number}");
        follow_up(&fixture, [erase(&subject, "payments")]).await;
        let held = Held::new(answer);
        let stale = builder(&fixture, &[]).resolver(held.clone()).build().unwrap();
        let prompt = Scripted::done("payments");
        let fresh = runner(&fixture, &[&prompt]);
        let (report, ()) = tokio::join!(stale.run_batch(), async {
            held.called.acquire().await.unwrap().forget();
            expire_leases(&fixture).await;
            assert_eq!(run::<F>(&fresh).await, 1);
            held.may_answer.add_permits(1);
        });
        assert_eq!(report.unwrap().claimed, 1);
        assert_eq!(prompt.count(), 1);
        assert_eq!(statuses::<F>(&fresh).await, [(FollowUpStatus::Succeeded, number as u64 + 1)]);
        let kinds = audited(&fixture, &subject).await;
        assert_eq!(
            kinds,
            [AuditKind::Succeeded, AuditKind::Completed],
            "a rolled-back result is not audited"
        );
    }
}

/// The same while the other runner still makes its call: that one decides the outcome.
pub async fn a_stale_runner_does_not_end_the_call_of_another<F: SagaFixture>(fixture: F) {
    keep(&fixture).await;
    for (number, answer) in ANSWERS.into_iter().enumerate() {
        let subject = format!("customer-{number}");
        follow_up(&fixture, [erase(&subject, "payments")]).await;
        let (late, prompt) = (Held::new(answer), Held::new(|| Ok(Resolution::Done)));
        let stale = builder(&fixture, &[]).resolver(late.clone()).build().unwrap();
        let fresh = builder(&fixture, &[]).resolver(prompt.clone()).build().unwrap();
        let stale_run = async {
            stale.run_batch().await.unwrap();
            assert_eq!(audited(&fixture, &subject).await, [], "the stale result is not audited");
            prompt.may_answer.add_permits(1);
        };
        let fresh_run = async {
            late.called.acquire().await.unwrap().forget();
            expire_leases(&fixture).await;
            let let_go = async {
                prompt.called.acquire().await.unwrap().forget();
                late.may_answer.add_permits(1);
            };
            let (report, ()) = tokio::join!(fresh.run_batch(), let_go);
            assert_eq!(report.unwrap().claimed, 1);
        };
        tokio::join!(stale_run, fresh_run);
        assert_eq!(statuses::<F>(&fresh).await, [(FollowUpStatus::Succeeded, number as u64 + 1)]);
        assert_eq!(audited(&fixture, &subject).await, [AuditKind::Succeeded, AuditKind::Completed]);
    }
}

/// A runner claims only what it calls at once: a crash counts no attempt for the rest, and does not block it.
pub async fn a_runner_claims_no_more_than_it_calls<F: SagaFixture>(fixture: F) {
    let all: Vec<_> = (0..20).map(|number| erase(&format!("customer-{number}"), "payments")).collect();
    follow_up(&fixture, all).await;
    let held = Held::new(|| Ok(Resolution::Done));
    let runner = builder(&fixture, &[]).resolver(held.clone()).concurrency(4).build().unwrap();
    let running = runner.start();
    held.called.acquire_many(4).await.unwrap().forget();
    assert_eq!(statuses::<F>(&runner).await, [(FollowUpStatus::Pending, 16), (FollowUpStatus::InFlight, 4)]);
    held.may_answer.add_permits(20);
    held.called.acquire_many(16).await.unwrap().forget();
    assert!(running.stop(minutes(1)).await.clean);
}

/// The result of a call that a stop cuts short is unknown: the follow-up stays leased, and the attempt counts.
pub async fn a_call_cut_short_by_a_stop_stays_leased<F: SagaFixture>(fixture: F) {
    follow_up(&fixture, [erase("customer-1", "payments")]).await;
    let held = Held::new(|| Ok(Resolution::Done));
    let running = builder(&fixture, &[]).resolver(held.clone()).build().unwrap().start();
    held.called.acquire().await.unwrap().forget();
    let stopped = running.stop(Duration::from_millis(50)).await;
    assert!(!stopped.clean);
    let payments = Scripted::done("payments");
    let runner = runner(&fixture, &[&payments]);
    assert_eq!(statuses::<F>(&runner).await, [(FollowUpStatus::InFlight, 1)]);
    assert_eq!(run::<F>(&runner).await, 0);
    expire_leases(&fixture).await;
    assert_eq!(run::<F>(&runner).await, 1);
    assert_eq!(payments.calls.lock().unwrap()[0].2, 2, "the second attempt");
}

/// If the hook panics, the follow-up is still abandoned and audited, and the runner continues (C5 49).
pub async fn a_panicking_hook_breaks_nothing<F: SagaFixture>(fixture: F) {
    let payments = Scripted::new("payments", |_| Err(Failure::reject("no")));
    let all: Vec<_> = (0..3).map(|number| erase(&format!("customer-{number}"), "payments")).collect();
    follow_up(&fixture, all).await;
    let runner = builder(&fixture, &[&payments]).on_abandoned(|_| panic!("on purpose")).build().unwrap();
    assert_eq!(run::<F>(&runner).await, 3);
    assert_eq!(statuses::<F>(&runner).await, [(FollowUpStatus::Abandoned, 3)]);
    assert_eq!(audited(&fixture, "customer-1").await, [AuditKind::Abandoned]);
}

/// The hook receives identifiers only, and only of committed results.
pub async fn the_hook_runs_after_the_commit<F: SagaFixture>(fixture: F) {
    let payments = Scripted::new("payments", |_| Err(Failure::reject("secret").named("NotOurs")));
    let ids = follow_up(&fixture, [erase("customer-1", "payments")]).await;
    let audited: Arc<Mutex<Vec<Abandonment>>> = Arc::default();
    let noted = Arc::clone(&audited);
    let runner = builder(&fixture, &[&payments])
        .on_abandoned(move |abandoned| noted.lock().unwrap().push(abandoned))
        .build()
        .unwrap();
    run::<F>(&runner).await;
    let audited = audited.lock().unwrap().clone();
    assert_eq!(
        (audited.len(), audited[0].id, audited[0].error.as_str(), audited[0].attempts),
        (1, ids[0], "NotOurs", 1)
    );
    assert_eq!(audited[0].subject.as_ref().unwrap().as_str(), "customer-1");
    assert!(!format!("{audited:?}").contains("secret"));
    assert_eq!(list(&fixture, QUEUE, StateFilter::Dead).await.len(), 1);
}
