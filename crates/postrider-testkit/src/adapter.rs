//! The suite that staging and admitting pass in the transactions of every driver.
//!
//! The store is the same for every driver, so the cases are those of the store suite about staging and admitting, run on a store
//! whose application uses another [`Driver`]: [`Adapted`]. Cases that count round trips are added here.
//! [`adapter_suite!`](crate::adapter_suite) turns the cases into tests.

use crate::{Features, Fixture, round_trips::CountingProxy};
use async_trait::async_trait;
use postrider_core::{Arrival, Backend, ConsumerName, Inbox, Message, MessageBuilder, MessageId, Outbox};
use std::{
    fmt,
    marker::PhantomData,
    ops::Range,
    sync::Arc,
    time::{Duration, SystemTime},
};

/// The driver of an application, as far as staging needs it.
#[async_trait]
pub trait Driver: Send + Sync + 'static {
    /// Its transaction.
    type Tx: Send + 'static;

    /// Begins a transaction on a new connection to the database at `url`.
    async fn begin(url: &str) -> Self::Tx;

    /// Commits it.
    async fn commit(tx: Self::Tx);

    /// Rolls it back.
    async fn rollback(tx: Self::Tx);

    /// Runs a statement in it.
    async fn run(tx: &mut Self::Tx, sql: &'static str);
}

/// The store of a fixture, with another driver for staging.
pub struct Adapted<F, D> {
    store: F,
    url: String,
    driver: PhantomData<fn() -> D>,
}

impl<F, D> Adapted<F, D> {
    /// Stages in `store`, whose database is at `url`.
    pub fn new(store: F, url: &str) -> Self {
        // Without the URL options of one driver, which the others reject.
        Self { url: plain(url), store, driver: PhantomData }
    }

    /// The URL of the database.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl<F, D> fmt::Debug for Adapted<F, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adapted").field("url", &self.url).finish_non_exhaustive()
    }
}

fn plain(url: &str) -> String {
    url.split('?').next().unwrap_or(url).to_owned()
}

#[async_trait]
impl<F, D> Fixture for Adapted<F, D>
where
    F: Fixture,
    F::Outbox: Outbox<D::Tx>,
    F::Inbox: Inbox<D::Tx>,
    D: Driver,
{
    type Tx = D::Tx;
    type Outbox = F::Outbox;
    type Inbox = F::Inbox;

    fn features(&self) -> Features {
        self.store.features()
    }

    fn store(&self) -> Arc<dyn Backend> {
        self.store.store()
    }

    async fn another_store(&self) -> Arc<dyn Backend> {
        self.store.another_timetable().await
    }

    fn outbox(&self) -> Self::Outbox {
        self.store.outbox()
    }

    fn inbox(&self) -> Self::Inbox {
        self.store.inbox()
    }

    async fn begin(&self) -> D::Tx {
        D::begin(&self.url).await
    }

    async fn commit(&self, tx: D::Tx) {
        D::commit(tx).await;
    }

    async fn rollback(&self, tx: D::Tx) {
        D::rollback(tx).await;
    }

    async fn savepoint(&self, tx: &mut D::Tx) {
        D::run(tx, "savepoint here").await;
    }

    async fn rollback_to_savepoint(&self, tx: &mut D::Tx) {
        D::run(tx, "rollback to savepoint here").await;
    }

    async fn advance(&self, by: Duration) {
        self.store.advance(by).await;
    }

    async fn break_dead_letters(&self, broken: bool) {
        self.store.break_dead_letters(broken).await;
    }
}

/// Builds the message with a number.
type Make = fn(usize) -> MessageBuilder;

const KINDS: [(&str, Make); 4] = [
    ("plain", |n| Message::builder("orders").json(&n)),
    ("of several queues", |n| Message::builder(format!("queue-{}", n % 3)).json(&n)),
    ("with given ids", |n| Message::builder("orders").id(MessageId::at(SystemTime::now())).json(&n)),
    ("with timers", |n| {
        Message::builder("orders").timer(format!("{n}")).due_after(Duration::from_secs(60)).json(&n)
    }),
];

fn made(make: Make, numbers: Range<usize>) -> Vec<Message> {
    numbers.map(|n| make(n).build().unwrap()).collect()
}

