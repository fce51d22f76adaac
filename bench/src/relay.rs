//! `bench relay`: a relay from PostgreSQL beside the client library of the same broker, fed from memory, in the same run.
//!
//! Both send the same bytes, the bodies, properties and headers that Postrider writes, in batches of the same size, and wait for the
//! broker's word on every message. The client alone sends the next batch when it has that for the one before, which is how batched
//! confirms are done; and, because a relay does so, with two batches under way.

pub(crate) mod broker;
mod dead;
mod kafka;
mod nats;
mod rabbitmq;
mod redis;

use crate::{
    cpu,
    extent::{Extent, turns},
    figure::Figure,
    ground::Ground,
    postgres::{Databases, Ours},
    report::median,
    side::{EVENT_TYPE, PAYLOAD, QUEUE},
    worker::Place,
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

/// In whose name messages are sent.
const SOURCE: &str = "/shop";
/// What a relay has under way unless told otherwise.
const AT_ONCE: usize = 2;
/// The brokers that can be measured, and what names them.
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
    extent: Extent,

    /// How many messages are sent in one turn
    #[arg(long, default_value_t = 50_000)]
    messages: usize,
}

pub(crate) async fn run(args: &Args) -> Result<()> {
    let mut databases = Databases::connect().await?;
    let place = Place::open(&databases.database(&Ours).await?).await?;
    let measured = measure(args, &place).await;
    place.store.close().await;
    place.app.close().await;
    Box::new(databases).remove().await?;
    measured
}

async fn measure(args: &Args, place: &Place) -> Result<()> {
    let mut is_any = false;
    for (name, variable) in KNOWN {
        let Some(url) = env::var(variable).ok().filter(|url| !url.is_empty()) else { continue };
        is_any = true;
        if args.extent.wants(name) {
            let broker = open(name, &url).await.context(name)?;
            for figure in carrying(place, &*broker, args).await.context(name)? {
                figure.print(args.extent.json)?;
            }
        }
        // One broker tells it for all.
        if name == "rabbitmq" && args.extent.wants("dead") {
            let broker = open(name, &url).await.context(name)?;
            for figure in
                dead::measure(place, &*broker, args.extent.rounds(), args.extent.of(args.messages)).await?
            {
                figure.print(args.extent.json)?;
            }
        }
    }
    if !is_any {
        bail!("there is no broker: `cargo xtask bench relay` starts them");
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

/// Who sends.
#[derive(Debug, Clone, Copy)]
enum Who {
    Relay,
    /// The client alone, with so many batches under way.
    Client(usize),
}

const ALL: [Who; 3] = [Who::Relay, Who::Client(1), Who::Client(AT_ONCE)];

/// A relay beside the client alone.
async fn carrying(place: &Place, broker: &dyn Broker, args: &Args) -> Result<[Figure; 2]> {
    let (rounds, messages) = (args.extent.rounds(), args.extent.of(args.messages));
    let transport = broker.transport()?;
    let mut rates = vec![Vec::new(); ALL.len()];
    for index in turns(rounds, ALL.len()) {
        eprintln!("{}: {:?}: round {} of {rounds}", broker.name(), ALL[index], rates[index].len() + 1);
        let destination = broker.create().await?;
        rates[index].push(match ALL[index] {
            Who::Relay => relayed(place, &transport, &destination, messages).await?,
            Who::Client(at_once) => {
                let batch = transport.capacity().batch;
                published(broker, (batch, at_once), &destination, messages).await?
            }
        });
        broker.remove(&destination).await?;
    }
    transport.close().await;
    let mut middles = rates.into_iter().map(|rates| median(rates).unwrap_or(f64::NAN));
    let mut next = || middles.next().unwrap_or(f64::NAN);
    let (ours, one, two) = (next(), next(), next());
    let figure = |scenario: String, reference, beside, goal| Figure {
        bench: "relay",
        scenario,
        unit: "messages/s",
        ours,
        reference,
        beside,
        goal,
    };
    let name = broker.name();
    Ok([
        figure(name.to_owned(), one, "the client alone, batch by batch", "≥ 0.7"),
        figure(format!("{name}/two-under-way"), two, "the client alone, two batches at once", "-"),
    ])
}

/// Messages a second, from the database to the broker's word.
async fn relayed(
    place: &Place,
    transport: &Arc<dyn Transport>,
    destination: &str,
    messages: usize,
) -> Result<f64> {
    place.fill(messages).await?;
    sqlx::query("checkpoint").execute(&place.app).await?;
    let relay = Relay::builder(place.store.clone(), SOURCE)
        .destination(Destination::shared("broker", Arc::clone(transport)))
        .route(Route::new(QUEUE).to("broker", destination))
        .build()?;
    let used = Used::so_far();
    let began = Instant::now();
    let running = relay.start();
    while running.tally().delivered < messages as u64 {
        sleep(Duration::from_millis(1)).await;
    }
    let rate = messages as f64 / began.elapsed().as_secs_f64();
    used.tell("relay", messages);
    running.shutdown(Duration::from_secs(10)).await;
    Ok(rate)
}

/// Messages a second, from memory to the broker's word.
async fn published(
    broker: &dyn Broker,
    (batch, at_once): (usize, usize),
    destination: &str,
    messages: usize,
) -> Result<f64> {
    let outgoing = written(destination, messages)?;
    let mut clients = Vec::new();
    for share in outgoing.chunks(messages.div_ceil(at_once)) {
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
    used.tell("client", messages);
    Ok(messages as f64 / began.elapsed().as_secs_f64())
}

/// What a relay would send.
pub(crate) fn written(destination: &str, messages: usize) -> Result<Vec<Outgoing>> {
    let message = Message::builder(QUEUE).event_type(EVENT_TYPE).payload(PAYLOAD.as_slice()).build()?;
    let now = SystemTime::now();
    let write = |_| {
        let id = MessageId::at(now);
        Ok(Outgoing::write(&message, id, now, SOURCE, destination.to_owned(), Format::Binary)?)
    };
    (0..messages).map(write).collect()
}

/// Processor time, which moves less than the clock when others use the machine.
struct Used {
    own: Option<Duration>,
    database: Option<Duration>,
}

impl Used {
    fn so_far() -> Self {
        Self { own: cpu::own(), database: cpu::Server::named().cpu() }
    }

    /// Says what was used since, for each message.
    fn tell(&self, who: &str, messages: usize) {
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
