//! One destination of two is dead: what that does to the other.

use super::{SOURCE, broker::Broker};
use crate::{
    extent::turns,
    figure::Figure,
    report::median,
    side::{self, QUEUE},
    worker::Place,
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

/// The queue whose destination is dead, where it is another one.
const OTHER: &str = "returns";
/// Nobody listens there.
const NOBODY: &str = "amqp://guest:guest@127.0.0.1:1/%2f";

/// Who else is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nobody,
    /// A queue of its own for the dead one, with as much in it.
    Route,
    /// Every message also goes to the dead one.
    FanOut,
    /// Every message also goes to another one that lives.
    Living,
}

const ALL: [Beside; 4] = [Beside::Nobody, Beside::Route, Beside::FanOut, Beside::Living];

pub(super) async fn measure(
    place: &Place,
    broker: &dyn Broker,
    rounds: u32,
    messages: usize,
) -> Result<Vec<Figure>> {
    let mut rates = vec![Vec::new(); ALL.len()];
    for index in turns(rounds, ALL.len()) {
        eprintln!("dead: {:?}: round {} of {rounds}", ALL[index], rates[index].len() + 1);
        rates[index].push(sent(place, broker, ALL[index], messages).await?);
    }
    let mut middles = rates.into_iter().map(|rates| median(rates).unwrap_or(f64::NAN));
    let mut next = || middles.next().unwrap_or(f64::NAN);
    let (alone, route, fan_out, living) = (next(), next(), next(), next());
    let figure = |scenario: &str, ours, reference, beside, goal| Figure {
        bench: "relay",
        scenario: format!("dead/{scenario}"),
        unit: "messages/s",
        ours,
        reference,
        beside,
        goal,
    };
    Ok(vec![
        figure("another-route", route, alone, "the living destination alone", "≥ 0.9"),
        figure("same-queue", fan_out, alone, "the living destination alone", "≥ 0.9"),
        figure("same-queue-both-alive", living, alone, "the living destination alone", "-"),
    ])
}

/// Messages a second that the living destination accepts.
async fn sent(place: &Place, broker: &dyn Broker, beside: Beside, messages: usize) -> Result<f64> {
    let (orders, others) = (broker.create().await?, broker.create().await?);
    place.fill(messages).await?;
    if beside == Beside::Route {
        fill_other(place, messages).await?;
    }
    sqlx::query("checkpoint").execute(&place.app).await?;
    let living = Counted::new(broker.transport()?);
    let second: Arc<dyn Transport> = if beside == Beside::Living {
        broker.transport()?
    } else {
        Arc::new(RabbitMqTransport::new(NOBODY)?)
    };
    let builder = Relay::builder(place.store.clone(), SOURCE)
        .destination(Destination::new("living", living.clone()))
        .destination(Destination::shared("second", second));
    let route = Route::new(QUEUE).to("living", orders.as_str());
    let builder = match beside {
        Beside::Nobody => builder.route(route),
        Beside::Route => builder.route(route).route(Route::new(OTHER).to("second", others.as_str())),
        Beside::FanOut | Beside::Living => builder.route(route.to("second", others.as_str())),
    };
    let began = Instant::now();
    let running = builder.build()?.start();
    while living.accepted.load(Ordering::Relaxed) < messages {
        sleep(Duration::from_millis(1)).await;
    }
    let rate = messages as f64 / began.elapsed().as_secs_f64();
    running.shutdown(Duration::from_secs(10)).await;
    living.close().await;
    broker.remove(&orders).await?;
    broker.remove(&others).await?;
    // What the dead one never got.
    sqlx::query("truncate postrider.ready, postrider.later").execute(&place.app).await?;
    Ok(rate)
}

async fn fill_other(place: &Place, messages: usize) -> Result<()> {
    let other = QueueName::new(OTHER)?;
    for _ in 0..messages.div_ceil(1_000) {
        let batch: Vec<Message> =
            side::batch(1_000)?.iter().map(|message| message.redirected(other.clone())).collect();
        let mut tx = place.app.begin().await?;
        place.store.outbox().stage_all(&mut tx, &batch).await?;
        tx.commit().await?;
    }
    Ok(())
}

/// Counts what was accepted.
#[derive(Debug, Clone)]
struct Counted {
    transport: Arc<dyn Transport>,
    accepted: Arc<AtomicUsize>,
}

impl Counted {
    fn new(transport: Arc<dyn Transport>) -> Self {
        Self { transport, accepted: Arc::default() }
    }
}

#[async_trait]
impl Transport for Counted {
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