/// Promise 1: staging is one statement, and one round trip, for a thousand messages of any kind as for one.
pub async fn staging_a_thousand_messages_is_one_round_trip<F, D>(fixture: Adapted<F, D>)
where
    F: Fixture,
    F::Outbox: Outbox<D::Tx>,
    F::Inbox: Inbox<D::Tx>,
    D: Driver,
{
    let (proxy, through) = CountingProxy::before_database(fixture.url()).await;
    let mut tx = D::begin(&plain(&through)).await;
    for (kind, make) in KINDS {
        // The first call creates the queues, and a driver that caches prepared statements prepares one.
        fixture.outbox().stage_all(&mut tx, &made(make, 0..10)).await.unwrap();
        for (first, size) in [(10, 1), (100, 1_000)] {
            let messages = made(make, first..first + size);
            let before = proxy.round_trips();
            let staged = fixture.outbox().stage_all(&mut tx, &messages).await.unwrap();
            assert_eq!(proxy.round_trips() - before, 1, "{size} messages {kind}");
            assert_eq!(staged.new_messages(), size, "{size} messages {kind}");
        }
    }
    D::commit(tx).await;
}

/// Promise 1: cancelling a timer is one round trip.
pub async fn cancelling_a_timer_is_one_round_trip<F, D>(fixture: Adapted<F, D>)
where
    F: Fixture,
    F::Outbox: Outbox<D::Tx>,
    F::Inbox: Inbox<D::Tx>,
    D: Driver,
{
    let (proxy, through) = CountingProxy::before_database(fixture.url()).await;
    let mut tx = D::begin(&plain(&through)).await;
    let messages = made(KINDS[3].1, 0..2);
    fixture.outbox().stage_all(&mut tx, &messages).await.unwrap();
    let mut trips = Vec::new();
    for message in &messages {
        let before = proxy.round_trips();
        let timer = &message.timer().unwrap().name;
        assert!(fixture.outbox().cancel_timer(&mut tx, message.queue(), timer).await.unwrap());
        trips.push(proxy.round_trips() - before);
    }
    D::commit(tx).await;

    assert_eq!(trips[1], 1, "the first call may prepare the statement: {trips:?}");
}

/// Promise 3: admitting is one statement, and one round trip, for a thousand messages as for one, whether they are duplicates or
/// not.
pub async fn admitting_a_thousand_messages_is_one_round_trip<F, D>(fixture: Adapted<F, D>)
where
    F: Fixture,
    F::Outbox: Outbox<D::Tx>,
    F::Inbox: Inbox<D::Tx>,
    D: Driver,
{
    let (proxy, through) = CountingProxy::before_database(fixture.url()).await;
    let mut tx = D::begin(&plain(&through)).await;
    let (inbox, consumer) = (fixture.inbox(), ConsumerName::new("billing").unwrap());
    let arrivals: Vec<_> = (0..1_000).map(|_| Arrival::new(MessageId::at(SystemTime::now()))).collect();
    // A driver that caches prepared statements prepares one.
    inbox.admit_all(&mut tx, &consumer, &arrivals[..10]).await.unwrap();
    for (size, new) in [(1, 0), (500, 490), (1_000, 500)] {
        let before = proxy.round_trips();
        let admitted = inbox.admit_all(&mut tx, &consumer, &arrivals[..size]).await.unwrap();
        assert_eq!(proxy.round_trips() - before, 1, "{size} messages");
        assert_eq!(admitted.iter().filter(|each| each.is_first()).count(), new, "{size} messages");
    }
    D::commit(tx).await;
}

