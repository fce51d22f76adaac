//! `bench relay`: a relay from PostgreSQL compared with the client library of the same broker, fed from memory, in the same run.
//!
//! Both send the same bytes (the bodies, properties and headers that Postrider writes) in batches of the same size, and wait for
//! the broker's confirmation of every message. The client alone sends the next batch after the confirmation of the previous one, as
//! usual for batched confirms; and, like a relay, with two batches in flight.

pub(crate) mod broker;
mod kafka;
mod nats;
mod rabbitmq;
mod redis;
mod unavailable;

use crate::{
    backend::Backend,
    cpu,
    figure::Figure,
    postgres::{Databases, Ours},
    report::median,
    side::{EVENT_TYPE, PAYLOAD, QUEUE},
    worker::BenchDatabase,
    workload::{Workload, turns},
};
use anyhow::{Context, Result, bail};
use broker::Broker;
use postrider_core::{Format, Message, MessageId, Outgoing, Transport};
use postrider_engine::relay::{Destination, Relay, Route};
use std::{
    env,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};
use tokio::{task::JoinSet, time::sleep};

/// The source of the messages.
const SOURCE: &str = "/shop";
/// The default number of batches in flight of a relay.
const DEFAULT_IN_FLIGHT: usize = 2;
/// The supported brokers, and the variables with their URLs.
pub(crate) const KNOWN: [(&str, &str); 5] = [
    ("rabbitmq", "POSTRIDER_TEST_RABBITMQ_URL"),
    ("nats", "POSTRIDER_TEST_NATS_URL"),
    ("redis", "POSTRIDER_TEST_REDIS_URL"),
    (redis::UNSYNCED, "POSTRIDER_TEST_REDIS_URL"),
    ("kafka", "POSTRIDER_TEST_KAFKA_URL"),
];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    workload: Workload,

    /// Send this many messages in one turn
    #[arg(long, default_value_t = 50_000)]
    messages: usize,
}

pub(crate) async fn run(args: &Args) -> Result<()> {
    let mut databases = Databases::connect().await?;
    let bench_db = BenchDatabase::open(&databases.database(&Ours).await?).await?;
    let measured = measure(args, &bench_db).await;
    bench_db.store.close().await;
    bench_db.app.close().await;
    Box::new(databases).remove().await?;
    measured
}

async fn measure(args: &Args, bench_db: &BenchDatabase) -> Result<()> {
    let mut is_any = false;
    for (name, variable) in KNOWN {
        let Some(url) = env::var(variable).ok().filter(|url| !url.is_empty()) else { continue };
        is_any = true;
        if args.workload.wants(name) {
            let broker = open(name, &url).await.context(name)?;
            for figure in carrying(bench_db, &*broker, args).await.context(name)? {
                figure.print(args.workload.json)?;
            }
        }
        // One broker is enough for this figure.
        if name == "rabbitmq" && args.workload.wants("dead") {
            let broker = open(name, &url).await.context(name)?;
            for figure in unavailable::measure(
                bench_db,
                &*broker,
                args.workload.rounds(),
                args.workload.of(args.messages),
            )
            .await?
            {
                figure.print(args.workload.json)?;
            }
        }
    }
    if !is_any {
        bail!("no broker configured: run `cargo xtask bench relay`, which starts them");
    }
    Ok(())
}

pub(crate) async fn open(name: &'static str, url: &str) -> Result<Box<dyn Broker>> {
    Ok(match name {
        "rabbitmq" => Box::new(rabbitmq::RabbitMq::connect(url).await?),
        "kafka" => Box::new(kafka::Kafka::connect(url)?),
        "nats" => Box::new(nats::Nats::connect(url).await?),
        _ => Box::new(redis::Redis::connect(name, url).await?),
    })
}

/// The sender.
#[derive(Debug, Clone, Copy)]
enum Sender {
    Relay,
    /// The client alone, with this many batches in flight.
    Client(usize),
}

const ALL: [Sender; 3] = [Sender::Relay, Sender::Client(1), Sender::Client(DEFAULT_IN_FLIGHT)];

