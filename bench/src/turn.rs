//! One turn of one side: its work, and the measured cost.

use crate::{
    backend::{Backend, Used},
    cpu,
    report::Figures,
    scenario::Work,
    side::{Side, Worker},
    wire::Wire,
};
use anyhow::{Result, ensure};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

/// The warm-up of each connection before the measurement.
const WARM_UP: usize = 10;
const PRELOAD: usize = 1000;

/// A side, its database, and its work.
pub(crate) struct BenchTurn<'s> {
    pub(crate) side: &'s dyn Side,
    pub(crate) url: String,
    pub(crate) work: Work,
    pub(crate) messages: usize,
}

impl BenchTurn<'_> {
    pub(crate) async fn measure(&self, backend: &mut dyn Backend) -> Result<Figures> {
        self.run(backend, &self.url, None).await
    }

    /// Round trips per message, counted on the wire. Other figures of such a turn mean nothing.
    pub(crate) async fn trips(&self, backend: &mut dyn Backend) -> Result<Option<f64>> {
        let Some((wire, url)) = backend.wired(&self.url).await? else { return Ok(None) };
        Ok(self.run(backend, &url, Some(&wire)).await?.trips)
    }

    async fn run(&self, backend: &mut dyn Backend, url: &str, wire: Option<&Wire>) -> Result<Figures> {
        let Self { side, messages, .. } = *self;
        let before = backend.empty(side, &self.url).await?;
        let (mut figures, warmed_up) = match self.work {
            Work::Stage { batch } => (self.stage(backend, url, wire, batch).await?, 0),
            Work::ClaimSettle { batch, workers } => {
                (self.claim(backend, url, wire, batch, workers).await?, WARM_UP * workers)
            }
        };
        let (after, left) = backend.outcome(side, &self.url).await?;
        if matches!(self.work, Work::ClaimSettle { .. }) {
            ensure!(left == 0, "{left} messages were left behind");
        }
        if figures.wal.is_some() {
            // Connections report their statistics when they close, so the warm-up is included.
            let passed = (messages + warmed_up) as f64;
            let updated = after.updated - before.updated;
            figures.dead = Some((updated + after.deleted - before.deleted) as f64 / passed);
            figures.hot = (updated > 0).then(|| (after.hot - before.hot) as f64 / updated as f64);
        }
        Ok(figures)
    }

    async fn stage(
        &self,
        backend: &mut dyn Backend,
        url: &str,
        wire: Option<&Wire>,
        batch: usize,
    ) -> Result<Figures> {
        let mut producer = self.side.producer(url).await?;
        for _ in 0..WARM_UP {
            producer.stage(batch).await?;
        }
        let clock = BenchClock::start(backend, wire).await?;
        for _ in 0..self.messages / batch {
            producer.stage(batch).await?;
        }
        let figures = clock.stop(backend, self.messages).await?;
        producer.close().await?;
        Ok(figures)
    }

    async fn claim(
        &self,
        backend: &mut dyn Backend,
        url: &str,
        wire: Option<&Wire>,
        batch: usize,
        workers: usize,
    ) -> Result<Figures> {
        let mut team = Vec::new();
        for _ in 0..workers {
            team.push(self.side.worker(url).await?);
        }
        let mut producer = self.side.producer(&self.url).await?;
        producer.stage(WARM_UP * workers).await?;
        for worker in &mut team {
            let settled = worker.turn(WARM_UP).await?;
            ensure!(settled == WARM_UP, "the warm-up settled {settled} of {WARM_UP}");
        }
        let mut left = self.messages;
        while left > 0 {
            producer.stage(left.min(PRELOAD)).await?;
            left -= left.min(PRELOAD);
        }
        producer.close().await?;
        let clock = BenchClock::start(backend, wire).await?;
        let team = drain(team, batch, self.messages).await?;
        let figures = clock.stop(backend, self.messages).await?;
        for worker in team {
            worker.close().await?;
        }
        Ok(figures)
    }
}

/// All workers concurrently, until no message is left.
async fn drain(team: Vec<Box<dyn Worker>>, batch: usize, messages: usize) -> Result<Vec<Box<dyn Worker>>> {
    let settled = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for mut worker in team {
        let settled = Arc::clone(&settled);
        tasks.spawn(async move {
            while settled.load(Ordering::Relaxed) < messages {
                let count = worker.turn(batch).await?;
                if count == 0 {
                    // The others have the rest in flight.
                    break;
                }
                settled.fetch_add(count, Ordering::Relaxed);
            }
            anyhow::Ok(worker)
        });
    }
    let mut team = Vec::new();
    while let Some(worker) = tasks.join_next().await {
        team.push(worker??);
    }
    Ok(team)
}

/// The counters at the beginning of a turn.
struct BenchClock<'w> {
    used: Used,
    client: Option<Duration>,
    wire: Option<(&'w Wire, u64)>,
    began: Instant,
}

impl<'w> BenchClock<'w> {
    async fn start(backend: &mut dyn Backend, wire: Option<&'w Wire>) -> Result<Self> {
        Ok(Self {
            used: backend.used().await?,
            client: cpu::own(),
            wire: wire.map(|wire| (wire, wire.trips())),
            began: Instant::now(),
        })
    }

    async fn stop(self, backend: &mut dyn Backend, messages: usize) -> Result<Figures> {
        let (took, client) = (self.began.elapsed(), cpu::own());
        let trips = self.wire.map(|(wire, before)| wire.trips() - before);
        let used = backend.used().await?;
        let messages = messages as f64;
        let micros = |now: Option<Duration>, before: Option<Duration>| {
            Some(now?.saturating_sub(before?).as_secs_f64() * 1e6 / messages)
        };
        Ok(Figures {
            rate: messages / took.as_secs_f64(),
            server: micros(used.server, self.used.server),
            client: micros(client, self.client),
            trips: trips.map(|trips| trips as f64 / messages),
            wal: used.wal.zip(self.used.wal).map(|(now, before)| (now - before) as f64 / messages),
            dead: None,
            hot: None,
        })
    }
}
