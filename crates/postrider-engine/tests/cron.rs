//! A scheduler in virtual time, and what it refuses.

#![cfg(feature = "cron")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "support/log.rs"]
mod log;

use async_trait::async_trait;
use log::Log;
use postrider_core::{
    Error, Message, ScheduleName,
    cloudevents::rfc3339,
    timetable::{Reading, Timetable},
};
use postrider_engine::cron::{Missed, Schedule, Scheduler, SchedulerBuilder};
use postrider_stores::memory::{ManualClock, MemoryStore};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, SystemTime},
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::Instant,
};

/// A store whose time is the runtime's, and which tells what is staged. It may be away for some calls.
#[derive(Debug)]
struct Virtual {
    store: MemoryStore,
    clock: ManualClock,
    began: (SystemTime, Instant),
    staged: UnboundedSender<String>,
    away: Arc<AtomicUsize>,
    reads: Arc<AtomicUsize>,
}

struct Watch {
    staged: UnboundedReceiver<String>,
    away: Arc<AtomicUsize>,
    reads: Arc<AtomicUsize>,
}

fn virtual_store(now: &str) -> (Virtual, Watch) {
    let now = rfc3339::parse(now).unwrap();
    let clock = ManualClock::at(now);
    let (sender, staged) = unbounded_channel();
    let (away, reads) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let store = Virtual {
        store: MemoryStore::with_clock(clock.clone()),
        clock,
        began: (now, Instant::now()),
        staged: sender,
        away: Arc::clone(&away),
        reads: Arc::clone(&reads),
    };
    (store, Watch { staged, away, reads })
}

#[async_trait]
impl Timetable for Virtual {
    async fn read(&self, schedule: &ScheduleName) -> Result<Reading, Error> {
        self.reads.fetch_add(1, SeqCst);
        if self.away.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
            return Err(Error::Unavailable("away".into()));
        }
        let now = self.began.0 + self.began.1.elapsed();
        self.clock.advance(now.duration_since(self.clock.now()).unwrap());
        self.store.read(schedule).await
    }

    async fn tick(
        &self,
        schedule: &ScheduleName,
        at: SystemTime,
        messages: &[Message],
    ) -> Result<bool, Error> {
        let is_staged = self.store.tick(schedule, at, messages).await?;
        if is_staged {
            self.staged.send(rfc3339::format(at)).unwrap();
        }
        Ok(is_staged)
    }
}

fn every(cron: &str) -> Schedule {
    Schedule::new("ticking", cron, |_| Message::builder("ticks"))
}

#[tokio::test(start_paused = true)]
async fn a_scheduler_sleeps_until_the_next_tick_and_no_longer() {
    let (store, mut watch) = virtual_store("2026-05-01T12:00:30.250Z");
    let began = Instant::now();
    let scheduler = Scheduler::builder(store).schedule(every("*/5 * * * *")).build().unwrap();
    let scheduling = scheduler.start();
    for (tick, after) in [("12:05", 269_750), ("12:10", 569_750), ("12:15", 869_750)] {
        let expected = format!("2026-05-01T{tick}:00.000Z");
        assert_eq!(watch.staged.recv().await.unwrap(), expected);
        let late = began.elapsed() - Duration::from_millis(after);
        // The runtime's timer goes by milliseconds.
        assert!(late <= Duration::from_millis(2), "{tick} came {late:?} late");
    }
    scheduling.stop().await;
    // It looks once a minute, and once for each tick.
    let looks = watch.reads.load(SeqCst);
    assert!((15..25).contains(&looks), "{looks} looks in a quarter of an hour");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_was_away_is_asked_again_and_told_of_once() {
    let log = Log::listen();
    let (store, mut watch) = virtual_store("2026-05-01T11:59:59Z");
    let scheduler = Scheduler::builder(store).schedule(every("0 12 * * *")).build().unwrap();
    scheduler.run_once().await.unwrap();
    watch.away.store(20, SeqCst);
    let scheduling = scheduler.start();
    assert_eq!(watch.staged.recv().await.unwrap(), "2026-05-01T12:00:00.000Z");
    scheduling.stop().await;
    assert_eq!(log.count("postrider.store_failed"), 1);
    assert_eq!(log.count("postrider.store_works"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_breaks_a_rule_is_told_once_for_each_tick() {
    let log = Log::listen();
    let (store, watch) = virtual_store("2026-05-01T11:30:00Z");
    let broken = Schedule::new("broken", "0 * * * *", |_| Message::builder("two words"));
    let scheduler = Scheduler::builder(store).schedule(broken).build().unwrap();
    let scheduling = scheduler.start();
    // Three hours later, by the looks that were taken in between.
    while watch.reads.load(SeqCst) < 181 {
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    scheduling.stop().await;
    assert_eq!(log.count("postrider.tick_refused"), 3);
    assert_eq!(log.count("postrider.store_failed"), 0);
}

#[test]
fn what_makes_no_sense_is_refused_in_words() {
    let build = |schedules: Vec<Schedule>| {
        let builder = Scheduler::builder(MemoryStore::new());
        let built = schedules.into_iter().fold(builder, SchedulerBuilder::schedule).build();
        built.unwrap_err().to_string()
    };
    let refusals = [
        build(vec![]),
        build(vec![every("@daily"), every("@hourly")]),
        build(vec![Schedule::new("two words", "@daily", |_| Message::builder("ticks"))]),
        build(vec![Schedule::new("", "@daily", |_| Message::builder("ticks"))]),
        build(vec![every("")]),
        build(vec![every("* * *")]),
        build(vec![every("61 * * * *")]),
        build(vec![every("0 3 * * someday")]),
        build(vec![every("at noon, please")]),
        build(vec![every("0 0 30 2 *")]),
        build(vec![every("@daily").in_time_zone("Mars/Olympus")]),
        build(vec![every("@daily").in_time_zone("")]),
        build(vec![every("@daily").on_missed(Missed::Each { at_most: 0 })]),
    ];
    insta::assert_snapshot!(refusals.join("\n"));
}
