//! The scheduler: stages the messages of due ticks.

use super::schedule::{CheckedSchedule, Schedule};
use crate::delivery_loop::{backoff::Backoff, store_outage::StoreOutage};
use postrider_core::{Backend, Error, Invalid};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

/// Clocks are set and schedules of other processes change, so a scheduler never sleeps longer than this.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);
/// First and longest backoff after a failure of the store.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(15));

/// Stages the messages of schedules when they are due. Any number of processes may run the same schedules: each tick is staged
/// once or not at all.
///
/// ```
/// # use postrider_core::{ClaimRequest, Message, Store};
/// # use postrider_engine::cron::{Schedule, Scheduler};
/// # use postrider_stores::memory::MemoryStore;
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryStore::new();
/// let scheduler = Scheduler::builder(store.clone())
///     .schedule(Schedule::new("nightly-report", "0 3 * * *", |_| Message::builder("reports").json("sales")))
///     .build()?;
///
/// // For scheduled jobs; services call `start`, and `stop` at the end.
/// assert_eq!(scheduler.run_until_idle().await?, 0); // the schedule begins now
/// store.advance(Duration::from_secs(24 * 60 * 60));
/// assert_eq!(scheduler.run_until_idle().await?, 1);
/// assert_eq!(scheduler.run_until_idle().await?, 0);
/// assert_eq!(store.claim(&ClaimRequest::new("reports".parse()?, 10)).await?.len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Scheduler {
    backend: Arc<dyn Backend>,
    schedules: Arc<[CheckedSchedule]>,
    store_outage: Arc<StoreOutage>,
    /// By schedule: the tick whose invalid message was logged, so that it is logged once.
    rejected_ticks: Arc<Mutex<HashMap<usize, SystemTime>>>,
}

/// Builder of a [`Scheduler`]; [`build`](Self::build) checks the schedules.
#[derive(Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct SchedulerBuilder {
    backend: Arc<dyn Backend>,
    schedules: Vec<Schedule>,
}

impl Scheduler {
    /// Starts building a scheduler that stages in a store.
    pub fn builder(backend: impl Backend) -> SchedulerBuilder {
        Self::builder_on(Arc::new(backend))
    }

    /// Starts building a scheduler on a backend that is already shared.
    pub fn builder_on(backend: Arc<dyn Backend>) -> SchedulerBuilder {
        SchedulerBuilder { backend, schedules: Vec::new() }
    }

    /// Stages the messages that are due now and returns their number, without those that another process has staged.
    ///
    /// # Errors
    /// When the store fails, or when a message is invalid; the other schedules were served all the same.
    pub async fn run_until_idle(&self) -> Result<usize, Error> {
        let report = self.check_all().await?;
        report.rejected.map_or(Ok(report.staged), |(_, _, invalid)| Err(invalid.into()))
    }

    /// Starts the scheduler. It runs until it is stopped. Call it within a tokio runtime.
    pub fn start(&self) -> RunningScheduler {
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let (scheduler, stopped) = (self.clone(), stop.clone());
        tasks.spawn(async move {
            // A tick that is cancelled halfway was staged completely or not at all.
            stopped.run_until_cancelled(scheduler.run()).await;
        });
        RunningScheduler { stop, tasks }
    }

    async fn run(&self) {
        let new_backoff = || Backoff::new(BACKOFF.0, BACKOFF.1);
        let mut backoff = new_backoff();
        loop {
            let wake_at = match self.check_all().await {
                Ok(report) => {
                    self.store_outage.resolved();
                    backoff = new_backoff();
                    report.wake_at
                }
                Err(error) => {
                    self.store_outage.report("stage scheduled messages", &error);
                    Instant::now() + backoff.next_delay()
                }
            };
            sleep_until(wake_at).await;
        }
    }

    async fn check_all(&self) -> Result<CheckReport, Error> {
        let mut report = CheckReport { staged: 0, wake_at: Instant::now() + LONGEST_SLEEP, rejected: None };
        for (number, schedule) in self.schedules.iter().enumerate() {
            // Before the store is queried: rather a check too early than one too late.
            let checked_at = Instant::now();
            let reading = self.backend.read_schedule(&schedule.name).await?;
            if let Some(rest) = schedule.until_next_tick(reading.now) {
                report.wake_at = report.wake_at.min(checked_at + rest.min(LONGEST_SLEEP));
            }
            for at in schedule.due(reading) {
                match self.tick(schedule, at).await {
                    Ok(true) => {
                        let name = schedule.name.to_string();
                        metrics::counter!("postrider_scheduled_total", "schedule" => name).increment(1);
                        report.staged += 1;
                    }
                    Ok(false) => {}
                    Err(Error::Invalid(invalid)) => {
                        self.log_rejected(number, at, schedule, &invalid);
                        report.rejected.get_or_insert((number, at, invalid));
                        // A later tick would take its place.
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(report)
    }

    async fn tick(&self, schedule: &CheckedSchedule, at: SystemTime) -> Result<bool, Error> {
        let message = schedule.message(at)?;
        self.backend.tick(&schedule.name, at, &[message]).await
    }

    fn log_rejected(&self, number: usize, at: SystemTime, schedule: &CheckedSchedule, invalid: &Invalid) {
        let mut rejected_ticks = self.rejected_ticks.lock().unwrap_or_else(PoisonError::into_inner);
        if rejected_ticks.insert(number, at) != Some(at) {
            let schedule = &schedule.name;
            tracing::error!(
                name: "postrider.tick_rejected", %schedule, error = %invalid,
                "tick of schedule {schedule} not staged: its message is invalid: {invalid}"
            );
        }
    }
}

/// The result of checking every schedule.
struct CheckReport {
    staged: usize,
    wake_at: Instant,
    rejected: Option<(usize, SystemTime, Invalid)>,
}

impl SchedulerBuilder {
    /// Adds a schedule.
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedules.push(schedule);
        self
    }

    /// Checks the settings and builds the scheduler.
    ///
    /// # Errors
    /// Names the first invalid setting and the valid values.
    pub fn build(self) -> Result<Scheduler, Invalid> {
        if self.schedules.is_empty() {
            let rule = "a scheduler needs at least one: add it with `schedule`";
            return Err(Invalid::rule("schedules", rule));
        }
        let mut schedules: Vec<CheckedSchedule> = Vec::with_capacity(self.schedules.len());
        for schedule in self.schedules {
            let schedule = schedule.check()?;
            if schedules.iter().any(|other| other.name == schedule.name) {
                let rule = format!("{} is given twice: give each schedule a name of its own", schedule.name);
                return Err(Invalid::rule("schedule", rule));
            }
            schedules.push(schedule);
        }
        Ok(Scheduler {
            backend: self.backend,
            schedules: schedules.into(),
            store_outage: Arc::default(),
            rejected_ticks: Arc::default(),
        })
    }
}

/// A running scheduler. Dropping it ends it at once; a tick is staged completely or not at all.
#[derive(Debug)]
pub struct RunningScheduler {
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl RunningScheduler {
    /// Liveness: whether the task still runs. It always does until it is stopped.
    pub fn is_alive(&mut self) -> bool {
        while self.tasks.try_join_next().is_some() {}
        !self.tasks.is_empty()
    }

    /// Stops, and waits until the task has ended.
    pub async fn stop(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}
