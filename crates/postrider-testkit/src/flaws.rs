//! Negative controls: broken stores that the suite must catch.
//!
//! A [`Flawed`] fixture wraps another one and breaks exactly one thing in it. [`every_flaw_is_caught`] runs the cases that
//! ought to notice: on the sound store they pass, and on the flawed one at least one of them fails. Each flaw is a mistake
//! that systems of this kind have made, or that a store's author could make without any other case noticing.

mod catching;
mod wrapped;

use crate::{Features, Fixture, store};
use async_trait::async_trait;
use catching::{Case, cases};
use postrider_core::{Store, inspect::Operate, schema::Schema, timetable::Timetable, wake::Wake};
use std::{
    fmt::Debug,
    sync::{Arc, Mutex},
    time::Duration,
};
use wrapped::{FlawedSchema, FlawedStore, FlawedTimetable, Seen};

pub use catching::caught;
pub use wrapped::FlawedInbox;

/// One thing that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// A rollback commits.
    RollbackCommits,
    /// Success is settled whatever the token.
    SettleWithoutToken,
    /// A retry is settled whatever the token.
    RetryWithoutToken,
    /// A dead letter is written whatever the token.
    DeadWithoutToken,
    /// A message is handed back whatever the token.
    ReleaseWithoutToken,
    /// A lease is extended whatever the token.
    RenewWithoutToken,
    /// Lost leases are not told.
    LossInSilence,
    /// Success writes a dead letter.
    DeadLetterOnSuccess,
    /// What failed for good is removed without a trace.
    DeathInSilence,
    /// Handing back counts as a failure.
    ReleaseCounted,
    /// Claims look only above the greatest identity that they have seen, and miss late commits.
    CursorPolling,
    /// Retry times come from a worker's clock, which is an hour ahead.
    ClientClock,
    /// Leases last for ever, or nearly.
    LeaseForEver,
    /// A queue that is declared as ordered by key is not.
    OrderIgnored,
    /// Tenants of a queue that was declared as fair to them do not take turns.
    TenantsIgnored,
    /// A tick is staged whether or not it was before.
    TickWithoutCompare,
    /// What is received is marked in a transaction of the inbox's own, whatever becomes of its effects.
    MarkOutsideTransaction,
    /// What is received is marked without its tenant.
    MarkWithoutTenant,
    /// What is received is marked without its consumer.
    MarkWithoutConsumer,
}

impl Flaw {
    /// Every flaw there is.
    pub const ALL: [Self; 19] = [
        Self::RollbackCommits,
        Self::SettleWithoutToken,
        Self::RetryWithoutToken,
        Self::DeadWithoutToken,
        Self::ReleaseWithoutToken,
        Self::RenewWithoutToken,
        Self::LossInSilence,
        Self::DeadLetterOnSuccess,
        Self::DeathInSilence,
        Self::ReleaseCounted,
        Self::CursorPolling,
        Self::ClientClock,
        Self::LeaseForEver,
        Self::OrderIgnored,
        Self::TenantsIgnored,
        Self::TickWithoutCompare,
        Self::MarkOutsideTransaction,
        Self::MarkWithoutTenant,
        Self::MarkWithoutConsumer,
    ];

    /// The cases that ought to notice.
    fn noticed_by<F: Fixture>(self) -> Vec<Case<F>> {
        match self {
            Self::RollbackCommits => cases![staging::a_rolled_back_message_never_exists],
            Self::SettleWithoutToken => {
                cases![leases::a_stale_done_changes_nothing, turns::a_stale_turn_cannot_settle_as_done]
            }
            Self::RetryWithoutToken => {
                cases![leases::a_stale_retry_changes_nothing, turns::a_stale_turn_cannot_ask_for_a_retry]
            }
            Self::DeadWithoutToken => {
                cases![
                    leases::a_stale_dead_letter_changes_nothing,
                    turns::a_stale_turn_cannot_write_a_dead_letter
                ]
            }
            Self::ReleaseWithoutToken => {
                cases![leases::a_stale_release_changes_nothing, turns::a_stale_turn_cannot_release]
            }
            Self::RenewWithoutToken => {
                cases![leases::a_stale_renewal_changes_nothing, turns::a_stale_turn_cannot_be_renewed]
            }
            Self::LossInSilence => cases![leases::a_late_owner_does_not_clobber_the_new_one],
            Self::DeadLetterOnSuccess => cases![settling::success_leaves_nothing_and_writes_no_dead_letter],
            Self::DeathInSilence => cases![settling::a_dead_letter_is_whole_and_in_one_room_only],
            Self::ReleaseCounted => cases![settling::a_release_is_not_counted],
            Self::CursorPolling => cases![
                claiming::a_smaller_identity_staged_later_is_not_missed,
                late_commits::a_transaction_that_commits_last_is_not_missed,
            ],
            Self::ClientClock => cases![settling::every_retry_waits_for_its_own_delay],
            Self::LeaseForEver => cases![claiming::a_lapsed_message_is_claimed_again],
            Self::TickWithoutCompare => cases![
                timetable::a_tick_is_staged_once_though_ten_race_for_it,
                timetable::an_older_tick_never_follows_a_newer_one,
            ],
            Self::MarkOutsideTransaction => cases![inbox::a_rolled_back_admission_leaves_no_mark],
            Self::MarkWithoutTenant => cases![inbox::tenants_do_not_see_each_others_marks],
            Self::MarkWithoutConsumer => cases![inbox::consumers_do_not_see_each_others_marks],
            Self::TenantsIgnored => cases![tenants::quiet_tenants_do_not_wait_behind_a_noisy_one],
            Self::OrderIgnored => {
                cases![
                    ordering::a_key_has_one_turn_at_a_time,
                    failing_keys::skip_keeps_the_key_waiting_behind_a_retry
                ]
            }
        }
    }
}

