//! A scheduler in virtual time, and the schedules that it rejects.

#![cfg(feature = "cron")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "support/log.rs"]
mod log;

use async_trait::async_trait;
use log::Log;
use postrider_core::{
    ClaimRequest, ClaimedMessage, Error, Lease, LeaseSettlement, Message, PauseRecord, PruneReport,
    PruneRequest, ScheduleName, Store, cloudevents::rfc3339, timetable::ScheduleReading,
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

/// A store on the runtime's clock that reports staged ticks. It can be unavailable for some calls.
#[derive(Debug)]
struct VirtualStore {
    store: MemoryStore,
    clock: ManualClock,
    began: (SystemTime, Instant),
    staged: UnboundedSender<String>,
    unavailable: Arc<AtomicUsize>,
    reads: Arc<AtomicUsize>,
}

struct Watch {
    staged: UnboundedReceiver<String>,
    unavailable: Arc<AtomicUsize>,
    reads: Arc<AtomicUsize>,
}

fn virtual_store(now: &str) -> (VirtualStore, Watch) {
    let now = rfc3339::parse(now).unwrap();
    let clock = ManualClock::at(now);
    let (sender, staged) = unbounded_channel();
    let (unavailable, reads) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let store = VirtualStore {
        store: MemoryStore::with_clock(clock.clone()),
        clock,
        began: (now, Instant::now()),
        staged: sender,
        unavailable: Arc::clone(&unavailable),
        reads: Arc::clone(&reads),
    };
    (store, Watch { staged, unavailable, reads })
}

postrider_core::forward_backend!(VirtualStore, store: notifier, inspect, operate, schema);

#[async_trait]
impl Store for VirtualStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<ClaimedMessage>, Error> {
        self.store.claim(request).await
    }

    async fn renew(&self, leases: &[Lease], lease_for: Duration) -> Result<Vec<Lease>, Error> {
        self.store.renew(leases, lease_for).await
    }

    async fn settle(&self, settlements: &[LeaseSettlement]) -> Result<Vec<Lease>, Error> {
        self.store.settle(settlements).await
    }

    async fn count_isolated(&self, lease: &Lease) -> Result<bool, Error> {
        self.store.count_isolated(lease).await
    }

    async fn prune(&self, request: &PruneRequest) -> Result<PruneReport, Error> {
        self.store.prune(request).await
    }

    async fn paused(&self) -> Result<Vec<PauseRecord>, Error> {
        self.store.paused().await
    }

    async fn ping(&self) -> Result<(), Error> {
        self.store.ping().await
    }

    async fn read_schedule(&self, schedule: &ScheduleName) -> Result<ScheduleReading, Error> {
        self.reads.fetch_add(1, SeqCst);
        if self.unavailable.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
            return Err(Error::Unavailable("unavailable".into()));
        }
        let now = self.began.0 + self.began.1.elapsed();
        self.clock.advance(now.duration_since(self.clock.now()).unwrap());
        Store::read_schedule(&self.store, schedule).await
    }

    async fn tick(
        &self,
        schedule: &ScheduleName,
        at: SystemTime,
        messages: &[Message],
    ) -> Result<bool, Error> {
        let is_staged = Store::tick(&self.store, schedule, at, messages).await?;
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
async fn scheduler_sleeps_until_the_next_tick() {
    let (store, mut watch) = virtual_store("2026-05-01T12:00:30.250Z");
    let began = Instant::now();
    let scheduler = Scheduler::builder(store).schedule(every("*/5 * * * *")).build().unwrap();
    let scheduling = scheduler.start();
    for (tick, after) in [("12:05", 269_750), ("12:10", 569_750), ("12:15", 869_750)] {
        let expected = format!("2026-05-01T{tick}:00.000Z");
        assert_eq!(watch.staged.recv().await.unwrap(), expected);
        let late = began.elapsed() - Duration::from_millis(after);
        // The runtime's timer has a resolution of a millisecond.
        assert!(late <= Duration::from_millis(2), "{tick} came {late:?} late");
    }
    scheduling.stop().await;
    // It reads the store once a minute, and once for each tick.
    let reads = watch.reads.load(SeqCst);
    assert!((15..25).contains(&reads), "{reads} reads in a quarter of an hour");
}

#[tokio::test(start_paused = true)]
async fn store_outage_is_retried_and_logged_once() {
    let log = Log::listen();
    let (store, mut watch) = virtual_store("2026-05-01T11:59:59Z");
    let scheduler = Scheduler::builder(store).schedule(every("0 12 * * *")).build().unwrap();
    scheduler.run_until_idle().await.unwrap();
    watch.unavailable.store(20, SeqCst);
    let scheduling = scheduler.start();
    assert_eq!(watch.staged.recv().await.unwrap(), "2026-05-01T12:00:00.000Z");
    scheduling.stop().await;
    assert_eq!(log.count("postrider.store_failed"), 1);
    assert_eq!(log.count("postrider.store_recovered"), 1);
}

#[tokio::test(start_paused = true)]
async fn invalid_message_is_logged_once_per_tick() {
    let log = Log::listen();
    let (store, watch) = virtual_store("2026-05-01T11:30:00Z");
    let broken = Schedule::new("broken", "0 * * * *", |_| Message::builder("two words"));
    let scheduler = Scheduler::builder(store).schedule(broken).build().unwrap();
    let scheduling = scheduler.start();
    // Three hours later, by the number of reads in between.
    while watch.reads.load(SeqCst) < 181 {
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    scheduling.stop().await;
    assert_eq!(log.count("postrider.tick_rejected"), 3);
    assert_eq!(log.count("postrider.store_failed"), 0);
}

#[test]
fn invalid_schedules_are_rejected() {
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
