//! How you test your own handlers: in memory, in virtual time, with things going wrong when you want them to. This is a program, so
//! that it can tell what it does; in your tests the same lines stand in a `#[tokio::test]`.

use postrider::{
    Context, Event, Failure, Invalid, Json, Outbox, OutboxExt, Queue, Reason, RetryStrategy, Store, Tx,
    Worker,
    testing::{Assert, Fault, TestStore},
    transact::Transact,
    wake::Wake,
};
use std::{error::Error, io::Write, time::Duration};

const DAY: Duration = Duration::from_secs(24 * 3600);

// What is to be tested: two handlers, and the worker that the application makes of them on its own store.

#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct OrderPlaced {
    order: u32,
}

impl Event for OrderPlaced {
    const TYPE: &'static str = "order.placed";
    const QUEUE: &'static str = "orders";
    type Codec = Json;
}

#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct PaymentDue {
    order: u32,
}

impl Event for PaymentDue {
    const TYPE: &'static str = "payment.due";
    const QUEUE: &'static str = "payments";
    type Codec = Json;
}

async fn collect(event: PaymentDue, context: Context) -> Result<(), Failure> {
    match event.order {
        0 => Err(Failure::reject("there is no order 0").named("NoSuchOrder")),
        _ if context.attempt() > 5 => Err(Failure::reject("enough").named("GivenUp")),
        _ => Ok(()),
    }
}

fn worker<T, O>(store: impl Store + Wake, transactions: &T, outbox: O) -> Result<Worker, Invalid>
where
    T: Transact,
    O: Outbox<T::Tx> + Clone + Send + Sync + 'static,
{
    // Payment is due in two weeks. That it is, and that the order was confirmed, commit together.
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

/// Runs the example, and writes what happens to `out`.
pub(crate) async fn run(out: &mut (impl Write + Send)) -> Result<(), Box<dyn Error>> {
    // One handler alone, called like a function, with a context that is made up.
    let sixth = Context::builder(&PaymentDue { order: 17 }).attempt(6);
    if let Err(failure) = sixth.perform(collect).await {
        writeln!(out, "the sixth attempt: {:?}, {}", failure.next(), failure.kind())?;
    }

    // A producer: what is committed is staged, and nothing else.
    let store = TestStore::new();
    let mut tx = store.begin();
    store.stage(&mut tx, &OrderPlaced { order: 16 }).await?;
    tx.rollback();
    store.assert_empty().await;
    let mut tx = store.begin();
    store.stage(&mut tx, &OrderPlaced { order: 17 }).await?;
    tx.commit();
    store.assert_only_staged(&[OrderPlaced::TYPE]).await;

    // The worker: the order is handled, and what its handler staged waits for its time.
    let worker = worker(store.clone(), &store, store.clone())?;
    store.run_until_idle(&worker).await?;
    let due = store.assert_staged_where(|due: &PaymentDue| due.order == 17).await;
    let wait = store.next_due().await?.unwrap_or_default();
    writeln!(out, "{due:?} in {} days", wait.as_secs() / DAY.as_secs())?;

    // Two weeks and more pass at once. The handler panics first; then its worker dies after the work, so it is done twice.
    store.fault_on::<PaymentDue>(1, Fault::Panic);
    store.fault_on::<PaymentDue>(2, Fault::LoseLease);
    let tally = store.run_until_settled(&worker).await?;
    writeln!(out, "{} retried, {} lost, {} delivered", tally.retried, tally.lost, tally.delivered)?;
    store.assert_empty().await;

    // What fails for good is seen.
    let mut tx = store.begin();
    store.stage(&mut tx, &OrderPlaced { order: 0 }).await?;
    tx.commit();
    store.run_until_settled(&worker).await?;
    let letter = store.assert_dead::<PaymentDue>(Reason::Rejected).await;
    writeln!(out, "dead: {}", letter.error.unwrap_or_default())?;
    Ok(())
}

#[allow(dead_code, reason = "the tests call `run`")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    run(&mut std::io::stdout()).await
}
