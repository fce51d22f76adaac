//! Calls to resolvers: order, retries, and when a follow-up is abandoned.

use super::{SagaFixture, helpers::*};
use postrider_core::{
    AuditKind, FollowUpExt as _, IntoMessage, Message, Reason, Reference,
    follow_up::{FollowUpStatus, QUEUE},
    inspect::StateFilter,
};
use postrider_engine::{
    Failure,
    saga::{Resolution, SagaRunner},
};
use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

/// No follow-ups: nothing is staged, and nothing fails.
pub async fn an_empty_batch_of_follow_ups_stages_nothing<F: SagaFixture>(fixture: F) {
    let mut tx = fixture.begin().await;
    let staged = fixture.outbox().follow_up(&mut tx, []).await.unwrap();
    fixture.commit(tx).await;
    assert!(staged.outcomes().is_empty());
    let runner = runner(&fixture, &[&Scripted::done("payments")]);
    assert_eq!(runner.run_batch().await.unwrap().claimed, 0);
}

/// A call receives the staged follow-up, and the message's identity is its idempotency key.
pub async fn a_call_receives_the_staged_follow_up<F: SagaFixture>(fixture: F) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let payments = Scripted::new("payments", move |call| {
        let names: Vec<String> = call.json()?;
        let extra = call.reference().extra().get("region").cloned();
        let (kind, value) = (call.reference().kind().to_owned(), call.reference().value().to_owned());
        noted.lock().unwrap().push((kind, value, extra, call.operation().to_string(), names));
        Ok(Resolution::Done)
    });
    let reference = Reference::new("customer", "cus_1 ä \"quoted\"").with("region", "eu");
    let rectify = postrider_core::FollowUp::new("customer-1", "payments", "rectify", reference).unwrap();
    let ids = follow_up(&fixture, [rectify.with_json(&["new name"]).unwrap()]).await;
    assert_eq!(run::<F>(&runner(&fixture, &[&payments])).await, 1);
    let expected = (
        "customer".to_owned(),
        "cus_1 ä \"quoted\"".to_owned(),
        Some("eu".to_owned()),
        "rectify".to_owned(),
        vec!["new name".to_owned()],
    );
    assert_eq!(*seen.lock().unwrap(), [expected]);
    assert_eq!(*payments.calls.lock().unwrap(), [("customer-1".to_owned(), ids[0], 1)]);
}

/// The oldest follow-up is called first, and a batch is at most as large as its size (C5 41).
pub async fn the_oldest_is_called_first_within_the_batch_size<F: SagaFixture>(fixture: F) {
    let payments = Scripted::done("payments");
    for number in 0..5 {
        follow_up(&fixture, [erase(&format!("customer-{number}"), "payments")]).await;
    }
    let runner = builder(&fixture, &[&payments]).concurrency(2).build().unwrap();
    let mut batches = Vec::new();
    for _ in 0..4 {
        batches.push(runner.run_batch().await.unwrap().claimed);
    }
    assert_eq!(batches, [2, 2, 1, 0]);
    let mut by_batch = payments.subjects();
    // The calls of one batch are made at once.
    by_batch[..2].sort();
    by_batch[2..4].sort();
    assert_eq!(by_batch, ["customer-0", "customer-1", "customer-2", "customer-3", "customer-4"]);
}

/// A succeeded or abandoned follow-up is never due again (C5 41).
pub async fn a_finished_follow_up_is_not_called_again<F: SagaFixture>(fixture: F) {
    keep(&fixture).await;
    let payments = Scripted::done("payments");
    let mailer = Scripted::new("mailer", |_| Err(Failure::reject("no")));
    follow_up(&fixture, [erase("customer-1", "payments"), erase("customer-1", "mailer")]).await;
    let runner = runner(&fixture, &[&payments, &mailer]);
    assert_eq!(run::<F>(&runner).await, 2);
    fixture.advance(minutes(24 * 60)).await;
    assert_eq!(run::<F>(&runner).await, 0);
    assert_eq!(
        statuses::<F>(&runner).await,
        [(FollowUpStatus::Succeeded, 1), (FollowUpStatus::Abandoned, 1)]
    );
}

