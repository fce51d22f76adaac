//! The effect of an unavailable destination on another one.

use super::{SOURCE, broker::Broker};
use crate::{
    figure::Figure,
    report::median,
    side::{self, QUEUE},
    worker::BenchDatabase,
    workload::turns,
};
use anyhow::Result;
use async_trait::async_trait;
use postrider_core::{
    Capacity, Finding, Message, Outbox as _, Outgoing, PublishError, QueueName, Receipt, Transport,
};
use postrider_engine::relay::{Destination, Relay, Route};
use postrider_transports::rabbitmq::RabbitMqTransport;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::time::sleep;

/// The queue of the unavailable destination, if it has its own.
const OTHER: &str = "returns";
/// No server listens there.
const UNREACHABLE: &str = "amqp://guest:guest@127.0.0.1:1/%2f";

/// The second destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SecondDestination {
    Nobody,
    /// Unavailable, with a queue of its own that has the same number of messages.
    Route,
    /// Unavailable, and a target of every message.
    FanOut,
    /// Available, and a target of every message.
    Living,
}

const ALL: [SecondDestination; 4] = [
    SecondDestination::Nobody,
    SecondDestination::Route,
    SecondDestination::FanOut,
    SecondDestination::Living,
];

pub(super) async fn measure(
    bench_db: &BenchDatabase,
    broker: &dyn Broker,
    rounds: u32,
    messages: usize,
) -> Result<Vec<Figure>> {
    let mut rates = vec![Vec::new(); ALL.len()];
    for index in turns(rounds, ALL.len()) {
        eprintln!("dead: {:?}: round {} of {rounds}", ALL[index], rates[index].len() + 1);
        rates[index].push(sent(bench_db, broker, ALL[index], messages).await?);
    }
    let mut middles = rates.into_iter().map(|rates| median(rates).unwrap_or(f64::NAN));
    let mut next = || middles.next().unwrap_or(f64::NAN);
    let (alone, route, fan_out, available) = (next(), next(), next(), next());
    let figure = |scenario: &str, ours, reference, reference_name, goal| Figure {
        bench: "relay",
        scenario: format!("dead/{scenario}"),
        unit: "messages/s",
        ours,
        reference,
        reference_name,
        goal,
    };
    Ok(vec![
        figure("another-route", route, alone, "the living destination alone", "≥ 0.9"),
        figure("same-queue", fan_out, alone, "the living destination alone", "≥ 0.9"),
        figure("same-queue-both-alive", available, alone, "the living destination alone", "-"),
    ])
}

/// Messages per second that the available destination accepts.
async fn sent(
    bench_db: &BenchDatabase,
    broker: &dyn Broker,
    second_destination: SecondDestination,
    messages: usize,
) -> Result<f64> {
    let (orders, others) = (broker.create().await?, broker.create().await?);
    bench_db.fill(messages).await?;
    if second_destination == SecondDestination::Route {
        fill_other(bench_db, messages).await?;
    }
    sqlx::query("checkpoint").execute(&bench_db.app).await?;
    let available = CountingTransport::new(broker.transport()?);
    let second: Arc<dyn Transport> = if second_destination == SecondDestination::Living {
        broker.transport()?
    } else {
        Arc::new(RabbitMqTransport::new(UNREACHABLE)?)
    };
    let builder = Relay::builder(bench_db.store.clone(), SOURCE)
        .destination(Destination::new("living", available.clone()))
        .destination(Destination::shared("second", second));
    let route = Route::new(QUEUE).to("living", orders.as_str());
    let builder = match second_destination {
        SecondDestination::Nobody => builder.route(route),
        SecondDestination::Route => {
            builder.route(route).route(Route::new(OTHER).to("second", others.as_str()))
        }
        SecondDestination::FanOut | SecondDestination::Living => {
            builder.route(route.to("second", others.as_str()))
        }
    };
    let began = Instant::now();
    let running = builder.build()?.start();
    while available.accepted.load(Ordering::Relaxed) < messages {
        sleep(Duration::from_millis(1)).await;
    }
    let rate = messages as f64 / began.elapsed().as_secs_f64();
    running.stop(Duration::from_secs(10)).await;
    available.close().await;
    broker.remove(&orders).await?;
    broker.remove(&others).await?;
    // The messages for the unavailable destination.
    sqlx::query("truncate postrider.ready, postrider.scheduled").execute(&bench_db.app).await?;
    Ok(rate)
}

async fn fill_other(bench_db: &BenchDatabase, messages: usize) -> Result<()> {
    let other = QueueName::new(OTHER)?;
    for _ in 0..messages.div_ceil(1_000) {
        let batch: Vec<Message> =
            side::batch(1_000)?.iter().map(|message| message.redirected(other.clone())).collect();
        let mut tx = bench_db.app.begin().await?;
        bench_db.store.outbox().stage_all(&mut tx, &batch).await?;
        tx.commit().await?;
    }
    Ok(())
}

/// Counts accepted messages.
#[derive(Debug, Clone)]
struct CountingTransport {
    transport: Arc<dyn Transport>,
    accepted: Arc<AtomicUsize>,
}

impl CountingTransport {
    fn new(transport: Arc<dyn Transport>) -> Self {
        Self { transport, accepted: Arc::default() }
    }
}

#[async_trait]
impl Transport for CountingTransport {
    fn kind(&self) -> &'static str {
        self.transport.kind()
    }

    fn capacity(&self) -> Capacity {
        self.transport.capacity()
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Result<Receipt, PublishError>> {
        let answers = self.transport.publish(batch).await;
        self.accepted.fetch_add(answers.iter().filter(|answer| answer.is_ok()).count(), Ordering::Relaxed);
        answers
    }

    async fn check(&self, destinations: &[&str]) -> Result<Vec<Finding>, PublishError> {
        self.transport.check(destinations).await
    }

    async fn close(&self) {
        self.transport.close().await;
    }
}
