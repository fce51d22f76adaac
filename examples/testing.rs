//! Tests of your own handlers: in memory, in virtual time, with faults on demand. This is a program that prints what it does; in your
//! tests the same lines are in a `#[tokio::test]`.

use postrider::{
    Backend, Context, Event, Failure, Invalid, Outbox, OutboxExt, Queue, Reason, RetryStrategy, Tx,
    TxBackend, Worker,
    testing::{Assert, Fault, TestStore},
};
use std::{error::Error, time::Duration};

const DAY: Duration = Duration::from_secs(24 * 3600);

// Under test: two handlers, and the worker that the application builds from them.

#[derive(Debug, Event, serde::Serialize, serde::Deserialize)]
#[event(type = "order.placed", queue = "orders")]
struct OrderPlaced {
    order: u32,
}

#[derive(Debug, Event, serde::Serialize, serde::Deserialize)]
#[event(type = "payment.due", queue = "payments")]
struct PaymentDue {
    order: u32,
}

async fn collect(event: PaymentDue, context: Context) -> Result<(), Failure> {
    match event.order {
        0 => Err(Failure::reject("there is no order 0").named("NoSuchOrder")),
        _ if context.attempt() > 5 => Err(Failure::reject("enough").named("GivenUp")),
        _ => Ok(()),
    }
}

fn worker<T, O>(store: impl Backend, transactions: &T, outbox: O) -> Result<Worker, Invalid>
where
    T: TxBackend,
    O: Outbox<T::Tx> + Clone + Send + Sync + 'static,
{
    // The payment is due in two weeks. Its timer commits together with the confirmation of the order.
    let confirm = move |event: OrderPlaced, mut tx: Tx<T::Tx>, context: Context| {
        let outbox = outbox.clone();
        async move {
            let due = PaymentDue { order: event.order }.message().due_after(14 * DAY);
            outbox.stage(&mut *tx, context.follow(due)).await?;
            Ok::<(), Failure>(())
        }
    };
    let payments = Queue::new("payments").on(collect).retry(RetryStrategy::constant(DAY));
    Worker::builder(store)
        .queue(Queue::new("orders").on_in_transaction(transactions, confirm))
        .queue(payments)
        .build()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    // One handler alone, called like a function, with a context built for the test.
    let sixth = Context::builder(&PaymentDue { order: 17 }).attempt(6);
    if let Err(failure) = sixth.perform(collect).await {
        println!("the sixth attempt: {:?}, {}", failure.next(), failure.kind());
    }

    // A producer: only committed messages are staged.
    let store = TestStore::new();
    let mut tx = store.begin();
    store.stage(&mut tx, &OrderPlaced { order: 16 }).await?;
    tx.rollback();
    store.assert_empty().await;
    let mut tx = store.begin();
    store.stage(&mut tx, &OrderPlaced { order: 17 }).await?;
    tx.commit();
    store.assert_only_staged(&[OrderPlaced::TYPE]).await;

    // The worker: the order is handled, and the message that its handler staged is scheduled.
    let worker = worker(store.clone(), &store, store.clone())?;
    store.run_until_idle(&worker).await?;
    let due = store.assert_staged_where(|due: &PaymentDue| due.order == 17).await;
    let wait = store.next_due().await?.unwrap_or_default();
    println!("{due:?} in {} days", wait.as_secs() / DAY.as_secs());

    // Two weeks pass at once. The handler panics first; then its lease is lost after the work, so the work is done twice.
    store.fault_on::<PaymentDue>(1, Fault::Panic);
    store.fault_on::<PaymentDue>(2, Fault::LoseLease);
    let report = store.run_until_settled(&worker).await?;
    println!("{} retried, {} lost, {} delivered", report.retried, report.lost, report.delivered);
    store.assert_empty().await;

    // A permanent failure is a dead letter.
    let mut tx = store.begin();
    store.stage(&mut tx, &OrderPlaced { order: 0 }).await?;
    tx.commit();
    store.run_until_settled(&worker).await?;
    let dead = store.assert_dead::<PaymentDue>(Reason::Rejected).await;
    println!("dead: {}", dead.error.unwrap_or_default());
    Ok(())
}
