//! Draining a backlog: by claims and settlements alone, by a worker with tuned and with default settings, with a handler that
//! decodes JSON, and with failures.

use super::BenchDatabase;
use crate::{figure::Figure, report::median, workload::turns};
use anyhow::Result;
use postrider_core::{ClaimRequest, RetryStrategy, Store as _};
use postrider_engine::{Context, Failure, Queue, Worker};
use serde::Deserialize;
use std::time::{Duration, Instant};
use tokio::{task::JoinSet, time::sleep};

/// The payload of the benchmark.
#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "it is only read")]
struct Order {
    order: String,
    customer: String,
    currency: String,
    total: u64,
    lines: Vec<OrderLine>,
    note: String,
}

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "it is only read")]
struct OrderLine {
    sku: String,
    quantity: u32,
    price: Option<u32>,
}

/// How the backlog is drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DrainMode {
    /// Claims and settlements of a thousand, with this concurrency: the upper limit of the store.
    Store(usize),
    Best,
    Default,
    Json,
    /// Every message fails twice.
    Failing,
}

const ALL: [DrainMode; 6] = [
    DrainMode::Store(2),
    DrainMode::Store(4),
    DrainMode::Best,
    DrainMode::Default,
    DrainMode::Json,
    DrainMode::Failing,
];

pub(super) async fn measure(bench_db: &BenchDatabase, rounds: u32, messages: usize) -> Result<Vec<Figure>> {
    let mut rates = vec![Vec::new(); ALL.len()];
    for index in turns(rounds, ALL.len()) {
        eprintln!("drain: {:?}: round {} of {rounds}", ALL[index], rates[index].len() + 1);
        rates[index].push(drain(bench_db, ALL[index], messages).await?);
    }
    let rate = |who: DrainMode| {
        ALL.iter()
            .position(|each| *each == who)
            .and_then(|index| median(rates[index].clone()))
            .unwrap_or(f64::NAN)
    };
    let ceiling = rate(DrainMode::Store(2)).max(rate(DrainMode::Store(4)));
    let figure = |scenario: &str, ours, reference, reference_name, goal| Figure {
        bench: "worker",
        scenario: format!("drain/{scenario}"),
        unit: "messages/s",
        ours,
        reference,
        reference_name,
        goal,
    };
    let alone = "claims and settlements alone";
    Ok(vec![
        figure("best", rate(DrainMode::Best), ceiling, alone, "≥ 0.7"),
        figure("json", rate(DrainMode::Json), ceiling, alone, "≥ 0.5"),
        figure("default", rate(DrainMode::Default), rate(DrainMode::Best), "the best settings", "≥ 0.5"),
        figure(
            "failing-twice",
            rate(DrainMode::Failing),
            rate(DrainMode::Best),
            "deliveries without failures",
            "≥ 0.5",
        ),
    ])
}

/// Deliveries a second.
async fn drain(bench_db: &BenchDatabase, who: DrainMode, messages: usize) -> Result<f64> {
    bench_db.fill(messages).await?;
    sqlx::query("checkpoint").execute(&bench_db.app).await?;
    let began = Instant::now();
    let deliveries = match who {
        DrainMode::Store(workers) => claims_alone(bench_db, workers).await?,
        who => worker(bench_db, who, messages).await?,
    };
    Ok(deliveries as f64 / began.elapsed().as_secs_f64())
}

async fn claims_alone(bench_db: &BenchDatabase, workers: usize) -> Result<usize> {
    let mut team = JoinSet::new();
    for _ in 0..workers {
        let (store, request) = (bench_db.store.clone(), ClaimRequest::new(bench_db.queue.clone(), 1_000));
        team.spawn(async move {
            let mut count = 0;
            loop {
                let claimed = store.claim(&request).await?;
                if claimed.is_empty() {
                    return anyhow::Ok(count);
                }
                count += claimed.len();
                store.settle(&claimed.iter().map(|each| each.lease.done()).collect::<Vec<_>>()).await?;
            }
        });
    }
    let mut count = 0;
    while let Some(one) = team.join_next().await {
        count += one??;
    }
    Ok(count)
}

async fn worker(bench_db: &BenchDatabase, who: DrainMode, messages: usize) -> Result<usize> {
    let queue = Queue::new(bench_db.queue.as_str());
    let queue = match who {
        DrainMode::Json => queue.on_json(async |_: Order, _: Context| Ok::<(), Failure>(())),
        DrainMode::Failing => {
            queue.retry(RetryStrategy::constant(Duration::ZERO)).on_any(async |context: Context| {
                if context.attempt() < 3 { Err(Failure::retry("not yet")) } else { Ok(()) }
            })
        }
        _ => queue.on_any(async |_: Context| Ok::<(), Failure>(())),
    };
    let builder = Worker::builder(bench_db.store.clone());
    let worker = match who {
        DrainMode::Default => builder.queue(queue),
        _ => super::best(builder, queue),
    }
    .build()?;
    let running = worker.start();
    let before = running.report();
    while running.report().delivered - before.delivered < messages as u64 {
        sleep(Duration::from_millis(1)).await;
    }
    let after = running.report();
    tokio::spawn(running.stop(Duration::from_secs(10))).await?;
    Ok(usize::try_from(after.delivered + after.retried - before.delivered - before.retried)?)
}
