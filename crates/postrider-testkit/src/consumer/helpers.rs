//! Helpers of the consumer suite.

use super::ConsumerFixture;
pub(super) use crate::{
    store::helpers::queue,
    transport::helpers::{orders, within_patience, written},
};
use postrider_core::{
    Message, MessageId, OutboxExt, QueueName, RetryStrategy, Source, TxBackend,
    inspect::{Action, ListRequest, MessageRow, StateFilter},
};
use postrider_engine::{Consumer, ConsumerBuilder, Context, Failure, Tx};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

/// A consumer of the fixture's source.
pub(super) async fn billing<F: ConsumerFixture>(fixture: &F) -> ConsumerBuilder<F::Transactions> {
    billing_on(fixture, fixture.source().await)
}

/// The same on another source.
pub(super) fn billing_on<F: ConsumerFixture>(
    fixture: &F,
    source: Arc<dyn Source>,
) -> ConsumerBuilder<F::Transactions> {
    let soon = RetryStrategy::constant(Duration::from_millis(10)).without_max_attempts();
    Consumer::builder_on("billing", source, fixture.receive()).retry(soon)
}

/// The fixture's transaction, in the form that handlers receive.
pub(super) type HandlerTx<F> = Tx<<<F as ConsumerFixture>::Transactions as TxBackend>::Tx>;

/// Handles orders: stages an effect with the order's number, and then returns a result by that number.
pub(super) fn with_effect<F: ConsumerFixture>(
    builder: ConsumerBuilder<F::Transactions>,
    fixture: &F,
    decide: impl Fn(u64) -> Result<(), Failure> + Send + Sync + 'static,
) -> Consumer<F::Transactions> {
    let (outbox, decide) = (fixture.outbox(), Arc::new(decide));
    builder
        .on_json(move |number: u64, mut tx: HandlerTx<F>, context: Context| {
            let (outbox, decide) = (outbox.clone(), Arc::clone(&decide));
            async move {
                let effect = Message::builder("effects").payload(number.to_string());
                // Boxed, because a driver's future may be large.
                Box::pin(outbox.stage(&mut *tx, context.follow(effect))).await?;
                decide(number)
            }
        })
        .build()
        .unwrap()
}

/// Every message of a queue in one state, in order.
pub(super) async fn list<F: ConsumerFixture>(
    fixture: &F,
    name: &str,
    filter: StateFilter,
) -> Vec<MessageRow> {
    let request = ListRequest::new(queue(name), filter).with_limit(1_000);
    fixture.inspect().list(&request).await.unwrap().entries
}

fn number(entry: &MessageRow) -> u64 {
    std::str::from_utf8(entry.message.payload()).unwrap().parse().unwrap()
}

/// The numbers of the effects that happened, in the order in which they did.
pub(super) async fn effects_in_order<F: ConsumerFixture>(fixture: &F) -> Vec<u64> {
    list(fixture, "effects", StateFilter::Ready).await.iter().map(number).collect()
}

/// The numbers of the effects that happened.
pub(super) async fn effects<F: ConsumerFixture>(fixture: &F) -> Vec<u64> {
    let mut numbers = effects_in_order(fixture).await;
    numbers.sort_unstable();
    numbers
}

/// The dead letters of the consumer.
pub(super) async fn dead_letters<F: ConsumerFixture>(fixture: &F) -> Vec<MessageRow> {
    list(fixture, "inbox.billing", StateFilter::Dead).await
}

/// Waits for a condition.
pub(super) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    within_patience(what, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

/// Runs a consumer until its report satisfies the condition, stops it, and asserts a clean stop.
pub(super) async fn run_until<F: ConsumerFixture>(
    consumer: &Consumer<F::Transactions>,
    is_enough: impl Fn(postrider_engine::Report) -> bool,
) -> postrider_engine::Report {
    let running = consumer.start();
    until("what is wanted", || is_enough(running.report())).await;
    let drained = within_patience("stopping", running.stop(Duration::from_secs(60))).await;
    assert!(drained.clean, "{drained:?}");
    drained.report
}

/// Counts how often something happened.
#[derive(Debug, Clone, Default)]
pub(super) struct Times(Arc<AtomicUsize>);

impl Times {
    /// Counts one more, and returns the previous count.
    pub(super) fn once_more(&self) -> usize {
        self.0.fetch_add(1, SeqCst)
    }

    pub(super) fn get(&self) -> usize {
        self.0.load(SeqCst)
    }
}

pub(super) fn dead_letter_queue() -> QueueName {
    queue("inbox.billing")
}

pub(super) fn an_operator() -> Action {
    Action::new("ann", "it is fixed")
}

pub(super) fn dead_letter_ids(dead_letters: &[MessageRow]) -> Vec<MessageId> {
    dead_letters.iter().map(|entry| entry.message.id().unwrap()).collect()
}
