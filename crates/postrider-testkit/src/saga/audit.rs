//! The audit chain: written before the result counts, complete, and without personal data.

use super::{SagaFixture, helpers::*};
use postrider_core::{
    AuditError, AuditEvent, AuditKind, FollowUpExt as _, SubjectId, TxBackend,
    audit::verify,
    follow_up::{FollowUpStatus, QUEUE},
    inspect::StateFilter,
};
use postrider_engine::{Failure, saga::Resolution};
use std::{
    collections::HashSet,
    sync::atomic::Ordering::SeqCst,
    time::{Duration, SystemTime},
};
use uuid::Uuid;

fn event(subject: &str) -> AuditEvent {
    let subject = Some(SubjectId::new(subject).unwrap());
    AuditEvent { subject, ..AuditEvent::new(AuditKind::Succeeded) }
}

/// Events are read by subject, and since a time; in the order of appending.
pub async fn appended_events_are_read_back<F: SagaFixture>(fixture: F) {
    let ledger = fixture.chain();
    let events: Vec<AuditEvent> = (0..6).map(|number| event(&format!("customer-{}", number % 2))).collect();
    for pair in events.chunks(2) {
        ledger.append(pair).await.unwrap();
    }
    let read = ledger.read(&SubjectId::new("customer-1").unwrap()).await.unwrap();
    let ids: Vec<Uuid> = read.iter().map(|recorded| recorded.event.id).collect();
    assert_eq!(ids, [events[1].id, events[3].id, events[5].id]);
    assert_eq!(read[0].event, events[1]);
    let all = ledger.read_since(SystemTime::UNIX_EPOCH, 100).await.unwrap();
    let positions: Vec<u64> = all.iter().map(|recorded| recorded.position).collect();
    assert_eq!(positions, [1, 2, 3, 4, 5, 6]);
    // Inclusive: a read since the event's own time returns it.
    let since = ledger.read_since(all[3].at, 100).await.unwrap();
    assert!(since.iter().any(|recorded| recorded.event.id == events[3].id));
    assert_eq!(ledger.read_since(SystemTime::UNIX_EPOCH, 2).await.unwrap().len(), 2);
    let future = all[5].at + Duration::from_secs(3600);
    assert_eq!(ledger.read_since(future, 100).await.unwrap(), []);
    assert_eq!(ledger.read(&SubjectId::new("nobody").unwrap()).await.unwrap(), []);
}

/// A known identity is rejected.
pub async fn an_event_is_appended_once<F: SagaFixture>(fixture: F) {
    let ledger = fixture.chain();
    let one = event("customer-1");
    ledger.append(std::slice::from_ref(&one)).await.unwrap();
    match ledger.append(&[event("customer-2"), one.clone()]).await {
        Err(AuditError::Duplicate(id)) => assert_eq!(id, one.id),
        other => panic!("{other:?}"),
    }
    assert_eq!(verify(&*ledger, None).await.unwrap().position, 1);
}

/// A batch with one invalid event appends nothing.
pub async fn a_batch_is_appended_completely_or_not_at_all<F: SagaFixture>(fixture: F) {
    let ledger = fixture.chain();
    let twin = event("customer-1");
    let batch = [event("customer-1"), twin.clone(), twin];
    assert!(matches!(ledger.append(&batch).await, Err(AuditError::Duplicate(_))));
    assert_eq!(verify(&*ledger, None).await.unwrap().position, 0);
    ledger.append(&[]).await.unwrap();
    ledger.append(&batch[..2]).await.unwrap();
    assert_eq!(verify(&*ledger, None).await.unwrap().position, 2);
}

