//! Completion: the last follow-up of a subject succeeds.

use super::{SagaFixture, helpers::*};
use postrider_core::{
    AuditKind, FollowUp, OutboxExt as _, Reference, TenantId,
    follow_up::{FollowUpStatus, QUEUE},
    inspect::{Action, StateFilter},
};
use postrider_engine::{
    Failure,
    saga::{Completion, Resolution, SagaRunnerBuilder},
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

/// The completions that a runner has reported, including those whose transaction did not commit.
type Completions = Arc<Mutex<Vec<Completion>>>;

fn noting<F: SagaFixture>(
    builder: SagaRunnerBuilder<F::Sagas>,
    completions: &Completions,
) -> SagaRunnerBuilder<F::Sagas> {
    let completions = Arc::clone(completions);
    builder.on_complete(move |_, completed| {
        completions.lock().unwrap().push(completed);
        async { Ok(()) }
    })
}

fn subjects(completions: &Completions) -> Vec<String> {
    completions.lock().unwrap().iter().map(|completed| completed.subject.to_string()).collect()
}

/// The last of several, and no other.
pub async fn the_last_follow_up_completes_the_operation<F: SagaFixture>(fixture: F) {
    let [payments, mailer] = ["payments", "mailer"].map(Scripted::done);
    let completions = Completions::default();
    let runner =
        noting::<F>(builder(&fixture, &[&payments, &mailer]).concurrency(1), &completions).build().unwrap();
    follow_up(&fixture, [erase("customer-1", "payments"), erase("customer-1", "mailer")]).await;
    assert_eq!(runner.run_batch().await.unwrap().claimed, 1);
    assert_eq!(subjects(&completions), [""; 0]);
    assert_eq!(runner.run_batch().await.unwrap().claimed, 1);
    assert_eq!(subjects(&completions), ["customer-1"]);
    let kinds = [AuditKind::Succeeded, AuditKind::Succeeded, AuditKind::Completed];
    assert_eq!(audited(&fixture, "customer-1").await, kinds);
}

/// Follow-ups that differ in one of these do not belong together.
pub async fn operations_queues_and_tenants_complete_separately<F: SagaFixture>(fixture: F) {
    let payments = Scripted::new("payments", |call| match call.operation().as_str() {
        "rectify" => Err(Failure::reject("no")),
        _ => Ok(Resolution::Done),
    });
    let completions = Completions::default();
    let runner = noting::<F>(builder(&fixture, &[&payments]), &completions).build().unwrap();
    let rectify = FollowUp::new("customer-1", "payments", "rectify", Reference::new("k", "v")).unwrap();
    let elsewhere = erase("customer-1", "payments").in_queue(queue("other-calls"));
    let acme = erase("customer-1", "payments").of_tenant(TenantId::new("acme").unwrap());
    follow_up(&fixture, [rectify, elsewhere, acme, erase("customer-1", "payments")]).await;
    assert_eq!(run::<F>(&runner).await, 3, "one is in another queue");
    let mut seen: Vec<_> = completions
        .lock()
        .unwrap()
        .iter()
        .map(|completed| {
            (completed.operation.to_string(), completed.tenant.clone().map(|tenant| tenant.to_string()))
        })
        .collect();
    seen.sort();
    assert_eq!(seen, [("erase".to_owned(), None), ("erase".to_owned(), Some("acme".to_owned()))]);
}

/// Two runners finish the last two follow-ups of many subjects concurrently: each subject completes once (C5 42).
pub async fn two_concurrent_finishers_report_one_completion<F: SagaFixture>(fixture: F) {
    const SUBJECTS: usize = 100;
    let names: Vec<String> = (0..SUBJECTS).map(|number| format!("customer-{number:03}")).collect();
    let all = ["payments", "mailer"]
        .iter()
        .flat_map(|resolver| names.iter().map(|name| erase(name, resolver)).collect::<Vec<_>>());
    follow_up(&fixture, all).await;
    let [payments, mailer] = ["payments", "mailer"].map(Scripted::done);
    let build = || builder(&fixture, &[&payments, &mailer]).complete_to("completed").build().unwrap();
    let (one, other) = (build(), build());
    let (one, other) = tokio::join!(run::<F>(&one), run::<F>(&other));
    assert_eq!(one + other, 2 * SUBJECTS as u64);
    let mut completed: BTreeMap<String, u32> = BTreeMap::new();
    for entry in list(&fixture, "completed", StateFilter::Ready).await {
        *completed.entry(entry.message.subject().unwrap().to_string()).or_default() += 1;
    }
    assert_eq!(completed, names.into_iter().map(|name| (name, 1)).collect());
}

/// Messages that the callback stages commit with the success; a callback that fails is retried with the call.
pub async fn writes_of_the_completion_hook_commit_with_the_completion<F: SagaFixture>(fixture: F) {
    keep(&fixture).await;
    let payments = Scripted::done("payments");
    let (outbox, is_broken) = (fixture.outbox(), Arc::new(AtomicBool::new(true)));
    let broken = Arc::clone(&is_broken);
    let runner = builder(&fixture, &[&payments])
        .on_complete(move |mut tx, completed| {
            let (outbox, broken) = (outbox.clone(), Arc::clone(&broken));
            async move {
                let farewell = message("farewells").subject(completed.subject.as_str());
                Box::pin(outbox.stage(&mut *tx, farewell)).await?;
                if broken.load(SeqCst) { Err(Failure::retry("on purpose").named("Broken")) } else { Ok(()) }
            }
        })
        .build()
        .unwrap();
    follow_up(&fixture, [erase("customer-1", "payments")]).await;
    run::<F>(&runner).await;
    assert_eq!(statuses::<F>(&runner).await, [(FollowUpStatus::Failed, 1)]);
    assert_eq!(list(&fixture, "farewells", StateFilter::Ready).await.len(), 0);
    assert_eq!(audited(&fixture, "customer-1").await, [], "nothing has happened");
    is_broken.store(false, SeqCst);
    fixture.advance(minutes(1)).await;
    run::<F>(&runner).await;
    assert_eq!(statuses::<F>(&runner).await, [(FollowUpStatus::Succeeded, 1)]);
    assert_eq!(list(&fixture, "farewells", StateFilter::Ready).await.len(), 1);
    let calls: Vec<_> =
        payments.calls.lock().unwrap().iter().map(|(_, key, attempt)| (*key, *attempt)).collect();
    assert_eq!((calls.len(), calls[0].0, calls[1].1), (2, calls[1].0, 2), "the same call, a second time");
}

/// A callback that panics or exceeds its timeout has failed: the runner goes on, nothing stays locked, and the call is retried.
pub async fn a_completion_hook_that_panics_or_hangs_is_a_failure<F: SagaFixture>(fixture: F) {
    keep(&fixture).await;
    let payments = Scripted::done("payments");
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let runner = builder(&fixture, &[&payments])
        .timeout(Duration::from_millis(200))
        .on_complete(move |tx, _| {
            let run = counted.fetch_add(1, SeqCst);
            async move {
                assert!(run != 0, "a callback panics");
                if run == 1 {
                    std::future::pending::<()>().await;
                }
                drop(tx);
                Ok(())
            }
        })
        .build()
        .unwrap();
    follow_up(&fixture, [erase("customer-1", "payments")]).await;
    for expected in [FollowUpStatus::Failed, FollowUpStatus::Failed, FollowUpStatus::Succeeded] {
        run::<F>(&runner).await;
        assert_eq!(statuses::<F>(&runner).await, [(expected, 1)]);
        fixture.advance(minutes(10)).await;
    }
    assert_eq!(runs.load(SeqCst), 3);
    assert_eq!(
        audited(&fixture, "customer-1").await,
        [AuditKind::Succeeded, AuditKind::Completed],
        "nothing had happened before"
    );
}

/// A completion can be reported as a message instead.
pub async fn a_completion_message_is_staged<F: SagaFixture>(fixture: F) {
    let payments = Scripted::done("payments");
    let runner = builder(&fixture, &[&payments]).complete_to("completed").build().unwrap();
    follow_up(&fixture, [erase("customer-1", "payments").of_tenant(TenantId::new("acme").unwrap())]).await;
    run::<F>(&runner).await;
    let audited = list(&fixture, "completed", StateFilter::Ready).await;
    assert_eq!(audited.len(), 1);
    let message = &audited[0].message;
    assert_eq!(message.event_type().unwrap().as_str(), "follow-ups.completed");
    assert_eq!(message.tenant().unwrap().as_str(), "acme");
    let body: serde_json::Value = serde_json::from_slice(message.payload()).unwrap();
    let expected = serde_json::json!({
        "ended": "completed", "queue": QUEUE, "tenant": "acme", "subject": "customer-1", "operation": "erase"
    });
    assert_eq!(body, expected);
}

/// An abandoned follow-up keeps its subject incomplete; requeued and done, it completes it (C5 47).
pub async fn an_abandoned_sibling_blocks_completion_until_it_is_requeued<F: SagaFixture>(fixture: F) {
    let is_refused = Arc::new(AtomicBool::new(true));
    let refused = Arc::clone(&is_refused);
    let payments = Scripted::done("payments");
    let mailer = Scripted::new("mailer", move |_| {
        if refused.load(SeqCst) { Err(Failure::reject("no")) } else { Ok(Resolution::Done) }
    });
    let completions = Completions::default();
    let runner = noting::<F>(builder(&fixture, &[&payments, &mailer]), &completions).build().unwrap();
    let ids = follow_up(&fixture, [erase("customer-1", "mailer"), erase("customer-1", "payments")]).await;
    run::<F>(&runner).await;
    assert_eq!(subjects(&completions), [""; 0]);
    is_refused.store(false, SeqCst);
    let requeued = runner.requeue(&ids[..1], &Action::new("ada", "they are back")).await.unwrap();
    assert_eq!(requeued.requeued, ids[..1]);
    run::<F>(&runner).await;
    assert_eq!(subjects(&completions), ["customer-1"]);
    let mut kinds = audited(&fixture, "customer-1").await;
    assert_eq!(kinds.split_off(2), [AuditKind::Requeued, AuditKind::Succeeded, AuditKind::Completed]);
}

/// So does a follow-up that is scheduled for later.
pub async fn a_scheduled_sibling_blocks_completion<F: SagaFixture>(fixture: F) {
    let payments = Scripted::done("payments");
    let archive = Scripted::new("archive", |call| match call.attempt() {
        1 => Err(Failure::snooze(minutes(60))),
        _ => Ok(Resolution::Done),
    });
    let completions = Completions::default();
    let runner = noting::<F>(builder(&fixture, &[&payments, &archive]), &completions).build().unwrap();
    follow_up(&fixture, [erase("customer-1", "archive"), erase("customer-1", "payments")]).await;
    run::<F>(&runner).await;
    assert_eq!(subjects(&completions), [""; 0]);
    assert_eq!(statuses::<F>(&runner).await.first(), Some(&(FollowUpStatus::Scheduled, 1)));
}

/// Completion spans runs: a later follow-up completes the subject again.
pub async fn a_later_follow_up_completes_the_operation_again<F: SagaFixture>(fixture: F) {
    keep(&fixture).await;
    let payments = Scripted::done("payments");
    let completions = Completions::default();
    let runner = noting::<F>(builder(&fixture, &[&payments]), &completions).build().unwrap();
    for _ in 0..2 {
        follow_up(&fixture, [erase("customer-1", "payments")]).await;
        run::<F>(&runner).await;
    }
    assert_eq!(subjects(&completions), ["customer-1", "customer-1"]);
}
