//! `bench consume`: a consumer with its inbox beside the same consumer without one, in the same run.
//!
//! Both receive the same messages from the same broker, run the same handler, which writes one row for each, in transactions of the same
//! sizes, and acknowledge after the commit. One of them marks what it has received; the other takes every message for a new one.

mod forgetful;

use crate::{
    extent::{Extent, turns},
    figure::Figure,
    ground::Ground,
    postgres::{Databases, Ours},
    relay::{KNOWN, broker::Broker, open, written},
    report::median,
    worker::Place,
};
use anyhow::{Context as _, Result, bail, ensure};
use forgetful::Forgetful;
use postrider_core::{Receive, transact::Transact};
use postrider_engine::{Consumer, Context, Failure, Tx, consumer::Consuming};
use sqlx::{Postgres, Transaction};
use std::{
    env,
    time::{Duration, Instant},
};
use tokio::time::sleep;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    extent: Extent,

    /// How many messages are received in one turn
    #[arg(long, default_value_t = 20_000)]
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
    sqlx::query("create table effect (message_id uuid not null, size integer not null)")
        .execute(&place.app)
        .await?;
    let mut is_any = false;
    for (name, variable) in KNOWN {
        let Some(url) = env::var(variable).ok().filter(|url| !url.is_empty()) else { continue };
        is_any = true;
        if args.extent.wants(name) {
            let broker = open(name, &url).await.context(name)?;
            consuming(place, &*broker, args).await.context(name)?.print(args.extent.json)?;
        }
    }
    if !is_any {
        bail!("there is no broker: `cargo xtask bench consume` starts them");
    }
    Ok(())
}

/// A consumer with its inbox beside one without.
async fn consuming(place: &Place, broker: &dyn Broker, args: &Args) -> Result<Figure> {
    let (rounds, messages) = (args.extent.rounds(), args.extent.of(args.messages));
    let mut rates = [Vec::new(), Vec::new()];
    for side in turns(rounds, rates.len()) {
        eprintln!(
            "{}: {}: round {} of {rounds}",
            broker.name(),
            ["with", "without"][side],
            rates[side].len() + 1
        );
        sqlx::raw_sql("truncate effect; truncate postrider.inbox; checkpoint").execute(&place.app).await?;
        let there = broker.create().await?;
        let mut client = broker.client().await?;
        for batch in written(&there, messages)?.chunks(1_000) {
            client.publish(batch).await?;
        }
        let transactions = place.store.transactions(place.app.clone());
        rates[side].push(match side {
            0 => received(broker, &there, transactions, messages).await?,
            _ => received(broker, &there, Forgetful(transactions), messages).await?,
        });
        let (effects,): (i64,) = sqlx::query_as("select count(*) from effect").fetch_one(&place.app).await?;
        ensure!(effects == messages as i64, "{effects} effects of {messages} messages");
        broker.remove(&there).await?;
    }
    let [with, without] = rates.map(|rates| median(rates).unwrap_or(f64::NAN));
    Ok(Figure {
        bench: "consume",
        scenario: broker.name().to_owned(),
        unit: "messages/s",
        ours: with,
        reference: without,
        beside: "the same without the inbox",
        goal: "≥ 0.6",
    })
}

/// Messages a second, from the commit of the first effects to that of the last: how long a broker takes to let a consumer in is not the
/// question, and a consumer group of Kafka takes seconds.
async fn received<R>(broker: &dyn Broker, there: &str, store: R, messages: usize) -> Result<f64>
where
    R: Receive + Transact<Tx = Transaction<'static, Postgres>>,
{
    let source = broker.source(there)?;
    let consumer = Consumer::builder_on("bench", source, store)
        .redelivered_within(Duration::from_secs(60))
        .on_any(|mut tx: Tx<Transaction<'static, Postgres>>, context: Context| async move {
            let size = i32::try_from(context.message().payload().len()).unwrap_or(i32::MAX);
            sqlx::query("insert into effect (message_id, size) values ($1, $2)")
                .bind(context.id().as_uuid())
                .bind(size)
                .execute(&mut **tx)
                .await?;
            Ok::<(), Failure>(())
        })
        .build()?;
    let running = consumer.start().await?;
    let first = at_least(&running, 1).await;
    let began = Instant::now();
    let last = at_least(&running, messages as u64).await;
    let rate = (last - first) as f64 / began.elapsed().as_secs_f64();
    running.shutdown(Duration::from_secs(10)).await;
    Ok(rate)
}

/// Waits until so many messages are processed, and says how many are.
async fn at_least<R: Receive>(running: &Consuming<R>, messages: u64) -> u64 {
    loop {
        let processed = running.consumed().processed;
        if processed >= messages {
            return processed;
        }
        sleep(Duration::from_millis(1)).await;
    }
}
