//! Follow-ups that are rescheduled (C5 50).

use super::{SagaFixture, helpers::*};
use postrider_core::{AuditKind, follow_up::FollowUpStatus};
use postrider_engine::saga::Resolution;
use std::{
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

/// A resolver that returns a time until the test clears it.
fn until(at: &Arc<Mutex<Option<SystemTime>>>) -> Scripted {
    let at = Arc::clone(at);
    Scripted::new("archive", move |_| Ok(at.lock().unwrap().map_or(Resolution::Done, Resolution::NotBefore)))
}

fn in_minutes(count: u64) -> Arc<Mutex<Option<SystemTime>>> {
    Arc::new(Mutex::new(Some(SystemTime::now() + minutes(count))))
}

/// The follow-up is not called before its time, and then as for the first time.
pub async fn a_rescheduled_follow_up_waits_and_counts_no_attempt<F: SagaFixture>(fixture: F) {
    keep(&fixture).await;
    let at = in_minutes(60);
    let archive = until(&at);
    follow_up(&fixture, [erase("customer-1", "archive")]).await;
    let runner = runner(&fixture, &[&archive]);
    assert_eq!(run::<F>(&runner).await, 1);
    assert_eq!(statuses::<F>(&runner).await, [(FollowUpStatus::Scheduled, 1)]);
    fixture.advance(minutes(50)).await;
    assert_eq!(run::<F>(&runner).await, 0, "not before its time");
    *at.lock().unwrap() = None;
    fixture.advance(minutes(10)).await;
    assert_eq!(run::<F>(&runner).await, 1);
    let attempts: Vec<_> = archive.calls.lock().unwrap().iter().map(|(.., attempt)| *attempt).collect();
    assert_eq!(attempts, [1, 1]);
    let kinds = [AuditKind::Scheduled, AuditKind::Succeeded, AuditKind::Completed];
    assert_eq!(audited(&fixture, "customer-1").await, kinds);
}

/// A past time would cause a busy loop: it waits as long as after a first failure.
pub async fn a_past_time_is_clamped<F: SagaFixture>(fixture: F) {
    let at = Arc::new(Mutex::new(Some(SystemTime::UNIX_EPOCH)));
    let archive = until(&at);
    follow_up(&fixture, [erase("customer-1", "archive")]).await;
    let runner = runner(&fixture, &[&archive]);
    assert_eq!(run::<F>(&runner).await, 1);
    assert_eq!(run::<F>(&runner).await, 0);
    fixture.advance(Duration::from_secs(30)).await;
    assert_eq!(run::<F>(&runner).await, 1);
}

/// A time that moves is followed, however often, and each reschedule is audited.
pub async fn a_moved_time_is_rescheduled_and_audited_again<F: SagaFixture>(fixture: F) {
    let at = in_minutes(10);
    let archive = until(&at);
    follow_up(&fixture, [erase("customer-1", "archive")]).await;
    let runner = runner(&fixture, &[&archive]);
    for _ in 0..12 {
        assert_eq!(run::<F>(&runner).await, 1);
        assert_eq!(statuses::<F>(&runner).await, [(FollowUpStatus::Scheduled, 1)]);
        let slipped = at.lock().unwrap().map(|at| at + minutes(10));
        *at.lock().unwrap() = slipped;
        // Some stores cannot move their clock and move their rows instead: for them, the time has moved even further.
        fixture.advance(minutes(200)).await;
    }
    assert_eq!(audited(&fixture, "customer-1").await, [AuditKind::Scheduled; 12]);
}

/// A producer can set a time as well.
pub async fn a_follow_up_staged_for_later_waits<F: SagaFixture>(fixture: F) {
    let payments = Scripted::done("payments");
    let later = SystemTime::now() + minutes(30);
    follow_up(&fixture, [erase("customer-1", "payments").not_before(later)]).await;
    let runner = runner(&fixture, &[&payments]);
    assert_eq!(run::<F>(&runner).await, 0);
    assert_eq!(statuses::<F>(&runner).await, [(FollowUpStatus::Scheduled, 1)]);
    fixture.advance(minutes(31)).await;
    assert_eq!(run::<F>(&runner).await, 1);
}
