//! Operator actions on follow-ups.

use super::{SagaFixture, helpers::*};
use postrider_core::{
    AuditKind, OnFailure, QueuePolicy, SubjectId,
    follow_up::{ErasureReport, FollowUpStatus, QUEUE, StatusCounts},
    inspect::{Action, StateFilter},
};
use postrider_engine::{
    Failure,
    saga::{RequeueError, Resolution},
};
use std::{sync::atomic::Ordering::SeqCst, time::Duration};

fn ada() -> Action {
    Action::new("ada", "they are back")
}

/// One in each status.
async fn one_of_each<F: SagaFixture>(fixture: &F) -> postrider_engine::SagaRunner<F::Sagas> {
    keep(fixture).await;
    let payments = Scripted::new("payments", |call| match call.subject().as_str() {
        "failing" => Err(Failure::retry("away")),
        "scheduled" => Err(Failure::snooze(minutes(60))),
        "refused" => Err(Failure::reject("no")),
        _ => Ok(Resolution::Done),
    });
    let runner = runner(fixture, &[&payments]);
    for subject in ["failing", "scheduled", "refused", "done"] {
        follow_up(fixture, [erase(subject, "payments")]).await;
        assert_eq!(run::<F>(&runner).await, 1);
    }
    follow_up(fixture, [erase("in-flight", "payments")]).await;
    assert_eq!(claim(&fixture.store(), QUEUE, 10).await.len(), 1);
    follow_up(fixture, [erase("pending", "payments")]).await;
    runner
}

/// Every status is listed, zero or not, and reading changes nothing (C5 51).
pub async fn counts_are_zero_filled_and_agree_with_a_scan<F: SagaFixture>(fixture: F) {
    let empty = runner(&fixture, &[&Scripted::done("payments")]).status_counts().await.unwrap();
    assert_eq!(empty, StatusCounts::default());
    assert_eq!(empty.iter().len(), FollowUpStatus::ALL.len());
    let runner = one_of_each(&fixture).await;
    let counts = runner.status_counts().await.unwrap();
    for status in FollowUpStatus::ALL {
        assert_eq!(counts.of(status), 1, "{status}");
    }
    let scanned = runner.overdue(Duration::ZERO, 100).await.unwrap();
    let mut statuses: Vec<_> = scanned.iter().map(|row| row.status).collect();
    statuses.sort();
    assert_eq!(
        statuses,
        [
            FollowUpStatus::Pending,
            FollowUpStatus::InFlight,
            FollowUpStatus::Failed,
            FollowUpStatus::Scheduled,
            FollowUpStatus::Abandoned
        ]
    );
    assert_eq!(list(&fixture, QUEUE, StateFilter::Done).await.len(), 1);
    assert_eq!(runner.status_counts().await.unwrap(), counts, "looking changed nothing");
}

/// Abandoned: the longest ago first. Scheduled: the nearest first.
pub async fn lists_are_ordered_and_limited<F: SagaFixture>(fixture: F) {
    let payments = Scripted::new("payments", |call| match call.subject().as_str() {
        "far" => Err(Failure::snooze(minutes(60))),
        "near" => Err(Failure::snooze(minutes(5))),
        _ => Err(Failure::reject("no")),
    });
    let runner = runner(&fixture, &[&payments]);
    for subject in ["far", "first", "near", "second", "third"] {
        follow_up(&fixture, [erase(subject, "payments")]).await;
        run::<F>(&runner).await;
    }
    let subjects = |follow_up_rows: Vec<postrider_core::follow_up::FollowUpRow>| -> Vec<String> {
        follow_up_rows.iter().map(|row| row.message.subject().unwrap().to_string()).collect()
    };
    assert_eq!(subjects(runner.list_abandoned(100).await.unwrap()), ["first", "second", "third"]);
    assert_eq!(subjects(runner.list_abandoned(2).await.unwrap()), ["first", "second"]);
    assert_eq!(subjects(runner.list_scheduled(100).await.unwrap()), ["near", "far"]);
    assert_eq!(subjects(runner.list_scheduled(1).await.unwrap()), ["near"]);
}

/// Follow-ups that are not abandoned are skipped; a second requeue changes nothing (C5 48).
pub async fn a_second_requeue_changes_nothing<F: SagaFixture>(fixture: F) {
    let runner = one_of_each(&fixture).await;
    let abandoned = runner.list_abandoned(10).await.unwrap()[0].id;
    let mut ids: Vec<_> =
        runner.overdue(Duration::ZERO, 100).await.unwrap().into_iter().map(|row| row.id).collect();
    ids.push(fresh_id());
    let first = runner.requeue(&ids, &ada()).await.unwrap();
    assert_eq!(first.requeued, [abandoned]);
    assert_eq!(first.skipped.len(), 5);
    assert!(first.skipped.iter().all(|(_, why)| *why == RequeueError::NotAbandoned));
    let second = runner.requeue(&ids, &ada()).await.unwrap();
    assert_eq!((second.requeued.len(), second.skipped.len()), (0, 6));
    assert_eq!(audited(&fixture, "refused").await, [AuditKind::Abandoned, AuditKind::Requeued]);
    let counts = runner.status_counts().await.unwrap();
    assert_eq!((counts.of(FollowUpStatus::Pending), counts.of(FollowUpStatus::Abandoned)), (2, 0));
    assert!(runner.requeue(&ids, &Action::new("", "")).await.is_err(), "an actor is required");
}

