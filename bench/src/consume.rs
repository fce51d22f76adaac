//! `bench consume`: a consumer with its inbox compared with the same consumer without one, in the same run.
//!
//! Both receive the same messages from the same broker, run the same handler, which writes one row per message, in transactions of
//! the same sizes, and ack after the commit. One of them writes deduplication records; the other treats every message as new.

mod without_inbox;

use crate::{
    backend::Backend,
    figure::Figure,
    postgres::{Databases, Ours},
    relay::{KNOWN, broker::Broker, open, written},
    report::median,
    worker::BenchDatabase,
    workload::{Workload, turns},
};
use anyhow::{Context as _, Result, bail, ensure};
use postrider_core::TxBackend;
use postrider_engine::{Consumer, Context, Failure, Running, Tx};
use sqlx::{Postgres, Transaction};
use std::{
    env,
    time::{Duration, Instant},
};
use tokio::time::sleep;
use without_inbox::WithoutInbox;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    workload: Workload,

    /// Receive this many messages in one turn
    #[arg(long, default_value_t = 20_000)]
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
    sqlx::query("create table effect (message_id uuid not null, size integer not null)")
        .execute(&bench_db.app)
        .await?;
    let mut is_any = false;
    for (name, variable) in KNOWN {
        let Some(url) = env::var(variable).ok().filter(|url| !url.is_empty()) else { continue };
        is_any = true;
        if args.workload.wants(name) {
            let broker = open(name, &url).await.context(name)?;
            consuming(bench_db, &*broker, args).await.context(name)?.print(args.workload.json)?;
        }
    }
    if !is_any {
        bail!("no broker configured: run `cargo xtask bench consume`, which starts them");
    }
    Ok(())
}

/// A consumer with its inbox compared with one without.
async fn consuming(bench_db: &BenchDatabase, broker: &dyn Broker, args: &Args) -> Result<Figure> {
    let (rounds, messages) = (args.workload.rounds(), args.workload.of(args.messages));
    let mut rates = [Vec::new(), Vec::new()];
    for side in turns(rounds, rates.len()) {
        eprintln!(
            "{}: {}: round {} of {rounds}",
            broker.name(),
            ["with", "without"][side],
            rates[side].len() + 1
        );
        sqlx::raw_sql("truncate effect; truncate postrider.inbox; checkpoint").execute(&bench_db.app).await?;
        let there = broker.create().await?;
        let mut client = broker.client().await?;
        for batch in written(&there, messages)?.chunks(1_000) {
            client.publish(batch).await?;
        }
        let transactions = bench_db.store.transactions(bench_db.app.clone());
        rates[side].push(match side {
            0 => received(broker, &there, transactions, messages).await?,
            _ => received(broker, &there, WithoutInbox(transactions), messages).await?,
        });
        let (effects,): (i64,) =
            sqlx::query_as("select count(*) from effect").fetch_one(&bench_db.app).await?;
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
        reference_name: "the same without the inbox",
        goal: "≥ 0.6",
    })
}

/// Messages per second, from the commit of the first effects to that of the last: the time to join is not measured, and a consumer
/// group of Kafka takes seconds to join.
async fn received<R>(broker: &dyn Broker, there: &str, store: R, messages: usize) -> Result<f64>
where
    R: TxBackend<Tx = Transaction<'static, Postgres>>,
{
    let source = broker.source(there)?;
    let consumer = Consumer::builder_on("bench", source, store)
        .redelivery_window(Duration::from_secs(60))
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
    let running = consumer.start();
    let first = at_least(&running, 1).await;
    let began = Instant::now();
    let last = at_least(&running, messages as u64).await;
    let rate = (last - first) as f64 / began.elapsed().as_secs_f64();
    running.stop(Duration::from_secs(10)).await;
    Ok(rate)
}

/// Waits until this many messages are processed, and returns how many are.
async fn at_least(running: &Running, messages: u64) -> u64 {
    loop {
        let processed = running.report().delivered;
        if processed >= messages {
            return processed;
        }
        sleep(Duration::from_millis(1)).await;
    }
}