/// Defines a test for every case about staging and admitting, for a store with another driver.
///
/// Takes the path of an `async fn` without arguments that creates an [`Adapted`](crate::adapter::Adapted), and its type. The
/// calling crate needs `tokio` with the features `macros` and `rt-multi-thread`.
///
/// ```ignore
/// postrider_testkit::adapter_suite!(adapted => Adapted<PostgresFixture, TokioPostgres>);
/// ```
///
/// An in-process database has no network, and skips the cases that count round trips:
///
/// ```ignore
/// postrider_testkit::adapter_suite!(in_process adapted => Adapted<SqliteFixture, SeaOrm>);
/// ```
#[macro_export]
macro_rules! adapter_suite {
    ($make:path => $fixture:ty) => {
        $crate::adapter_suite!(in_process $make => $fixture);

        mod adapter {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn staging_a_thousand_messages_is_one_round_trip() {
                let case = $crate::adapter::staging_a_thousand_messages_is_one_round_trip;
                $crate::store::run(super::store_suite_fixture(), case).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn cancelling_a_timer_is_one_round_trip() {
                let case = $crate::adapter::cancelling_a_timer_is_one_round_trip;
                $crate::store::run(super::store_suite_fixture(), case).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn admitting_a_thousand_messages_is_one_round_trip() {
                let case = $crate::adapter::admitting_a_thousand_messages_is_one_round_trip;
                $crate::store::run(super::store_suite_fixture(), case).await;
            }
        }
    };
    (in_process $make:path => $fixture:ty) => {
        async fn store_suite_fixture() -> $fixture {
            $make().await
        }

        $crate::store_suite! { @tests many_writers
            stage {
                follow_ups_are_staged_like_any_message
                a_rolled_back_message_never_exists
                a_committed_message_exists_exactly_once
                an_uncommitted_message_cannot_be_claimed
                a_rolled_back_savepoint_removes_only_later_messages
                a_rolled_back_transaction_rolls_back_its_savepoints
                one_call_stages_messages_of_several_queues
                an_empty_batch_does_nothing
                batches_of_1_100_and_5000_are_staged_completely
                every_message_has_an_identity
                a_typed_event_is_stored_as_its_codec_encoded_it
                an_event_a_message_and_a_builder_are_staged_alike
                an_oversized_payload_is_rejected_and_stages_nothing
                an_invalid_builder_is_rejected_and_stages_nothing
            }
            identity {
                the_same_identity_twice_in_one_batch_is_one_message
                the_same_identity_twice_in_one_transaction_is_one_message
                the_same_identity_in_a_later_transaction_is_one_message
                a_duplicate_does_not_block_the_rest_of_its_batch
                the_same_identity_in_two_queues_is_two_messages
            }
            inbox {
                an_admitted_message_is_a_duplicate
                a_rolled_back_admission_leaves_no_deduplication_record
                a_rolled_back_savepoint_removes_its_deduplication_records
                a_duplicate_leaves_the_transaction_usable
                consumers_have_separate_deduplication_records
                tenants_have_separate_deduplication_records
                a_repeated_message_in_a_batch_is_a_duplicate
                admissions_of_5000_messages_are_in_batch_order
                an_empty_batch_admits_nothing
                deduplication_record_and_staged_messages_commit_together
                a_concurrent_admission_of_the_same_message_waits_for_the_first
                overlapping_batches_never_deadlock
            }
            payloads {
                every_field_is_delivered_as_staged
                a_message_without_optional_fields_is_delivered_without_them
                payloads_are_opaque_bytes
                json_is_delivered_byte_for_byte
            }
            claim {
                messages_of_one_transaction_are_claimed_in_staging_order
                messages_due_at_the_same_time_are_claimed_in_staging_order
                a_past_due_time_is_due_now
                a_claim_reports_when_its_message_was_staged_and_due
            }
            timers {
                due_after_delays_delivery
                due_at_delays_delivery
                a_timer_name_is_unique_in_its_queue
                a_timer_name_is_unique_in_its_batch_and_transaction
                a_rolled_back_timer_never_held_its_name
            }
            timer_changes {
                extending_a_missing_timer_stages_it
                a_later_time_extends_a_timer
                one_batch_can_stage_and_extend_a_timer
                a_cancelled_timer_is_never_delivered
                a_rolled_back_cancellation_changes_nothing
                an_unknown_timer_cannot_be_cancelled
            }
            trace_context {
                a_message_staged_in_a_trace_carries_it
                an_explicit_trace_is_kept
                a_message_staged_outside_a_trace_carries_none
                an_extended_timer_carries_the_trace_of_the_extension
            }
            ordering {
                each_key_is_claimed_in_staging_order
            }
            notifications {
                a_commit_wakes_an_idle_worker
                no_notification_before_the_commit
                many_messages_of_one_transaction_are_one_notification
                every_queue_is_notified_once
                a_scheduled_message_does_not_notify
                without_an_idle_worker_nothing_is_notified
                a_rolled_back_savepoint_does_not_lose_a_notification
            }
        }
    };
}

#[cfg(test)]
mod tests {
    /// A case that the macro does not name would never run.
    #[test]
    fn every_case_is_named_in_the_macro() {
        let source = include_str!("adapter.rs");
        let cases: Vec<_> = source
            .lines()
            .filter_map(|line| line.strip_prefix("pub async fn ")?.split_once('<'))
            .map(|(case, _)| format!("            async fn {case}() {{"))
            .collect();
        assert!(!cases.is_empty());
        for case in cases {
            assert!(source.lines().any(|line| line == case), "{case} is not in the macro");
        }
    }
}