/// The requeue is audited first, or not done at all (C5 48).
pub async fn a_requeue_that_cannot_be_audited_is_rolled_back<F: SagaFixture>(fixture: F) {
    let payments = Scripted::new("payments", |_| Err(Failure::reject("no")));
    let sink = Flaky { only: Some(AuditKind::Requeued), ..Flaky::default() };
    let runner = builder(&fixture, &[&payments]).audit(sink.clone()).build().unwrap();
    let all: Vec<_> = (0..3).map(|number| erase(&format!("customer-{number}"), "payments")).collect();
    let ids = follow_up(&fixture, all).await;
    run::<F>(&runner).await;
    sink.outages.store(1, SeqCst);
    assert!(runner.requeue(&ids, &ada()).await.is_err());
    assert_eq!(statuses::<F>(&runner).await, [(FollowUpStatus::Abandoned, 3)]);
    assert_eq!(runner.requeue(&ids, &ada()).await.unwrap().requeued.len(), 3);
    assert_eq!(statuses::<F>(&runner).await, [(FollowUpStatus::Pending, 3)]);
}

/// A follow-up whose payload was erased cannot be called again.
pub async fn a_follow_up_without_its_payload_is_not_requeued<F: SagaFixture>(fixture: F) {
    let payments = Scripted::new("payments", |_| Err(Failure::reject("no")));
    let runner = runner(&fixture, &[&payments]);
    let with = erase("customer-1", "payments").with_json("a new name").unwrap();
    let ids = follow_up(&fixture, [with, erase("customer-1", "payments")]).await;
    run::<F>(&runner).await;
    let answer = runner.requeue(&ids, &ada()).await.unwrap();
    assert_eq!((answer.requeued, answer.skipped), (vec![ids[1]], vec![(ids[0], RequeueError::Forgotten)]));
}

/// The oldest first, in any status except succeeded.
pub async fn overdue_follow_ups_are_found<F: SagaFixture>(fixture: F) {
    let payments = Scripted::new("payments", |call| match call.subject().as_str() {
        "refused" => Err(Failure::reject("no")),
        "done" => Ok(Resolution::Done),
        _ => Err(Failure::retry("away")),
    });
    let runner = runner(&fixture, &[&payments]);
    for subject in ["refused", "done", "failing"] {
        follow_up(&fixture, [erase(subject, "payments")]).await;
    }
    run::<F>(&runner).await;
    assert_eq!(runner.overdue(minutes(30), 100).await.unwrap(), []);
    fixture.advance(minutes(60)).await;
    follow_up(&fixture, [erase("young", "payments")]).await;
    let overdue = runner.overdue(minutes(30), 100).await.unwrap();
    let found: Vec<_> =
        overdue.iter().map(|row| (row.message.subject().unwrap().as_str(), row.status)).collect();
    assert_eq!(found, [("refused", FollowUpStatus::Abandoned), ("failing", FollowUpStatus::Failed)]);
}

/// Messages that are due, scheduled, dead or archived, ordered or not, with timers or not; but neither leased ones, nor the
/// follow-ups that erase the subject elsewhere.
pub async fn a_subject_is_erased_everywhere<F: SagaFixture>(fixture: F) {
    declare(&fixture, "kept", QueuePolicy::default().with_keep_for(minutes(60))).await;
    declare(&fixture, "ordered", QueuePolicy::by_key(OnFailure::Block)).await;
    let about = |queue: &str, subject: &str| message(queue).subject(subject);
    for subject in ["customer-1", "customer-2"] {
        stage_one(&fixture, about("kept", subject)).await;
    }
    drain(&fixture.store(), "kept").await;
    for subject in ["customer-1", "customer-2"] {
        stage_one(&fixture, about("dead", subject)).await;
        let claimed = claim_one(&fixture.store(), "dead").await;
        settle(&fixture.store(), &[claimed.lease.dead(postrider_core::Reason::Rejected, "no")]).await;
        stage_one(&fixture, about("in-hand", subject)).await;
        stage_one(&fixture, about("waiting", subject).due_after(minutes(60))).await;
        stage_one(&fixture, about("timers", subject).timer(format!("t-{subject}")).due_after(minutes(60)))
            .await;
        stage_one(&fixture, about("ordered", subject).key("same")).await;
        stage_one(&fixture, about("due", subject)).await;
    }
    assert_eq!(claim_all(&fixture.store(), "in-hand").await.len(), 2);
    let runner = runner(&fixture, &[&Scripted::done("payments")]);
    follow_up(&fixture, [erase("customer-1", "payments")]).await;
    let subject = SubjectId::new("customer-1").unwrap();
    let erased = runner.erase_subject(None, &subject, &ada()).await.unwrap();
    assert_eq!(erased, ErasureReport { waiting: 4, dead: 1, archived: 1, in_flight: 1, follow_ups: 1 });
    // The other subject is untouched, and its key continues.
    assert_eq!(drain(&fixture.store(), "ordered").await.len(), 1);
    for (queue, filter) in [
        ("due", StateFilter::Ready),
        ("waiting", StateFilter::Scheduled),
        ("timers", StateFilter::Scheduled),
        ("dead", StateFilter::Dead),
        ("kept", StateFilter::Done),
    ] {
        let left = list(&fixture, queue, filter).await;
        assert_eq!((left.len(), left[0].message.subject().unwrap().as_str()), (1, "customer-2"), "{queue}");
    }
    // The timer's name is free again.
    stage_one(&fixture, message("timers").timer("t-customer-1").due_after(minutes(60))).await;
    assert_eq!(audited(&fixture, "customer-1").await, [AuditKind::Erased, AuditKind::Erased]);
    let rows = fixture.inspect().audit(100).await.unwrap();
    assert!(rows.iter().any(|row| row.verb == "erase_subject" && row.action.actor == "ada"));
    assert!(!format!("{rows:?}").contains("customer-1"));
    let again = runner.erase_subject(None, &subject, &ada()).await.unwrap();
    assert_eq!(again, ErasureReport { in_flight: 1, follow_ups: 1, ..ErasureReport::default() });
}