/// A relay compared with the client alone.
async fn carrying(bench_db: &BenchDatabase, broker: &dyn Broker, args: &Args) -> Result<[Figure; 2]> {
    let (rounds, messages) = (args.workload.rounds(), args.workload.of(args.messages));
    let transport = broker.transport()?;
    let mut rates = vec![Vec::new(); ALL.len()];
    for index in turns(rounds, ALL.len()) {
        eprintln!("{}: {:?}: round {} of {rounds}", broker.name(), ALL[index], rates[index].len() + 1);
        let destination = broker.create().await?;
        rates[index].push(match ALL[index] {
            Sender::Relay => relayed(bench_db, &transport, &destination, messages).await?,
            Sender::Client(concurrency) => {
                let batch = transport.capacity().batch;
                published(broker, (batch, concurrency), &destination, messages).await?
            }
        });
        broker.remove(&destination).await?;
    }
    transport.close().await;
    let mut middles = rates.into_iter().map(|rates| median(rates).unwrap_or(f64::NAN));
    let mut next = || middles.next().unwrap_or(f64::NAN);
    let (ours, one, two) = (next(), next(), next());
    let figure = |scenario: String, reference, reference_name, goal| Figure {
        bench: "relay",
        scenario,
        unit: "messages/s",
        ours,
        reference,
        reference_name,
        goal,
    };
    let name = broker.name();
    Ok([
        figure(name.to_owned(), one, "the client alone, batch by batch", "≥ 0.7"),
        figure(format!("{name}/two-under-way"), two, "the client alone, two batches at once", "-"),
    ])
}

/// Messages per second, from the database to the broker's confirmation.
async fn relayed(
    bench_db: &BenchDatabase,
    transport: &Arc<dyn Transport>,
    destination: &str,
    messages: usize,
) -> Result<f64> {
    bench_db.fill(messages).await?;
    sqlx::query("checkpoint").execute(&bench_db.app).await?;
    let relay = Relay::builder(bench_db.store.clone(), SOURCE)
        .destination(Destination::shared("broker", Arc::clone(transport)))
        .route(Route::new(QUEUE).to("broker", destination))
        .build()?;
    let used = Used::so_far();
    let began = Instant::now();
    let running = relay.start();
    while running.report().delivered < messages as u64 {
        sleep(Duration::from_millis(1)).await;
    }
    let rate = messages as f64 / began.elapsed().as_secs_f64();
    used.print("relay", messages);
    running.stop(Duration::from_secs(10)).await;
    Ok(rate)
}

/// Messages per second, from memory to the broker's confirmation.
async fn published(
    broker: &dyn Broker,
    (batch, concurrency): (usize, usize),
    destination: &str,
    messages: usize,
) -> Result<f64> {
    let outgoing = written(destination, messages)?;
    let mut clients = Vec::new();
    for share in outgoing.chunks(messages.div_ceil(concurrency)) {
        clients.push((broker.client().await?, share.to_vec()));
    }
    let mut team = JoinSet::new();
    let used = Used::so_far();
    let began = Instant::now();
    for (mut client, share) in clients {
        team.spawn(async move {
            for batch in share.chunks(batch) {
                client.publish(batch).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = team.join_next().await {
        done??;
    }
    used.print("client", messages);
    Ok(messages as f64 / began.elapsed().as_secs_f64())
}

/// The messages as a relay would send them.
pub(crate) fn written(destination: &str, messages: usize) -> Result<Vec<Outgoing>> {
    let message = Message::builder(QUEUE).event_type(EVENT_TYPE).payload(PAYLOAD.as_slice()).build()?;
    let now = SystemTime::now();
    let write = |_| {
        let id = MessageId::at(now);
        Ok(Outgoing::write(&message, id, now, SOURCE, destination.to_owned(), Format::Binary)?)
    };
    (0..messages).map(write).collect()
}

/// CPU time, which varies less than wall time on a shared machine.
struct Used {
    own: Option<Duration>,
    database: Option<Duration>,
}

impl Used {
    fn so_far() -> Self {
        Self { own: cpu::own(), database: cpu::Server::named().cpu() }
    }

    /// Prints the CPU time used since, per message.
    fn print(&self, who: &str, messages: usize) {
        let now = Self::so_far();
        let each = |before: Option<Duration>, after: Option<Duration>| {
            let spent = after?.saturating_sub(before?);
            Some(spent.as_secs_f64() * 1e6 / messages as f64)
        };
        let (own, database) = (each(self.own, now.own), each(self.database, now.database));
        eprintln!(
            "  {who}: {:.2} µs of CPU a message here, {:.2} in the database",
            own.unwrap_or(f64::NAN),
            database.unwrap_or(f64::NAN)
        );
    }
}