/// Runs every flaw against the cases that ought to notice it.
///
/// # Panics
/// When a case fails on the sound store, or when a flaw slips through; names those that do.
pub async fn every_flaw_is_caught<F, Made>(make: impl Fn() -> Made)
where
    F: Fixture,
    Made: Future<Output = F>,
{
    let mut slipped_through = Vec::new();
    for flaw in Flaw::ALL {
        let mut is_caught = false;
        for (name, case) in flaw.noticed_by() {
            println!("{flaw:?}: {name}");
            store::run(async { Flawed::none(make().await) }, case).await;
            is_caught |= caught(case(Flawed::new(make().await, flaw))).await;
        }
        if !is_caught {
            slipped_through.push(flaw);
        }
    }
    assert_eq!(slipped_through, [], "the suite does not catch these flaws");
}

/// A fixture whose stores have a flaw.
#[derive(Debug)]
pub struct Flawed<F> {
    inner: Arc<F>,
    flaw: Option<Flaw>,
    seen: Arc<Mutex<Seen>>,
}

impl<F> Flawed<F> {
    /// Breaks one thing.
    pub fn new(inner: F, flaw: Flaw) -> Self {
        Self { inner: Arc::new(inner), flaw: Some(flaw), seen: Arc::default() }
    }

    /// Breaks nothing, to show that the wrapping alone does no harm.
    pub fn none(inner: F) -> Self {
        Self { inner: Arc::new(inner), flaw: None, seen: Arc::default() }
    }

    fn wrap(&self, inner: Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(FlawedStore { inner, flaw: self.flaw, seen: Arc::clone(&self.seen) })
    }
}

#[async_trait]
impl<F: Fixture> Fixture for Flawed<F> {
    type Tx = F::Tx;
    type Outbox = F::Outbox;
    type Inbox = FlawedInbox<F>;

    fn features(&self) -> Features {
        self.inner.features()
    }

    fn store(&self) -> Arc<dyn Store> {
        self.wrap(self.inner.store())
    }

    async fn another_store(&self) -> Arc<dyn Store> {
        self.wrap(self.inner.another_store().await)
    }

    fn operate(&self) -> Arc<dyn Operate> {
        self.inner.operate()
    }

    fn schema(&self) -> Arc<dyn Schema> {
        Arc::new(FlawedSchema { inner: self.inner.schema(), flaw: self.flaw })
    }

    fn wake(&self) -> Arc<dyn Wake> {
        self.inner.wake()
    }

    fn timetable(&self) -> Arc<dyn Timetable> {
        Arc::new(FlawedTimetable { inner: self.inner.timetable(), flaw: self.flaw })
    }

    async fn another_timetable(&self) -> Arc<dyn Timetable> {
        let inner = self.inner.another_timetable().await;
        Arc::new(FlawedTimetable { inner, flaw: self.flaw })
    }

    fn outbox(&self) -> Self::Outbox {
        self.inner.outbox()
    }

    fn inbox(&self) -> FlawedInbox<F> {
        FlawedInbox { fixture: Arc::clone(&self.inner), flaw: self.flaw }
    }

    async fn begin(&self) -> Self::Tx {
        self.inner.begin().await
    }

    async fn commit(&self, tx: Self::Tx) {
        self.inner.commit(tx).await;
    }

    async fn rollback(&self, tx: Self::Tx) {
        if self.flaw == Some(Flaw::RollbackCommits) {
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