/// An event recorded in the application's transaction exists if and only if the transaction commits.
pub async fn recorded_events_commit_with_their_transaction<F: SagaFixture>(fixture: F) {
    let sagas = fixture.sagas();
    let mut undone = fixture.begin().await;
    sagas.record(&mut undone, &[event("customer-1")]).await.unwrap();
    fixture.rollback(undone).await;
    let mut tx = fixture.begin().await;
    sagas.record(&mut tx, &[event("customer-2"), event("customer-2")]).await.unwrap();
    fixture.commit(tx).await;
    assert_eq!(audited(&fixture, "customer-1").await, []);
    assert_eq!(audited(&fixture, "customer-2").await.len(), 2);
    assert_eq!(verify(&*fixture.chain(), None).await.unwrap().position, 2);
}

/// Concurrent appends result in one chain without gaps.
pub async fn concurrent_appenders_leave_one_chain<F: SagaFixture>(fixture: F) {
    let appenders: Vec<_> = (0..4)
        .map(|number| {
            let ledger = fixture.chain();
            tokio::spawn(async move {
                for _ in 0..25 {
                    ledger.append(&[event(&format!("customer-{number}"))]).await.unwrap();
                }
            })
        })
        .collect();
    for appender in appenders {
        appender.await.unwrap();
    }
    let head = verify(&*fixture.chain(), None).await.unwrap();
    assert_eq!(head.position, 100);
    assert_eq!(verify(&*fixture.chain(), Some(head)).await.unwrap(), head);
}

/// Every outcome has its event; a failed attempt that is retried has none.
pub async fn every_outcome_is_audited_and_failed_attempts_are_not<F: SagaFixture>(fixture: F) {
    let payments = Scripted::new("payments", |call| match (call.subject().as_str(), call.attempt()) {
        ("refused", _) => Err(Failure::reject("no").named("NotOurs")),
        (_, 1) => Err(Failure::retry("away")),
        _ => Ok(Resolution::Done),
    });
    let ids = follow_up(&fixture, [erase("refused", "payments"), erase("customer-1", "payments")]).await;
    let runner = runner(&fixture, &[&payments]);
    run::<F>(&runner).await;
    fixture.advance(minutes(1)).await;
    run::<F>(&runner).await;
    assert_eq!(audited(&fixture, "customer-1").await, [AuditKind::Succeeded, AuditKind::Completed]);
    let refused = fixture.chain().read(&SubjectId::new("refused").unwrap()).await.unwrap();
    let event = &refused[0].event;
    assert_eq!((refused.len(), event.kind, event.follow_up), (1, AuditKind::Abandoned, Some(ids[0])));
    assert_eq!((event.error.as_deref(), event.attempt), (Some("NotOurs"), Some(1)));
    assert_eq!(event.resolver.as_ref().unwrap().as_str(), "payments");
    assert_eq!(verify(&*fixture.chain(), None).await.unwrap().position, 3);
}

/// The sink is unavailable: the follow-up stays leased, is called again, and no event is missing in the end (C5 46).
pub async fn an_unavailable_sink_leaves_the_follow_up_leased_until_it_recovers<F: SagaFixture>(fixture: F) {
    keep(&fixture).await;
    let sink = Flaky::default();
    sink.outages.store(2, SeqCst);
    let payments = Scripted::new("payments", |call| match call.subject().as_str() {
        "refused" => Err(Failure::reject("no")),
        _ => Ok(Resolution::Done),
    });
    follow_up(&fixture, [erase("customer-1", "payments"), erase("refused", "payments")]).await;
    let runner = builder(&fixture, &[&payments]).audit(sink.clone()).build().unwrap();
    assert_eq!(run::<F>(&runner).await, 2);
    assert_eq!(statuses::<F>(&runner).await, [(FollowUpStatus::InFlight, 2)]);
    assert_eq!(sink.kinds(), []);
    expire_leases(&fixture).await;
    assert_eq!(run::<F>(&runner).await, 2);
    assert_eq!(
        statuses::<F>(&runner).await,
        [(FollowUpStatus::Succeeded, 1), (FollowUpStatus::Abandoned, 1)]
    );
    let kinds: HashSet<AuditKind> = sink.kinds().into_iter().collect();
    assert_eq!(
        (sink.kinds().len(), kinds),
        (3, [AuditKind::Succeeded, AuditKind::Completed, AuditKind::Abandoned].into())
    );
}

