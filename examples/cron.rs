//! Recurring messages: a report every night at three in Berlin, staged once although two processes run the schedule, with catch-up
//! after a downtime. The store's clock decides; here it is moved by hand.

use postrider::{
    Context, Failure, Message, Queue, Worker,
    cron::{Missed, SCHEDULED_AT, Schedule, Scheduler},
    memory::{ManualClock, MemoryStore},
};
use std::{
    error::Error,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// Every process builds the same schedules. They share the name.
fn scheduler(store: &MemoryStore) -> Result<Scheduler, Box<dyn Error>> {
    let report = Schedule::new("nightly-report", "0 3 * * *", |_| Message::builder("reports").json("sales"))
        .in_time_zone("Europe/Berlin")
        .on_missed(Missed::Each { at_most: 2 });
    Ok(Scheduler::builder(store.clone()).schedule(report).build()?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    // Noon in Berlin on the day before its clocks go forward.
    let clock = ManualClock::at(SystemTime::UNIX_EPOCH + Duration::from_secs(1_774_695_600));
    let store = MemoryStore::with_clock(clock.clone());
    let made = Arc::<Mutex<Vec<String>>>::default();
    let making = Arc::clone(&made);
    let reports = Queue::new("reports").on_json(move |what: String, context: Context| {
        let tick = context.message().headers().get(SCHEDULED_AT).unwrap_or("never").to_owned();
        making.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{what}, scheduled at {tick}"));
        async { Ok::<(), Failure>(()) }
    });
    let worker = Worker::builder(store.clone()).queue(reports).build()?;

    // A service calls `start`; `run_until_idle` shows each step.
    let (one, other) = (scheduler(&store)?, scheduler(&store)?);
    for (what, passed) in [
        ("the schedule begins", Duration::ZERO),
        ("a night", 24 * HOUR),
        ("another night", 24 * HOUR),
        ("a week without a scheduler", 7 * 24 * HOUR),
    ] {
        clock.advance(passed);
        let staged = (one.run_until_idle().await?, other.run_until_idle().await?);
        println!("{what}: one staged {}, the other {}", staged.0, staged.1);
        worker.run_until_idle().await?;
        for report in made.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            println!("  {report}");
        }
    }
    Ok(())
}
