//! Follow-ups that must wait for their time (C5 50).

use super::{SagaFixture, helpers::*};
use postrider_core::{AuditKind, follow_up::Status};
use postrider_engine::saga::Resolved;
use std::{
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

/// A resolver that names a time until it is told otherwise.
fn until(at: &Arc<Mutex<Option<SystemTime>>>) -> Scripted {
    let at = Arc::clone(at);
    Scripted::new("archive", move |_| Ok(at.lock().unwrap().map_or(Resolved::Done, Resolved::NotBefore)))
}

fn in_minutes(count: u64) -> Arc<Mutex<Option<SystemTime>>> {
    Arc::new(Mutex::new(Some(SystemTime::now() + minutes(count))))
}

/// It is not called before its time, and then as if for the first time.
pub async fn not_before_its_time_and_with_no_attempt_behind_it<F: SagaFixture>(fixture: F) {
    keep(&fixture).await;
    let at = in_minutes(60);
    let archive = until(&at);
    follow_up(&fixture, [erase("customer-1", "archive")]).await;
    let runner = runner(&fixture, &[&archive]);
    assert_eq!(run::<F>(&runner).await, 1);
    assert_eq!(statuses::<F>(&runner).await, [(Status::Scheduled, 1)]);
    fixture.advance(minutes(50)).await;
    assert_eq!(run::<F>(&runner).await, 0, "not before its time");
    *at.lock().unwrap() = None;
    fixture.advance(minutes(10)).await;
    assert_eq!(run::<F>(&runner).await, 1);
    let attempts: Vec<_> = archive.calls.lock().unwrap().iter().map(|(.., attempt)| *attempt).collect();
    assert_eq!(attempts, [1, 1]);
    let kinds = [AuditKind::Scheduled, AuditKind::Succeeded, AuditKind::Completed];
    assert_eq!(told(&fixture, "customer-1").await, kinds);
}

/// A time that has passed already would be called in a circle: it waits as long as after a first failure.
pub async fn a_time_that_has_passed_is_clamped<F: SagaFixture>(fixture: F) {
    let at = Arc::new(Mutex::new(Some(SystemTime::UNIX_EPOCH)));
    let archive = until(&at);
    follow_up(&fixture, [erase("customer-1", "archive")]).await;
    let runner = runner(&fixture, &[&archive]);
    assert_eq!(run::<F>(&runner).await, 1);
    assert_eq!(run::<F>(&runner).await, 0);
    fixture.advance(Duration::from_secs(30)).await;
    assert_eq!(run::<F>(&runner).await, 1);
}

/// A time that slips is taken as it comes, however often, and each is told.
pub async fn a_time_that_slips_is_put_off_again_and_told_again<F: SagaFixture>(fixture: F) {
    let at = in_minutes(10);
    let archive = until(&at);
    follow_up(&fixture, [erase("customer-1", "archive")]).await;
    let runner = runner(&fixture, &[&archive]);
    for _ in 0..12 {
        assert_eq!(run::<F>(&runner).await, 1);
        assert_eq!(statuses::<F>(&runner).await, [(Status::Scheduled, 1)]);
        let slipped = at.lock().unwrap().map(|at| at + minutes(10));
        *at.lock().unwrap() = slipped;
        // Some stores' clocks cannot be moved, and their rows are: from there, the time has slipped even further.
        fixture.advance(minutes(200)).await;
    }
    assert_eq!(told(&fixture, "customer-1").await, [AuditKind::Scheduled; 12]);
}

/// Who stages may name a time as well.
pub async fn what_is_staged_for_later_waits<F: SagaFixture>(fixture: F) {
    let payments = Scripted::done("payments");
    let later = SystemTime::now() + minutes(30);
    follow_up(&fixture, [erase("customer-1", "payments").not_before(later)]).await;
    let runner = runner(&fixture, &[&payments]);
    assert_eq!(run::<F>(&runner).await, 0);
    assert_eq!(statuses::<F>(&runner).await, [(Status::Scheduled, 1)]);
    fixture.advance(minutes(31)).await;
    assert_eq!(run::<F>(&runner).await, 1);
}