/// After a runner died, another makes the same call: with the same idempotency key, as the next attempt (C5 41, 45).
pub async fn an_expired_lease_is_reclaimed_with_the_same_idempotency_key<F: SagaFixture>(fixture: F) {
    let ids = follow_up(&fixture, [erase("customer-1", "payments")]).await;
    let dead = claim(&fixture.store(), QUEUE, 10).await;
    assert_eq!(dead.len(), 1);
    let payments = Scripted::done("payments");
    let runner = runner(&fixture, &[&payments]);
    assert_eq!(run::<F>(&runner).await, 0, "it is leased");
    assert_eq!(statuses::<F>(&runner).await, [(FollowUpStatus::InFlight, 1)]);
    expire_leases(&fixture).await;
    assert_eq!(run::<F>(&runner).await, 1);
    assert_eq!(*payments.calls.lock().unwrap(), [("customer-1".to_owned(), ids[0], 2)]);
}

/// Two concurrent runners: each follow-up is called once (C5 42).
pub async fn two_runners_call_each_follow_up_once<F: SagaFixture>(fixture: F) {
    let payments = Scripted::done("payments");
    let all: Vec<_> = (0..200).map(|number| erase(&format!("customer-{number}"), "payments")).collect();
    follow_up(&fixture, all).await;
    let (one, other) = (runner(&fixture, &[&payments]), runner(&fixture, &[&payments]));
    let (one, other) = tokio::join!(run::<F>(&one), run::<F>(&other));
    assert_eq!(one + other, 200);
    let subjects = payments.subjects();
    assert_eq!((subjects.len(), subjects.iter().collect::<HashSet<_>>().len()), (200, 200));
}

/// Attempts are 30, 60, 120 … 3600 s apart, by the store's clock (C5 43).
pub async fn retries_follow_the_backoff_exactly<F: SagaFixture>(fixture: F) {
    let payments = Scripted::new("payments", |_| Err(Failure::retry("away")));
    let began = Instant::now();
    follow_up(&fixture, [erase("customer-1", "payments")]).await;
    let runner = builder(&fixture, &[&payments]).max_attempts(20).build().unwrap();
    let mut advanced = Duration::ZERO;
    for expected in [30, 60, 120, 240, 480, 960, 1920, 3600, 3600] {
        assert_eq!(runner.run_batch().await.unwrap().claimed, 1);
        let overdue = runner.overdue(Duration::ZERO, 10).await.unwrap();
        let waiting = &overdue[0];
        assert_eq!((overdue.len(), waiting.status), (1, FollowUpStatus::Failed));
        // Staged this long ago, of which the test itself took a part.
        let after = waiting.at.duration_since(waiting.staged_at).unwrap() - advanced;
        let expected = Duration::from_secs(expected);
        assert!((expected..=expected + began.elapsed()).contains(&after), "{after:?}, not {expected:?}");
        assert_eq!(runner.run_batch().await.unwrap().claimed, 0, "not before its time");
        fixture.advance(expected).await;
        advanced += expected;
    }
    assert_eq!(audited(&fixture, "customer-1").await, [], "failed attempts are not audited");
}

/// The eighth attempt is the last (C5 44).
pub async fn the_last_failed_attempt_abandons_the_follow_up<F: SagaFixture>(fixture: F) {
    let payments = Scripted::new("payments", |_| Err(Failure::retry("away").named("Away")));
    follow_up(&fixture, [erase("customer-1", "payments")]).await;
    let runner = runner(&fixture, &[&payments]);
    for _ in 0..8 {
        assert_eq!(runner.run_batch().await.unwrap().claimed, 1);
        fixture.advance(minutes(60)).await;
    }
    assert_eq!(run::<F>(&runner).await, 0);
    assert_eq!(payments.count(), 8);
    let abandoned = runner.list_abandoned(10).await.unwrap();
    assert_eq!(
        (abandoned.len(), abandoned[0].deliveries, abandoned[0].error.as_deref()),
        (1, 8, Some("Away"))
    );
    assert_eq!(list(&fixture, QUEUE, StateFilter::Dead).await[0].reason, Some(Reason::RetriesExhausted));
    assert_eq!(audited(&fixture, "customer-1").await, [AuditKind::Abandoned]);
}

/// Calls that began alone count: a follow-up that kills its runner is abandoned without another call. Claims alone do not: the
/// follow-up may only have been in flight when another one killed the runner.
pub async fn a_follow_up_that_kills_its_runner_is_abandoned<F: SagaFixture>(fixture: F) {
    follow_up(&fixture, [erase("customer-1", "payments")]).await;
    for _ in 0..27 {
        assert_eq!(claim(&fixture.store(), QUEUE, 10).await.len(), 1);
        expire_leases(&fixture).await;
    }
    for _ in 0..8 {
        let claimed = claim(&fixture.store(), QUEUE, 10).await;
        assert_eq!((claimed.len(), claimed[0].begun()), (1, claimed[0].isolated));
        assert!(fixture.store().count_isolated(&claimed[0].lease).await.unwrap());
        expire_leases(&fixture).await;
    }
    let payments = Scripted::done("payments");
    let runner = runner(&fixture, &[&payments]);
    assert_eq!(run::<F>(&runner).await, 1);
    assert_eq!((payments.count(), statuses::<F>(&runner).await), (0, vec![(FollowUpStatus::Abandoned, 1)]));
    assert_eq!(list(&fixture, QUEUE, StateFilter::Dead).await[0].reason, Some(Reason::MaxDeliveries));
}

