//! A worker on two queues: handlers run concurrently, one is retried, one message becomes a dead letter, and the worker shuts down
//! gracefully: messages in flight are finished.

use postrider::{
    Context, Event, Failure, OutboxExt, Queue, RetryStrategy, Worker,
    inspect::{Inspect, ListRequest, StateFilter},
    memory::MemoryStore,
};
use std::{error::Error, sync::Arc, time::Duration};
use tokio::sync::{Notify, mpsc};

#[derive(Event, serde::Serialize, serde::Deserialize)]
#[event(type = "order.placed", queue = "orders")]
struct OrderPlaced {
    order: u32,
}

#[derive(Event, serde::Serialize, serde::Deserialize)]
#[event(type = "mail.wanted", queue = "mails")]
struct MailWanted {
    to: String,
}

/// Receives a line for each run of a handler. Values that are shared with handlers are found by their type.
type RunLog = mpsc::UnboundedSender<String>;

async fn ship(event: OrderPlaced, context: Context) -> Result<(), Failure> {
    let order = event.order;
    context.shared::<RunLog>()?.send(format!("order {order}, attempt {}", context.attempt()))?;
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
    context.shared::<RunLog>()?.send(format!("mail to {}", event.to))?;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = MemoryStore::new();
    let mut tx = store.begin();
    for order in [1, 2, 3] {
        store.stage(&mut tx, &OrderPlaced { order }).await?;
    }
    for to in ["ann", "bob"] {
        store.stage(&mut tx, &MailWanted { to: to.into() }).await?;
    }
    tx.commit();

    let (log, mut runs) = mpsc::unbounded_channel();
    let parcel = Arc::new(Notify::new());
    let worker = Worker::builder(store.clone())
        .queue(Queue::new("orders").on(ship).retry(RetryStrategy::constant(Duration::from_millis(1))))
        .queue(Queue::new("mails").on(send).concurrency(2).timeout(Duration::from_secs(5)))
        .share::<RunLog>(log)
        .share(Arc::clone(&parcel))
        .build()?;
    let running = worker.start();

    let mut lines = Vec::new();
    while lines.len() < 6 {
        lines.extend(runs.recv().await);
    }
    lines.sort(); // queues do not wait for each other
    for line in lines {
        println!("{line}");
    }

    // Order 4 is in flight when the worker stops. Its handler may finish.
    let mut tx = store.begin();
    store.stage(&mut tx, &OrderPlaced { order: 4 }).await?;
    tx.commit();
    println!("{} … stop!", runs.recv().await.unwrap_or_default());
    let finish = async { parcel.notify_one() };
    let (stopped, ()) = tokio::join!(running.stop(Duration::from_secs(10)), finish);

    let report = stopped.report;
    println!("stopped cleanly: {}", stopped.clean);
    println!("{} delivered, {} retried, {} dead", report.delivered, report.retried, report.dead);
    for row in store.list(&ListRequest::new("orders".parse()?, StateFilter::Dead)).await?.entries {
        let payload = String::from_utf8_lossy(row.message.payload());
        println!("dead letter {payload}: {}", row.error.unwrap_or_default());
    }
    Ok(())
}
