//! Negative controls: broken stores that the suite must detect.
//!
//! A [`BrokenFixture`] wraps another fixture and breaks exactly one thing in it. [`every_defect_is_caught`] runs the cases that
//! should detect it: on the intact store they pass, and on the broken one at least one of them fails. Each defect is a mistake that
//! systems of this kind have made, or that a store's author could make without any other case failing.

mod broken_store;
mod expected_failure;

use crate::{Features, Fixture, store};
use async_trait::async_trait;
use broken_store::{BrokenStore, ClaimLog};
use expected_failure::{Case, cases};
use postrider_core::Backend;
use std::{
    fmt::Debug,
    sync::{Arc, Mutex},
    time::Duration,
};

pub use broken_store::BrokenInbox;
pub use expected_failure::case_fails;

/// One defect of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defect {
    /// A rollback commits.
    RollbackCommits,
    /// Success is settled without checking the token.
    SettleWithoutToken,
    /// A retry is settled without checking the token.
    RetryWithoutToken,
    /// A dead letter is written without checking the token.
    DeadWithoutToken,
    /// A message is released without checking the token.
    ReleaseWithoutToken,
    /// A lease is renewed without checking the token.
    RenewWithoutToken,
    /// A delivery in isolation is counted without checking the token.
    CountIsolatedWithoutToken,
    /// Every claim whose lease expired counts as a delivery that began.
    EveryClaimCounts,
    /// Lost leases are not reported.
    LostLeasesUnreported,
    /// Success writes a dead letter.
    DeadLetterOnSuccess,
    /// A permanently failed message is deleted instead of dead-lettered.
    DeadLetterDropped,
    /// A release counts as a failed attempt.
    ReleaseCounted,
    /// Claims read only above the greatest identity seen so far, and miss late commits.
    CursorPolling,
    /// Retry times come from a worker's clock, which is an hour ahead.
    ClientClock,
    /// Leases practically never expire.
    LeaseNeverExpires,
    /// A queue declared as ordered by key is unordered.
    OrderingIgnored,
    /// A queue declared as fair to tenants is not.
    TenantsIgnored,
    /// A tick is staged even if it was staged before.
    TickWithoutCompare,
    /// Deduplication records are written in a separate transaction, whether or not the effects commit.
    AdmissionOutsideTransaction,
    /// Deduplication records have no tenant.
    DeduplicationIgnoresTenant,
    /// Deduplication records have no consumer.
    DeduplicationIgnoresConsumer,
}

impl Defect {
    /// Every defect.
    pub const ALL: [Self; 21] = [
        Self::RollbackCommits,
        Self::SettleWithoutToken,
        Self::RetryWithoutToken,
        Self::DeadWithoutToken,
        Self::ReleaseWithoutToken,
        Self::RenewWithoutToken,
        Self::CountIsolatedWithoutToken,
        Self::EveryClaimCounts,
        Self::LostLeasesUnreported,
        Self::DeadLetterOnSuccess,
        Self::DeadLetterDropped,
        Self::ReleaseCounted,
        Self::CursorPolling,
        Self::ClientClock,
        Self::LeaseNeverExpires,
        Self::OrderingIgnored,
        Self::TenantsIgnored,
        Self::TickWithoutCompare,
        Self::AdmissionOutsideTransaction,
        Self::DeduplicationIgnoresTenant,
        Self::DeduplicationIgnoresConsumer,
    ];

