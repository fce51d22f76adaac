//! Who is late, stopped or broken changes nothing.

use super::{SagaFixture, helpers::*};
use postrider_core::{
    AuditKind,
    follow_up::{QUEUE, Status},
    inspect::Room,
};
use postrider_engine::{
    Failure,
    saga::{Abandoned, Call, Resolved, Resolver},
};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::sync::Semaphore;

/// Says when it is called, and answers when it may.
#[derive(Clone)]
struct Held {
    called: Arc<Semaphore>,
    may_answer: Arc<Semaphore>,
    answer: fn() -> Result<Resolved, Failure>,
}

impl Held {
    fn new(answer: fn() -> Result<Resolved, Failure>) -> Self {
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

    async fn resolve(&self, _: &Call) -> Result<Resolved, Failure> {
        self.called.add_permits(1);
        self.may_answer.acquire().await?.forget();
        (self.answer)()
    }
}

/// A runner whose follow-up somebody else has taken and ended changes nothing, whatever its call came to.
pub async fn a_stale_runner_changes_nothing<F: SagaFixture>(fixture: F) {
    keep(&fixture).await;
    let answers: [fn() -> Result<Resolved, Failure>; 4] = [
        || Ok(Resolved::Done),
        || Err(Failure::retry("away")),
        || Err(Failure::reject("no")),
        || Err(Failure::snooze(minutes(5))),
    ];
    for (number, answer) in answers.into_iter().enumerate() {
        let subject = format!("customer-{number}");
        follow_up(&fixture, [erase(&subject, "payments")]).await;
        let held = Held::new(answer);
        let stale = builder(&fixture, &[]).resolver(held.clone()).build().unwrap();
        let prompt = Scripted::done("payments");
        let fresh = runner(&fixture, &[&prompt]);
        let (processed, ()) = tokio::join!(stale.run_once(), async {
            held.called.acquire().await.unwrap().forget();
            lapse(&fixture).await;
            assert_eq!(run::<F>(&fresh).await, 1);
            held.may_answer.add_permits(1);
        });
        assert_eq!(processed.unwrap(), 1);
        assert_eq!(prompt.count(), 1);
        assert_eq!(statuses::<F>(&fresh).await, [(Status::Succeeded, number as u64 + 1)]);
        let kinds = told(&fixture, &subject).await;
        assert_eq!(kinds, [AuditKind::Succeeded, AuditKind::Completed], "what was undone is not told");
    }
}

/// What it has in hand it has begun: of the rest, a crash makes no attempt, and holds up nothing.
pub async fn a_runner_takes_no_more_than_it_carries_out<F: SagaFixture>(fixture: F) {
    let all: Vec<_> = (0..20).map(|number| erase(&format!("customer-{number}"), "payments")).collect();
    follow_up(&fixture, all).await;
    let held = Held::new(|| Ok(Resolved::Done));
    let runner = builder(&fixture, &[]).resolver(held.clone()).batch_size(4).build().unwrap();
    let running = runner.start();
    held.called.acquire_many(4).await.unwrap().forget();
    assert_eq!(statuses::<F>(&runner).await, [(Status::Pending, 16), (Status::InFlight, 4)]);
    held.may_answer.add_permits(20);
    held.called.acquire_many(16).await.unwrap().forget();
    assert!(running.shutdown(minutes(1)).await.is_clean);
}

/// Nobody knows what became of a call that was cut short: it stays leased, and counts.
pub async fn a_stopped_runner_leaves_its_call_to_the_lease<F: SagaFixture>(fixture: F) {
    follow_up(&fixture, [erase("customer-1", "payments")]).await;
    let held = Held::new(|| Ok(Resolved::Done));
    let running = builder(&fixture, &[]).resolver(held.clone()).build().unwrap().start();
    held.called.acquire().await.unwrap().forget();
    let stopped = running.shutdown(Duration::from_millis(50)).await;
    assert!(!stopped.is_clean);
    let payments = Scripted::done("payments");
    let runner = runner(&fixture, &[&payments]);
    assert_eq!(statuses::<F>(&runner).await, [(Status::InFlight, 1)]);
    assert_eq!(run::<F>(&runner).await, 0);
    lapse(&fixture).await;
    assert_eq!(run::<F>(&runner).await, 1);
    assert_eq!(payments.calls.lock().unwrap()[0].2, 2, "the second attempt");
}

/// Whatever the hook does, the follow-up is given up, told, and the runner goes on (C5 49).
pub async fn a_hook_that_panics_breaks_nothing<F: SagaFixture>(fixture: F) {
    let payments = Scripted::new("payments", |_| Err(Failure::reject("no")));
    let all: Vec<_> = (0..3).map(|number| erase(&format!("customer-{number}"), "payments")).collect();
    follow_up(&fixture, all).await;
    let runner = builder(&fixture, &[&payments]).on_abandoned(|_| panic!("on purpose")).build().unwrap();
    assert_eq!(run::<F>(&runner).await, 3);
    assert_eq!(statuses::<F>(&runner).await, [(Status::Abandoned, 3)]);
    assert_eq!(told(&fixture, "customer-1").await, [AuditKind::Abandoned]);
}

/// It is told names, and only of what is so.
pub async fn the_hook_is_told_after_it_is_so<F: SagaFixture>(fixture: F) {
    let payments = Scripted::new("payments", |_| Err(Failure::reject("secret").named("NotOurs")));
    let ids = follow_up(&fixture, [erase("customer-1", "payments")]).await;
    let told: Arc<Mutex<Vec<Abandoned>>> = Arc::default();
    let noted = Arc::clone(&told);
    let runner = builder(&fixture, &[&payments])
        .on_abandoned(move |abandoned| noted.lock().unwrap().push(abandoned))
        .build()
        .unwrap();
    run::<F>(&runner).await;
    let told = told.lock().unwrap().clone();
    assert_eq!((told.len(), told[0].id, told[0].error.as_str(), told[0].attempts), (1, ids[0], "NotOurs", 1));
    assert_eq!(told[0].subject.as_ref().unwrap().as_str(), "customer-1");
    assert!(!format!("{told:?}").contains("secret"));
    assert_eq!(list(&fixture, QUEUE, Room::Dead).await.len(), 1);
}
