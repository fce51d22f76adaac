//! `bench store`: the PostgreSQL store beside the same work written by hand.
//!
//! Each scenario runs in rounds, and in each round every side has its turn, in alternating order. A side has a database of
//! its own, which is emptied before each of its turns.

use crate::{
    database::Databases,
    ours::Ours,
    raw::Raw,
    reference::Reference,
    report::{Figures, Report, Series},
    server::{self, Server},
    side::{Side, Worker},
    wire::Wire,
};
use anyhow::{Context, Result, ensure};
use std::{
    env,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

const URL: &str = "POSTRIDER_BENCH_POSTGRES_URL";
const PID: &str = "POSTRIDER_BENCH_POSTGRES_PID";
/// What each connection does before it is measured.
const WARM_UP: usize = 10;
const PRELOAD: usize = 1000;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object per scenario
    #[arg(long)]
    json: bool,

    /// How often each side has its turn
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// How many messages pass in one turn; a tenth with batches of 10, a fiftieth with batches of 1
    #[arg(long, default_value_t = 100_000)]
    messages: usize,

    /// A look at how things stand: three rounds of a tenth of the messages
    #[arg(long)]
    quick: bool,

    /// Only scenarios whose name begins so, such as `stage` or `claim_settle/batch=1000`
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
enum Work {
    Stage { batch: usize },
    ClaimSettle { batch: usize, workers: usize },
}

impl Work {
    fn all() -> Vec<Self> {
        let stage = [1, 100, 1000].map(|batch| Self::Stage { batch });
        let claims = [1, 10, 100, 1000]
            .into_iter()
            .flat_map(|batch| [1, 2, 4].map(|workers| Self::ClaimSettle { batch, workers }));
        stage.into_iter().chain(claims).collect()
    }

    fn name(self) -> String {
        match self {
            Self::Stage { batch: 1 } => "stage/single".to_owned(),
            Self::Stage { batch } => format!("stage/batch={batch}"),
            Self::ClaimSettle { batch, workers } => format!("claim_settle/batch={batch}/workers={workers}"),
        }
    }

    fn batch(self) -> usize {
        match self {
            Self::Stage { batch } | Self::ClaimSettle { batch, .. } => batch,
        }
    }

    /// How many messages pass, of a full load of `messages`: whole batches.
    fn messages(self, messages: usize) -> usize {
        let share = match self.batch() {
            1 => messages / 50,
            10 => messages / 10,
            _ => messages,
        };
        share.max(self.batch()).next_multiple_of(self.batch())
    }
}

/// A side and its database.
struct Entry {
    side: Box<dyn Side>,
    url: String,
}

pub(crate) async fn run(args: &Args) -> Result<()> {
    let url =
        env::var(URL).with_context(|| format!("{URL} names no server; run `cargo xtask bench store`"))?;
    let server = Server::new(env::var(PID).ok().and_then(|pid| pid.parse().ok()));
    let mut databases = Databases::connect(&url).await?;
    let done = compare(args, server, &mut databases).await;
    databases.remove().await?;
    done
}

async fn compare(args: &Args, server: Server, databases: &mut Databases) -> Result<()> {
    let (rounds, messages) =
        if args.quick { (args.rounds.min(3), args.messages / 10) } else { (args.rounds, args.messages) };
    let sides: [Box<dyn Side>; 3] = [Box::new(Ours), Box::new(Reference), Box::new(Raw)];
    let mut entries = Vec::new();
    for side in sides {
        let url = databases.make(side.name()).await?;
        side.create(&url).await.with_context(|| format!("making the tables of {}", side.name()))?;
        entries.push(Entry { side, url });
    }
    let mut report = Report::new(args.json, &databases.version().await?, rounds);
    for work in Work::all() {
        let name = work.name();
        if !args.only.is_empty() && !args.only.iter().any(|only| name.starts_with(only)) {
            continue;
        }
        let entries = match work {
            Work::Stage { .. } => &entries[..2],
            Work::ClaimSettle { .. } => &entries[..],
        };
        let messages = work.messages(messages);
        let mut series: Vec<_> = entries.iter().map(|entry| Series::new(entry.side.name())).collect();
        for round in 0..rounds {
            eprintln!("{name}: round {} of {rounds}", round + 1);
            let mut order: Vec<usize> = (0..entries.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for index in order {
                let figures = measure(databases, server, &entries[index], work, messages, None).await;
                let figures = figures.with_context(|| format!("{name}, {}", entries[index].side.name()))?;
                series[index].figures.push(figures);
            }
        }
        for (entry, series) in entries.iter().zip(&mut series) {
            let (host, port) = databases.server();
            let wire = Wire::to(&host, port).await?;
            series.trips = measure(databases, server, entry, work, messages, Some(&wire)).await?.trips;
        }
        report.scenario(&name, messages, &series)?;
    }
    report.end()
}

/// One turn of one side. With a wire it counts round trips, and its other figures mean nothing.
async fn measure(
    databases: &mut Databases,
    server: Server,
    entry: &Entry,
    work: Work,
    messages: usize,
    wire: Option<&Wire>,
) -> Result<Figures> {
    let table = entry.side.table();
    let before = databases.reset(&entry.url, table).await?;
    let url = match wire {
        Some(wire) => Databases::through(&entry.url, wire.port())?,
        None => entry.url.clone(),
    };
    let (mut figures, warmed_up) = match work {
        Work::Stage { batch } => {
            let mut producer = entry.side.producer(&url).await?;
            for _ in 0..WARM_UP {
                producer.stage(batch).await?;
            }
            let clock = Clock::start(databases, server, wire).await?;
            for _ in 0..messages / batch {
                producer.stage(batch).await?;
            }
            let figures = clock.stop(databases, server, messages).await?;
            producer.close().await?;
            (figures, 0)
        }
        Work::ClaimSettle { batch, workers } => {
            let mut team = Vec::new();
            for _ in 0..workers {
                team.push(entry.side.worker(&url).await?);
            }
            let mut producer = entry.side.producer(&entry.url).await?;
            producer.stage(WARM_UP * workers).await?;
            for worker in &mut team {
                let settled = worker.turn(WARM_UP).await?;
                ensure!(settled == WARM_UP, "the warm-up settled {settled} of {WARM_UP}");
            }
            let mut left = messages;
            while left > 0 {
                producer.stage(left.min(PRELOAD)).await?;
                left -= left.min(PRELOAD);
            }
            producer.close().await?;
            let clock = Clock::start(databases, server, wire).await?;
            let team = drain(team, batch, messages).await?;
            let figures = clock.stop(databases, server, messages).await?;
            for worker in team {
                worker.close().await?;
            }
            (figures, WARM_UP * workers)
        }
    };
    let (after, left) = databases.outcome(&entry.url, table).await?;
    if matches!(work, Work::ClaimSettle { .. }) {
        ensure!(left == 0, "{left} messages were left behind");
    }
    // The connections report when they close, so the warm-up is part of it.
    let passed = (messages + warmed_up) as f64;
    let updated = after.updated - before.updated;
    figures.dead = (updated + after.deleted - before.deleted) as f64 / passed;
    figures.hot = (updated > 0).then(|| (after.hot - before.hot) as f64 / updated as f64);
    Ok(figures)
}

/// All workers at once, until nothing is left.
async fn drain(team: Vec<Box<dyn Worker>>, batch: usize, messages: usize) -> Result<Vec<Box<dyn Worker>>> {
    let settled = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for mut worker in team {
        let settled = Arc::clone(&settled);
        tasks.spawn(async move {
            while settled.load(Ordering::Relaxed) < messages {
                let count = worker.turn(batch).await?;
                if count == 0 {
                    // The others hold the rest.
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

/// Readings at the beginning of a turn.
struct Clock<'w> {
    wal: i64,
    server: Option<Duration>,
    client: Option<Duration>,
    wire: Option<(&'w Wire, u64)>,
    began: Instant,
}

impl<'w> Clock<'w> {
    async fn start(databases: &mut Databases, server: Server, wire: Option<&'w Wire>) -> Result<Self> {
        Ok(Self {
            wal: databases.wal().await?,
            server: server.cpu(),
            client: server::own_cpu(),
            wire: wire.map(|wire| (wire, wire.trips())),
            began: Instant::now(),
        })
    }

    async fn stop(self, databases: &mut Databases, server: Server, messages: usize) -> Result<Figures> {
        let took = self.began.elapsed();
        let messages = messages as f64;
        let micros = |now: Option<Duration>, before: Option<Duration>| {
            Some(now?.saturating_sub(before?).as_secs_f64() * 1e6 / messages)
        };
        Ok(Figures {
            rate: messages / took.as_secs_f64(),
            server: micros(server.cpu(), self.server),
            client: micros(server::own_cpu(), self.client),
            trips: self.wire.map(|(wire, before)| (wire.trips() - before) as f64 / messages),
            wal: (databases.wal().await? - self.wal) as f64 / messages,
            dead: 0.0,
            hot: None,
        })
    }
}
