//! Timers: scheduled messages, and named timers that are unique, extended and cancelled. The store's clock decides; here it is moved by
//! hand.

use postrider::{
    Context, Event, Failure, Outbox, OutboxExt, Queue, Worker,
    memory::{ManualClock, MemoryStore},
};
use std::{
    error::Error,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

const MINUTE: Duration = Duration::from_secs(60);

#[derive(Event, serde::Serialize, serde::Deserialize)]
#[event(type = "reminder", queue = "reminders")]
struct Reminder {
    text: String,
}

/// The reminders since the last minute.
type Reminded = Arc<Mutex<Vec<String>>>;

async fn remind(event: Reminder, context: Context) -> Result<(), Failure> {
    context.shared::<Reminded>()?.lock().unwrap_or_else(PoisonError::into_inner).push(event.text);
    Ok(())
}

fn reminder(text: &str) -> Reminder {
    Reminder { text: text.to_owned() }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let clock = ManualClock::at(SystemTime::UNIX_EPOCH + Duration::from_secs(2_000_000_000));
    let store = MemoryStore::with_clock(clock.clone());
    let reminded = Reminded::default();
    let reminders = Queue::new("reminders").on(remind);
    let worker = Worker::builder(store.clone()).queue(reminders).share(Arc::clone(&reminded)).build()?;

    let mut tx = store.begin();
    // A message for later.
    store.stage(&mut tx, reminder("tea is ready").message().due_after(4 * MINUTE)).await?;
    // A named timer: staged again while it is active, the first one stays.
    for text in ["pay the rent", "pay the rent twice"] {
        store.stage(&mut tx, reminder(text).message().timer("rent").due_after(10 * MINUTE)).await?;
    }
    // One that is extended by each event, such as the end of a session.
    store
        .stage(&mut tx, reminder("signed out").message().extending_timer("session").due_after(5 * MINUTE))
        .await?;
    // One that is cancelled.
    store
        .stage(&mut tx, reminder("order 17 is unpaid").message().timer("unpaid-17").due_after(7 * MINUTE))
        .await?;
    tx.commit();

    for minute in 1..=10 {
        clock.advance(MINUTE);
        if minute == 3 {
            let mut tx = store.begin();
            let later = reminder("signed out after a click");
            store.stage(&mut tx, later.message().extending_timer("session").due_after(5 * MINUTE)).await?;
            let cancelled = store.cancel_timer(&mut tx, &"reminders".parse()?, &"unpaid-17".parse()?).await?;
            tx.commit();
            println!("minute {minute}: a click; order 17 is paid, reminder cancelled: {cancelled}");
        }
        worker.run_until_idle().await?;
        for text in reminded.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            println!("minute {minute}: {text}");
        }
    }
    Ok(())
}
