//! Timers: messages for later, and named ones that are set once, put off and cancelled. The store's clock decides when they come;
//! here it is moved by hand, so nobody has to wait.

use postrider::{
    Context, Event, Failure, Json, Outbox, OutboxExt, Queue, Worker,
    memory::{ManualClock, MemoryStore},
};
use std::{
    error::Error,
    io::Write,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

const MINUTE: Duration = Duration::from_secs(60);

#[derive(serde::Serialize, serde::Deserialize)]
struct Reminder {
    text: String,
}

impl Event for Reminder {
    const TYPE: &'static str = "reminder";
    const QUEUE: &'static str = "reminders";
    type Codec = Json;
}

/// What was said since somebody looked.
type Said = Arc<Mutex<Vec<String>>>;

async fn say(event: Reminder, context: Context) -> Result<(), Failure> {
    context.shared::<Said>()?.lock().unwrap_or_else(PoisonError::into_inner).push(event.text);
    Ok(())
}

fn reminder(text: &str) -> Reminder {
    Reminder { text: text.to_owned() }
}

/// Runs the example, and writes what happens to `out`.
pub(crate) async fn run(out: &mut (impl Write + Send)) -> Result<(), Box<dyn Error>> {
    let clock = ManualClock::at(SystemTime::UNIX_EPOCH + Duration::from_secs(2_000_000_000));
    let store = MemoryStore::with_clock(clock.clone());
    let said = Said::default();
    let reminders = Queue::new("reminders").on(say);
    let worker = Worker::builder(store.clone()).queue(reminders).share(Arc::clone(&said)).build()?;

    let mut tx = store.begin();
    // A message for later.
    store.stage(&mut tx, reminder("tea is ready").message().due_after(4 * MINUTE)).await?;
    // A named timer: set again while it lives, the first one stays.
    for text in ["pay the rent", "pay the rent twice"] {
        store.stage(&mut tx, reminder(text).message().timer("rent").due_after(10 * MINUTE)).await?;
    }
    // One that is put off whenever something happens, such as the end of a session.
    store
        .stage(&mut tx, reminder("signed out").message().extending_timer("session").due_after(5 * MINUTE))
        .await?;
    // One that will not be needed.
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
            writeln!(out, "minute {minute}: a click; order 17 is paid, reminder cancelled: {cancelled}")?;
        }
        worker.run_until_idle().await?;
        for text in said.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            writeln!(out, "minute {minute}: {text}")?;
        }
    }
    Ok(())
}

#[allow(dead_code, reason = "the tests call `run`")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    run(&mut std::io::stdout()).await
}
