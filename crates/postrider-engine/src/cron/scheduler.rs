//! Stages what schedules are due for.

use super::schedule::{Checked, Schedule};
use crate::carry::trouble::{Backoff, Trouble};
use postrider_core::{Error, Invalid, timetable::Timetable};
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

/// Clocks are set and schedules of other processes change, so nobody sleeps for longer than this.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);
/// Pauses after failures of the store grow from and to so much.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(15));

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
/// // For programs that a clock starts; others call `start`, and `stop` in the end.
/// assert_eq!(scheduler.run_once().await?, 0); // the schedule begins now
/// store.advance(Duration::from_secs(24 * 60 * 60));
/// assert_eq!(scheduler.run_once().await?, 1);
/// assert_eq!(scheduler.run_once().await?, 0);
/// assert_eq!(store.claim(&ClaimRequest::new("reports".parse()?, 10)).await?.len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Scheduler {
    timetable: Arc<dyn Timetable>,
    schedules: Arc<[Checked]>,
    trouble: Arc<Trouble>,
    /// By schedule: the tick whose message broke a rule, so that it is told once.
    broken: Arc<Mutex<HashMap<usize, SystemTime>>>,
}

/// Collects the schedules; [`build`](Self::build) checks them all.
#[derive(Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct SchedulerBuilder {
    timetable: Arc<dyn Timetable>,
    schedules: Vec<Schedule>,
}

impl Scheduler {
    /// Begins a scheduler that stages in `store`.
    pub fn builder(store: impl Timetable) -> SchedulerBuilder {
        Self::builder_on(Arc::new(store))
    }

    /// Begins a scheduler on a store that is shared already.
    pub fn builder_on(timetable: Arc<dyn Timetable>) -> SchedulerBuilder {
        SchedulerBuilder { timetable, schedules: Vec::new() }
    }

    /// Stages what is due now and says how many messages that were: none of those that another process has staged.
    ///
    /// # Errors
    /// When the store fails, or when a message breaks a rule; then the other schedules were served all the same.
    pub async fn run_once(&self) -> Result<usize, Error> {
        let round = self.round().await?;
        round.refused.map_or(Ok(round.staged), |(_, _, invalid)| Err(invalid.into()))
    }

    /// Starts, and goes on until it is stopped. Call it within a runtime of tokio.
    pub fn start(&self) -> Scheduling {
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let (scheduler, stopped) = (self.clone(), stop.clone());
        tasks.spawn(async move {
            // A tick that is dropped halfway has happened whole or not at all.
            stopped.run_until_cancelled(scheduler.run()).await;
        });
        Scheduling { stop, tasks }
    }

    async fn run(&self) {
        let pauses = || Backoff::new(PAUSES.0, PAUSES.1);
        let mut backoff = pauses();
        loop {
            let wake_at = match self.round().await {
                Ok(round) => {
                    self.trouble.is_over();
                    backoff = pauses();
                    round.wake_at
                }
                Err(error) => {
                    self.trouble.happened("scheduling", &error);
                    Instant::now() + backoff.pause()
                }
            };
            sleep_until(wake_at).await;
        }
    }

    async fn round(&self) -> Result<Round, Error> {
        let mut round = Round { staged: 0, wake_at: Instant::now() + LONGEST_SLEEP, refused: None };
        for (number, schedule) in self.schedules.iter().enumerate() {
            // Before the store is asked: rather a look too early than one too late.
            let looked_at = Instant::now();
            let reading = self.timetable.read(&schedule.name).await?;
            if let Some(rest) = schedule.rests_for(reading.now) {
                round.wake_at = round.wake_at.min(looked_at + rest.min(LONGEST_SLEEP));
            }
            for at in schedule.due(reading) {
                match self.tick(schedule, at).await {
                    Ok(true) => {
                        let name = schedule.name.to_string();
                        metrics::counter!("postrider_scheduled_total", "schedule" => name).increment(1);
                        round.staged += 1;
                    }
                    Ok(false) => {}
                    Err(Error::Invalid(invalid)) => {
                        self.tell(number, at, schedule, &invalid);
                        round.refused.get_or_insert((number, at, invalid));
                        // Whatever comes after it would take its place.
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(round)
    }

    async fn tick(&self, schedule: &Checked, at: SystemTime) -> Result<bool, Error> {
        let message = schedule.message(at)?;
        self.timetable.tick(&schedule.name, at, &[message]).await
    }

    fn tell(&self, number: usize, at: SystemTime, schedule: &Checked, invalid: &Invalid) {
        let mut broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
        if broken.insert(number, at) != Some(at) {
            let schedule = &schedule.name;
            tracing::error!(name: "postrider.tick_refused", %schedule, error = %invalid, "a tick is not staged: its message breaks a rule");
        }
    }
}

/// What came of looking at every schedule.
struct Round {
    staged: usize,
    wake_at: Instant,
    refused: Option<(usize, SystemTime, Invalid)>,
}

impl SchedulerBuilder {
    /// Also stages what this schedule is due for.
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedules.push(schedule);
        self
    }

    /// Checks everything and makes the scheduler.
    ///
    /// # Errors
    /// Names the first setting that makes no sense, and says what does.
    pub fn build(self) -> Result<Scheduler, Invalid> {
        if self.schedules.is_empty() {
            let rule = "a scheduler needs at least one: give it with `schedule`";
            return Err(Invalid::rule("schedules", rule));
        }
        let mut schedules: Vec<Checked> = Vec::with_capacity(self.schedules.len());
        for schedule in self.schedules {
            let schedule = schedule.check()?;
            if schedules.iter().any(|other| other.name == schedule.name) {
                let rule = format!("{} is there twice; give each a name of its own", schedule.name);
                return Err(Invalid::rule("schedule", rule));
            }
            schedules.push(schedule);
        }
        Ok(Scheduler {
            timetable: self.timetable,
            schedules: schedules.into(),
            trouble: Arc::default(),
            broken: Arc::default(),
        })
    }
}

/// A scheduler at work. Dropped, it ends at once, and nothing is half done.
#[derive(Debug)]
pub struct Scheduling {
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Scheduling {
    /// Whether it still runs. One that was not stopped always does.
    pub fn is_alive(&mut self) -> bool {
        while self.tasks.try_join_next().is_some() {}
        !self.tasks.is_empty()
    }

    /// Stops, and waits until it has.
    pub async fn stop(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}