/// The same during a completion: it completes once, when the sink is back.
pub async fn a_sink_outage_at_completion_delays_the_completion<F: SagaFixture>(fixture: F) {
    let sink = Flaky { only: Some(AuditKind::Completed), ..Flaky::default() };
    sink.outages.store(1, SeqCst);
    let payments = Scripted::done("payments");
    follow_up(&fixture, [erase("customer-1", "payments")]).await;
    let runner =
        builder(&fixture, &[&payments]).audit(sink.clone()).complete_to("completed").build().unwrap();
    assert_eq!(run::<F>(&runner).await, 1);
    assert_eq!(statuses::<F>(&runner).await, [(FollowUpStatus::InFlight, 1)]);
    assert_eq!(list(&fixture, "completed", StateFilter::Ready).await.len(), 0);
    expire_leases(&fixture).await;
    assert_eq!(run::<F>(&runner).await, 1);
    assert_eq!(list(&fixture, "completed", StateFilter::Ready).await.len(), 1);
    // The success was appended twice, because the first transaction failed: duplicates, but no gap.
    assert_eq!(sink.kinds(), [AuditKind::Succeeded, AuditKind::Succeeded, AuditKind::Completed]);
}

/// A rolled-back change leaves no follow-up; events sent to an external sink meanwhile stay (C5 52).
pub async fn events_in_an_external_sink_outlive_a_rollback<F: SagaFixture>(fixture: F) {
    fixture.chain().append(&[event("customer-1")]).await.unwrap();
    let mut tx = fixture.begin().await;
    fixture.outbox().follow_up(&mut tx, [erase("customer-1", "payments")]).await.unwrap();
    fixture.rollback(tx).await;
    let payments = Scripted::done("payments");
    let runner = runner(&fixture, &[&payments]);
    assert_eq!((run::<F>(&runner).await, statuses::<F>(&runner).await), (0, vec![]));
    assert_eq!(audited(&fixture, "customer-1").await, [AuditKind::Succeeded]);
}

/// After a follow-up has finished, error texts and payloads are stored nowhere.
pub async fn no_personal_data_is_audited<F: SagaFixture>(fixture: F) {
    const CANARY: &str = "canary-4711";
    keep(&fixture).await;
    let payments = Scripted::new("payments", |call| match (call.subject().as_str(), call.attempt()) {
        ("panicking", 1) => panic!("{CANARY}"),
        ("failing", 1..8) => Err(Failure::retry(CANARY)),
        ("failing", _) => Err(Failure::from(CANARY)),
        ("refused", _) => Err(Failure::reject(CANARY)),
        ("unreadable", _) => call.json::<u64>().map(|_| Resolution::Done),
        _ => Ok(Resolution::AlreadyGone),
    });
    let subjects = ["panicking", "failing", "refused", "unreadable", "customer-1"];
    let all: Vec<_> =
        subjects.iter().map(|subject| erase(subject, "payments").with_json(CANARY).unwrap()).collect();
    follow_up(&fixture, all).await;
    let runner = runner(&fixture, &[&payments]);
    for _ in 0..9 {
        run::<F>(&runner).await;
        fixture.advance(minutes(61)).await;
    }
    let ended = [(FollowUpStatus::Succeeded, 2), (FollowUpStatus::Abandoned, 3)];
    assert_eq!(statuses::<F>(&runner).await, ended);
    let mut kept = format!("{:?}", fixture.chain().links(0, 1_000).await.unwrap());
    for filter in [StateFilter::Ready, StateFilter::Scheduled, StateFilter::Dead, StateFilter::Done] {
        kept += &format!("{:?}", list(&fixture, QUEUE, filter).await);
    }
    assert!(kept.contains("refused") && !kept.contains(CANARY), "{kept}");
}