/// A crash loop abandons no follow-up whose call is not known to have begun.
pub async fn a_crash_loop_abandons_no_prefetched_follow_up<F: SagaFixture>(fixture: F) {
    follow_up(&fixture, [erase("customer-1", "payments")]).await;
    for _ in 0..27 {
        assert_eq!(claim(&fixture.store(), QUEUE, 10).await.len(), 1);
        expire_leases(&fixture).await;
    }
    let payments = Scripted::new("payments", |call| match call.attempt() {
        28 => Err(Failure::retry("away").named("Away")),
        _ => Ok(Resolution::Done),
    });
    let runner = runner(&fixture, &[&payments]);
    assert_eq!(run::<F>(&runner).await, 1);
    fixture.advance(minutes(60)).await;
    assert_eq!(run::<F>(&runner).await, 1);
    assert_eq!(payments.count(), 2, "its first failure is retried");
    assert_eq!(list(&fixture, QUEUE, StateFilter::Dead).await, []);
}

/// A rejection is final, and affects no other (C5 44).
pub async fn a_rejection_is_abandoned_at_once_and_blocks_nothing<F: SagaFixture>(fixture: F) {
    keep(&fixture).await;
    let payments = Scripted::new("payments", |call| match call.subject().as_str() {
        "customer-1" => Err(Failure::reject("not ours").named("NotOurs")),
        _ => Ok(Resolution::Done),
    });
    let all: Vec<_> = (0..3).map(|number| erase(&format!("customer-{number}"), "payments")).collect();
    follow_up(&fixture, all).await;
    let runner = runner(&fixture, &[&payments]);
    assert_eq!(run::<F>(&runner).await, 3);
    assert_eq!(
        statuses::<F>(&runner).await,
        [(FollowUpStatus::Succeeded, 2), (FollowUpStatus::Abandoned, 1)]
    );
    let abandoned = runner.list_abandoned(10).await.unwrap();
    assert_eq!((abandoned[0].error.as_deref(), abandoned[0].deliveries), (Some("NotOurs"), 1));
}

/// No resolver has this name, or none supports the operation: abandoned at once, and audited (C5 44).
pub async fn a_follow_up_without_a_resolver_is_abandoned_at_once<F: SagaFixture>(fixture: F) {
    let payments = Scripted::done("payments");
    let odd = postrider_core::FollowUp::new("customer-2", "payments", "frame", Reference::new("k", "v"));
    follow_up(&fixture, [erase("customer-1", "nobody"), odd.unwrap(), erase("customer-3", "payments")]).await;
    let runner = runner(&fixture, &[&payments]);
    assert_eq!(run::<F>(&runner).await, 3);
    let mut errors: Vec<_> =
        runner.list_abandoned(10).await.unwrap().into_iter().map(|row| row.error).collect();
    errors.sort();
    assert_eq!(errors, [Some("UnknownResolver".to_owned()), Some("UnsupportedOperation".to_owned())]);
    assert_eq!(payments.subjects(), ["customer-3"]);
    assert_eq!(audited(&fixture, "customer-1").await, [AuditKind::Abandoned]);
}

/// Any message can be staged in the queue; one that is not a follow-up is dead-lettered and does not block the rest.
pub async fn a_message_that_is_no_follow_up_is_dead_lettered<F: SagaFixture>(fixture: F) {
    let stray = Message::builder(QUEUE).payload("{}").build().unwrap();
    stage(&fixture, &[stray, erase("customer-1", "payments").into_message().unwrap()]).await;
    let payments = Scripted::done("payments");
    let runner = runner(&fixture, &[&payments]);
    assert_eq!(run::<F>(&runner).await, 2);
    assert_eq!(payments.count(), 1);
    let dead = list(&fixture, QUEUE, StateFilter::Dead).await;
    assert_eq!((dead[0].reason, dead[0].error.as_deref()), (Some(Reason::Undecodable), Some("NoFollowUp")));
}

