//! Promise 5: the store's clock decides, whatever the clock of the process says.

use super::{
    helpers::*,
    shifted_clock::{Shift, ShiftedClock},
};
use crate::Fixture;
use postrider_core::{
    Reason, RetryStrategy,
    inspect::{Action, StateFilter},
};
use postrider_engine::{Failure, Report, Worker};

/// The limit of the total retry time counts from the first attempt, by the store's clock: not from the staging, and not by a clock
/// that is an hour ahead or behind.
pub async fn max_total_counts_from_the_first_attempt_by_the_stores_clock<F: Fixture>(fixture: F) {
    for shift in [Shift::Ahead(minutes(60)), Shift::Behind(minutes(60))] {
        stage(&fixture, &orders(1)).await;
        // In a backlog before its first attempt.
        fixture.advance(minutes(60)).await;
        for failure in 1..=6 {
            assert_eq!(fail(&fixture, shift).await.retried, 1, "failure {failure}, {shift:?}");
            fixture.advance(minutes(5)).await;
        }
        assert_eq!(
            fail(&fixture, shift).await.dead,
            1,
            "the next attempt is 35 minutes after the first, {shift:?}"
        );
    }
    let dead = list(&fixture, "orders", StateFilter::Dead).await;
    assert!(dead.iter().all(|letter| letter.reason == Some(Reason::RetriesExhausted)), "{dead:?}");
}

/// A message that is snoozed or released between its attempts keeps the time of the first one; a requeued one begins anew.
pub async fn the_time_of_the_first_failure_is_kept_until_a_requeue<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let id = stage_one(&fixture, message("orders")).await;
    let first = claim_one(&store, "orders").await;
    assert_eq!(first.first_failed_at, None);
    settle(&store, &[first.lease.retry(minutes(1), "busy")]).await;
    fixture.advance(minutes(1)).await;
    let second = claim_one(&store, "orders").await;
    let failed_at = second.first_failed_at.unwrap();
    let since = second.claimed_at.duration_since(failed_at).unwrap();
    assert!((minutes(1)..minutes(2)).contains(&since), "{since:?}");
    settle(&store, &[second.lease.snooze(minutes(1))]).await;
    fixture.advance(minutes(1)).await;
    let third = claim_one(&store, "orders").await;
    settle(&store, &[third.lease.retry(minutes(1), "busy")]).await;
    fixture.advance(minutes(1)).await;
    settle(&store, &[claim_one(&store, "orders").await.lease.release()]).await;
    let fourth = claim_one(&store, "orders").await;
    let since = fourth.claimed_at.duration_since(fourth.first_failed_at.unwrap()).unwrap();
    assert!((minutes(3)..minutes(4)).contains(&since), "{since:?}");
    settle(&store, &[fourth.lease.dead(Reason::Rejected, "no")]).await;
    fixture.operate().requeue(&queue("orders"), &[id], &Action::new("operator", "again")).await.unwrap();
    assert_eq!(claim_one(&store, "orders").await.first_failed_at, None);
}

async fn fail<F: Fixture>(fixture: &F, shift: Shift) -> Report {
    let store = std::sync::Arc::new(ShiftedClock { store: fixture.store(), shift });
    let strategy = RetryStrategy::constant(minutes(5)).with_max_total(minutes(32));
    let queue = deciding(|_| Err(Failure::retry("busy"))).retry(strategy);
    Worker::builder_on(store).queue(queue).build().unwrap().run_until_idle().await.unwrap()
}
