//! A worker on two queues: handlers run side by side, one is tried again, one message is given up, and the worker stops
//! without dropping what it has in hand.

use postrider::{
    Context, Event, Failure, Json, OutboxExt, Queue, RetryStrategy, Worker,
    inspect::{Inspect, ListRequest, Room},
    memory::MemoryStore,
};
use std::{error::Error, io::Write, sync::Arc, time::Duration};
use tokio::sync::{Notify, mpsc};

#[derive(serde::Serialize, serde::Deserialize)]
struct OrderPlaced {
    order: u32,
}

impl Event for OrderPlaced {
    const TYPE: &'static str = "order.placed";
    const QUEUE: &'static str = "orders";
    type Codec = Json;
}

#[derive(serde::Serialize, serde::Deserialize)]
struct MailWanted {
    to: String,
}

impl Event for MailWanted {
    const TYPE: &'static str = "mail.wanted";
    const QUEUE: &'static str = "mails";
    type Codec = Json;
}

/// Where handlers tell what they do. What is shared with handlers is found by its type.
type Told = mpsc::UnboundedSender<String>;

async fn ship(event: OrderPlaced, context: Context) -> Result<(), Failure> {
    let order = event.order;
    context.shared::<Told>()?.send(format!("order {order}, attempt {}", context.attempt()))?;
    match order {
        2 if context.attempt() == 1 => Err("the warehouse did not answer".into()),
        3 => Err(Failure::reject("no such customer").named("NoSuchCustomer")),
        4 => {
            context.shared::<Arc<Notify>>()?.notified().await; // takes its time
            Ok(())
        }
        _ => Ok(()),
    }
}

async fn send(event: MailWanted, context: Context) -> Result<(), Failure> {
    context.shared::<Told>()?.send(format!("mail to {}", event.to))?;
    Ok(())
}

/// Runs the example, and writes what happens to `out`.
pub(crate) async fn run(out: &mut (impl Write + Send)) -> Result<(), Box<dyn Error>> {
    let store = MemoryStore::new();
    let mut tx = store.begin();
    for order in [1, 2, 3] {
        store.stage(&mut tx, &OrderPlaced { order }).await?;
    }
    for to in ["ann", "bob"] {
        store.stage(&mut tx, &MailWanted { to: to.into() }).await?;
    }
    tx.commit();

    let (told, mut telling) = mpsc::unbounded_channel();
    let arrival = Arc::new(Notify::new());
    let worker = Worker::builder(store.clone())
        .queue(Queue::new("orders").on(ship).retry(RetryStrategy::constant(Duration::from_millis(1))))
        .queue(Queue::new("mails").on(send).concurrency(2).timeout(Duration::from_secs(5)))
        .share::<Told>(told)
        .share(Arc::clone(&arrival))
        .build()?;
    let running = worker.start();

    let mut lines = Vec::new();
    while lines.len() < 6 {
        lines.extend(telling.recv().await);
    }
    lines.sort(); // queues do not wait for each other
    for line in lines {
        writeln!(out, "{line}")?;
    }

    // Order 4 is being handled when the worker is told to stop. It may finish.
    let mut tx = store.begin();
    store.stage(&mut tx, &OrderPlaced { order: 4 }).await?;
    tx.commit();
    writeln!(out, "{} … stop!", telling.recv().await.unwrap_or_default())?;
    let arrives = async { arrival.notify_one() };
    let (stopped, ()) = tokio::join!(running.shutdown(Duration::from_secs(10)), arrives);

    let tally = stopped.tally;
    writeln!(out, "stopped cleanly: {}", stopped.is_clean)?;
    writeln!(out, "{} delivered, {} tried again, {} dead", tally.delivered, tally.retried, tally.dead)?;
    for letter in store.list(&ListRequest::new("orders".parse()?, Room::Dead)).await?.entries {
        let payload = String::from_utf8_lossy(letter.message.payload());
        writeln!(out, "dead letter {payload}: {}", letter.error.unwrap_or_default())?;
    }
    Ok(())
}

#[allow(dead_code, reason = "the tests call `run`")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    run(&mut std::io::stdout()).await
}