/// `AlreadyGone` is success (C5 45).
pub async fn already_gone_counts_as_success<F: SagaFixture>(fixture: F) {
    keep(&fixture).await;
    let payments = Scripted::new("payments", |_| Ok(Resolution::AlreadyGone));
    follow_up(&fixture, [erase("customer-1", "payments")]).await;
    let runner = runner(&fixture, &[&payments]);
    run::<F>(&runner).await;
    assert_eq!(statuses::<F>(&runner).await, [(FollowUpStatus::Succeeded, 1)]);
    assert_eq!(audited(&fixture, "customer-1").await, [AuditKind::Succeeded, AuditKind::Completed]);
}

/// Neither a panic nor a timeout stops the runner.
pub async fn a_panic_and_a_timeout_are_failed_attempts<F: SagaFixture>(fixture: F) {
    let payments = Scripted::new("payments", |_| panic!("on purpose"));
    follow_up(&fixture, [erase("customer-1", "payments"), erase("customer-2", "endless")]).await;
    let runner =
        builder(&fixture, &[&payments]).resolver(Endless).timeout(Duration::from_millis(10)).build().unwrap();
    assert_eq!(run::<F>(&runner).await, 2);
    let mut errors: Vec<_> =
        runner.overdue(Duration::ZERO, 10).await.unwrap().into_iter().map(|row| row.error).collect();
    errors.sort();
    assert_eq!(errors, [Some("Panic".to_owned()), Some("Timeout".to_owned())]);
    assert_eq!(statuses::<F>(&runner).await, [(FollowUpStatus::Failed, 2)]);
}

struct Endless;

#[async_trait::async_trait]
impl postrider_engine::saga::Resolver for Endless {
    fn name(&self) -> &str {
        "endless"
    }

    fn operations(&self) -> &[&str] {
        &["erase"]
    }

    async fn resolve(&self, _: &postrider_engine::saga::ResolverCall) -> Result<Resolution, Failure> {
        std::future::pending().await
    }
}

/// A runner in the background is woken by a commit, and stops cleanly.
pub async fn a_running_runner_is_woken_and_stops_cleanly<F: SagaFixture>(fixture: F) {
    keep(&fixture).await;
    let (audited, mut completions) = tokio::sync::mpsc::unbounded_channel();
    let payments = Scripted::done("payments");
    let runner: SagaRunner<F::Sagas> = builder(&fixture, &[&payments])
        .on_complete(move |tx, completed| {
            audited.send(completed.subject.to_string()).unwrap();
            async move {
                drop(tx);
                Ok(())
            }
        })
        .build()
        .unwrap();
    let running = runner.start();
    let all: Vec<_> = (0..20).map(|number| erase(&format!("customer-{number:02}"), "payments")).collect();
    follow_up(&fixture, all).await;
    let mut completed = Vec::new();
    for _ in 0..20 {
        completed.push(completions.recv().await.unwrap());
    }
    completed.sort();
    completed.dedup();
    assert_eq!(completed.len(), 20);
    let stopped = running.stop(Duration::from_secs(30)).await;
    assert_eq!((stopped.clean, stopped.report.delivered), (true, 20));
    assert_eq!(statuses::<F>(&runner).await, [(FollowUpStatus::Succeeded, 20)]);
}

/// The payload is kept while it is needed: after a failed attempt, but not after the end.
pub async fn a_finished_follow_up_keeps_no_payload<F: SagaFixture>(fixture: F) {
    keep(&fixture).await;
    let payments = Scripted::new("payments", |call| match (call.subject().as_str(), call.attempt()) {
        ("customer-1", 1) => Err(Failure::retry("away")),
        ("customer-2", _) => Err(Failure::reject("no")),
        _ => call.json::<String>().map(|_| Resolution::Done),
    });
    let with = |subject: &str| erase(subject, "payments").with_json("a new name").unwrap();
    follow_up(&fixture, [with("customer-1"), with("customer-2")]).await;
    let runner = runner(&fixture, &[&payments]);
    run::<F>(&runner).await;
    let waiting = runner.overdue(Duration::ZERO, 10).await.unwrap();
    let failed = waiting.iter().find(|row| row.status == FollowUpStatus::Failed).unwrap();
    assert_eq!(failed.message.payload().as_ref(), b"\"a new name\"");
    fixture.advance(minutes(1)).await;
    run::<F>(&runner).await;
    for filter in [StateFilter::Dead, StateFilter::Done] {
        let ended = list(&fixture, QUEUE, filter).await;
        assert_eq!((ended.len(), ended[0].message.payload().len()), (1, 0), "{filter:?}");
    }
}