    /// The cases that should detect the defect.
    fn detecting_cases<F: Fixture>(self) -> Vec<Case<F>> {
        match self {
            Self::RollbackCommits => cases![stage::a_rolled_back_message_never_exists],
            Self::SettleWithoutToken => {
                cases![leases::a_stale_done_changes_nothing, key_turns::a_stale_turn_cannot_settle_as_done]
            }
            Self::RetryWithoutToken => {
                cases![leases::a_stale_retry_changes_nothing, key_turns::a_stale_turn_cannot_settle_as_retry]
            }
            Self::DeadWithoutToken => {
                cases![
                    leases::a_stale_dead_letter_changes_nothing,
                    key_turns::a_stale_turn_cannot_write_a_dead_letter
                ]
            }
            Self::ReleaseWithoutToken => {
                cases![leases::a_stale_release_changes_nothing, key_turns::a_stale_turn_cannot_release]
            }
            Self::RenewWithoutToken => {
                cases![leases::a_stale_renewal_changes_nothing, key_turns::a_stale_turn_cannot_be_renewed]
            }
            Self::CountIsolatedWithoutToken => {
                cases![leases::deliveries_in_isolation_are_counted_until_a_failure]
            }
            Self::EveryClaimCounts => {
                vec![("crash_loops::a_message_that_kills_its_process_is_the_only_dead_letter", |fixture| {
                    Box::pin(
                        crate::worker::crash_loops::a_message_that_kills_its_process_is_the_only_dead_letter(
                            fixture,
                        ),
                    )
                })]
            }
            Self::LostLeasesUnreported => cases![leases::a_late_owner_does_not_overwrite_the_new_owner],
            Self::DeadLetterOnSuccess => cases![settle::done_removes_the_message_and_writes_no_dead_letter],
            Self::DeadLetterDropped => cases![settle::a_dead_letter_is_complete_and_in_one_state_only],
            Self::ReleaseCounted => cases![settle::a_release_counts_no_attempt],
            Self::CursorPolling => cases![
                claim::a_smaller_identity_staged_later_is_not_missed,
                late_commits::a_transaction_that_commits_last_is_not_missed,
            ],
            Self::ClientClock => cases![settle::every_retry_waits_for_its_own_delay],
            Self::LeaseNeverExpires => cases![claim::a_message_with_an_expired_lease_is_reclaimed],
            Self::TickWithoutCompare => cases![
                timetable::a_tick_raced_by_ten_schedulers_is_staged_once,
                timetable::an_older_tick_after_a_newer_one_is_ignored,
            ],
            Self::AdmissionOutsideTransaction => {
                cases![inbox::a_rolled_back_admission_leaves_no_deduplication_record]
            }
            Self::DeduplicationIgnoresTenant => cases![inbox::tenants_have_separate_deduplication_records],
            Self::DeduplicationIgnoresConsumer => {
                cases![inbox::consumers_have_separate_deduplication_records]
            }
            Self::TenantsIgnored => cases![tenant_fairness::quiet_tenants_do_not_wait_behind_a_noisy_one],
            Self::OrderingIgnored => {
                cases![
                    ordering::a_key_has_one_turn_at_a_time,
                    key_failure_policies::skip_keeps_the_key_waiting_behind_a_retry
                ]
            }
        }
    }
}

/// Runs every defect against the cases that should detect it.
///
/// # Panics
/// When a case fails on the intact store, or when a defect is not detected; names those defects.
pub async fn every_defect_is_caught<F, Made>(make: impl Fn() -> Made)
where
    F: Fixture,
    Made: Future<Output = F>,
{
    let mut undetected = Vec::new();
    for defect in Defect::ALL {
        let mut is_detected = false;
        for (name, case) in defect.detecting_cases() {
            println!("{defect:?}: {name}");
            store::run(async { BrokenFixture::none(make().await) }, case).await;
            is_detected |= case_fails(case(BrokenFixture::new(make().await, defect))).await;
        }
        if !is_detected {
            undetected.push(defect);
        }
    }
    assert_eq!(undetected, [], "the suite does not catch these flaws");
}

/// A fixture whose stores have a defect.
#[derive(Debug)]
pub struct BrokenFixture<F> {
    inner: Arc<F>,
    defect: Option<Defect>,
    seen: Arc<Mutex<ClaimLog>>,
}

impl<F> BrokenFixture<F> {
    /// Wraps a fixture with one defect.
    pub fn new(inner: F, defect: Defect) -> Self {
        Self { inner: Arc::new(inner), defect: Some(defect), seen: Arc::default() }
    }

    /// Wraps a fixture without a defect, to show that the wrapper itself changes nothing.
    pub fn none(inner: F) -> Self {
        Self { inner: Arc::new(inner), defect: None, seen: Arc::default() }
    }

    fn wrap(&self, inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(BrokenStore { inner, defect: self.defect, seen: Arc::clone(&self.seen) })
    }
}

#[async_trait]
impl<F: Fixture> Fixture for BrokenFixture<F> {
    type Tx = F::Tx;
    type Outbox = F::Outbox;
    type Inbox = BrokenInbox<F>;

    fn features(&self) -> Features {
        self.inner.features()
    }

    fn store(&self) -> Arc<dyn Backend> {
        self.wrap(self.inner.store())
    }

    async fn another_store(&self) -> Arc<dyn Backend> {
        self.wrap(self.inner.another_store().await)
    }

    fn outbox(&self) -> Self::Outbox {
        self.inner.outbox()
    }

    fn inbox(&self) -> BrokenInbox<F> {
        BrokenInbox { fixture: Arc::clone(&self.inner), defect: self.defect }
    }

    async fn begin(&self) -> Self::Tx {
        self.inner.begin().await
    }

    async fn commit(&self, tx: Self::Tx) {
        self.inner.commit(tx).await;
    }

    async fn rollback(&self, tx: Self::Tx) {
        if self.defect == Some(Defect::RollbackCommits) {
            self.inner.commit(tx).await;
        } else {
            self.inner.rollback(tx).await;
        }
    }

    async fn savepoint(&self, tx: &mut Self::Tx) {
        self.inner.savepoint(tx).await;
    }

    async fn rollback_to_savepoint(&self, tx: &mut Self::Tx) {
        self.inner.rollback_to_savepoint(tx).await;
    }

    async fn advance(&self, by: Duration) {
        self.inner.advance(by).await;
    }

    async fn break_dead_letters(&self, broken: bool) {
        self.inner.break_dead_letters(broken).await;
    }
}
