//! What the cases share.

use super::ConsumerFixture;
pub(super) use crate::{
    store::helpers::queue,
    transport::helpers::{orders, patiently, written},
};
use postrider_core::{
    Message, MessageId, OutboxExt, QueueName, RetryStrategy, Source,
    inspect::{Action, Entry, ListRequest, Room},
    transact::Transact,
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
pub(super) async fn billing<F: ConsumerFixture>(fixture: &F) -> ConsumerBuilder<F::Receive> {
    billing_on(fixture, fixture.source().await)
}

/// The same on another source.
pub(super) fn billing_on<F: ConsumerFixture>(
    fixture: &F,
    source: Arc<dyn Source>,
) -> ConsumerBuilder<F::Receive> {
    let soon = RetryStrategy::constant(Duration::from_millis(10)).without_max_attempts();
    Consumer::builder_on("billing", source, fixture.receive()).redeliver(soon)
}

/// A transaction of the fixture, as a handler is lent it.
pub(super) type Lent<F> = Tx<<<F as ConsumerFixture>::Receive as Transact>::Tx>;

/// Handles orders: stages an effect with the order's number, and then decides by that number.
pub(super) fn with_effect<F: ConsumerFixture>(
    builder: ConsumerBuilder<F::Receive>,
    fixture: &F,
    decide: impl Fn(u64) -> Result<(), Failure> + Send + Sync + 'static,
) -> Consumer<F::Receive> {
    let (outbox, decide) = (fixture.outbox(), Arc::new(decide));
    builder
        .on_json(move |number: u64, mut tx: Lent<F>, context: Context| {
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

/// Everything in one room of a queue, in its order.
pub(super) async fn list<F: ConsumerFixture>(fixture: &F, name: &str, room: Room) -> Vec<Entry> {
    let request = ListRequest::new(queue(name), room).with_limit(1_000);
    fixture.inspect().list(&request).await.unwrap().entries
}

fn number(entry: &Entry) -> u64 {
    std::str::from_utf8(entry.message.payload()).unwrap().parse().unwrap()
}

/// The numbers of the effects that happened, in the order in which they did.
pub(super) async fn effects_in_order<F: ConsumerFixture>(fixture: &F) -> Vec<u64> {
    list(fixture, "effects", Room::Ready).await.iter().map(number).collect()
}

/// The numbers of the effects that happened.
pub(super) async fn effects<F: ConsumerFixture>(fixture: &F) -> Vec<u64> {
    let mut numbers = effects_in_order(fixture).await;
    numbers.sort_unstable();
    numbers
}

/// What was parked.
pub(super) async fn parked<F: ConsumerFixture>(fixture: &F) -> Vec<Entry> {
    list(fixture, "inbox.billing", Room::Dead).await
}

/// Waits for a condition.
pub(super) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    patiently(what, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

/// Runs a consumer until it has counted what is wanted, stops it, and checks that it ended cleanly.
pub(super) async fn run_until<F: ConsumerFixture>(
    consumer: &Consumer<F::Receive>,
    is_enough: impl Fn(postrider_engine::Consumed) -> bool,
) -> postrider_engine::Consumed {
    let running = consumer.start().await.unwrap();
    until("what is wanted", || is_enough(running.consumed())).await;
    let drained = patiently("stopping", running.shutdown(Duration::from_secs(60))).await;
    assert!(drained.is_clean, "{drained:?}");
    drained.consumed
}

/// Counts how often something happened.
#[derive(Debug, Clone, Default)]
pub(super) struct Times(Arc<AtomicUsize>);

impl Times {
    /// Once more. Answers how often before.
    pub(super) fn once_more(&self) -> usize {
        self.0.fetch_add(1, SeqCst)
    }

    pub(super) fn get(&self) -> usize {
        self.0.load(SeqCst)
    }
}

pub(super) fn parking() -> QueueName {
    queue("inbox.billing")
}

pub(super) fn an_operator() -> Action {
    Action::new("ann", "it is mended")
}

pub(super) fn parked_ids(parked: &[Entry]) -> Vec<MessageId> {
    parked.iter().map(|entry| entry.message.id().unwrap()).collect()
}
