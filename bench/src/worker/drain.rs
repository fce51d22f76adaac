//! Draining a backlog: by claims and settlements alone, by a worker at its best and as it comes, with a handler that
//! reads JSON, and with failures.

use super::Place;
use crate::{extent::turns, figure::Figure, report::median};
use anyhow::Result;
use postrider_core::{ClaimRequest, RetryStrategy, Store as _};
use postrider_engine::{Context, Failure, Queue, Worker};
use serde::Deserialize;
use std::time::{Duration, Instant};
use tokio::{task::JoinSet, time::sleep};

/// What the payload of the benchmark says.
#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "it is only read")]
struct Order {
    order: String,
    customer: String,
    currency: String,
    total: u64,
    lines: Vec<Line>,
    note: String,
}

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "it is only read")]
struct Line {
    sku: String,
    quantity: u32,
    price: Option<u32>,
}

/// Who drains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    /// Claims and settlements of a thousand, by so many at once: the store's own ceiling.
    Store(usize),
    Best,
    Default,
    Json,
    /// Every message fails twice.
    Failing,
}

const ALL: [Who; 6] = [Who::Store(2), Who::Store(4), Who::Best, Who::Default, Who::Json, Who::Failing];

pub(super) async fn measure(place: &Place, rounds: u32, messages: usize) -> Result<Vec<Figure>> {
    let mut rates = vec![Vec::new(); ALL.len()];
    for index in turns(rounds, ALL.len()) {
        eprintln!("drain: {:?}: round {} of {rounds}", ALL[index], rates[index].len() + 1);
        rates[index].push(drain(place, ALL[index], messages).await?);
    }
    let rate = |who: Who| {
        ALL.iter()
            .position(|each| *each == who)
            .and_then(|index| median(rates[index].clone()))
            .unwrap_or(f64::NAN)
    };
    let ceiling = rate(Who::Store(2)).max(rate(Who::Store(4)));
    let figure = |scenario: &str, ours, reference, beside, goal| Figure {
        bench: "worker",
        scenario: format!("drain/{scenario}"),
        unit: "messages/s",
        ours,
        reference,
        beside,
        goal,
    };
    let alone = "claims and settlements alone";
    Ok(vec![
        figure("best", rate(Who::Best), ceiling, alone, "≥ 0.7"),
        figure("json", rate(Who::Json), ceiling, alone, "≥ 0.5"),
        figure("default", rate(Who::Default), rate(Who::Best), "the best settings", "≥ 0.5"),
        figure("failing-twice", rate(Who::Failing), rate(Who::Best), "deliveries without failures", "≥ 0.5"),
    ])
}

/// Deliveries a second.
async fn drain(place: &Place, who: Who, messages: usize) -> Result<f64> {
    place.fill(messages).await?;
    sqlx::query("checkpoint").execute(&place.app).await?;
    let began = Instant::now();
    let deliveries = match who {
        Who::Store(workers) => claims_alone(place, workers).await?,
        who => worker(place, who, messages).await?,
    };
    Ok(deliveries as f64 / began.elapsed().as_secs_f64())
}

async fn claims_alone(place: &Place, workers: usize) -> Result<usize> {
    let mut team = JoinSet::new();
    for _ in 0..workers {
        let (store, request) = (place.store.clone(), ClaimRequest::new(place.queue.clone(), 1_000));
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

async fn worker(place: &Place, who: Who, messages: usize) -> Result<usize> {
    let queue = Queue::new(place.queue.as_str());
    let queue = match who {
        Who::Json => queue.on_json(async |_: Order, _: Context| Ok::<(), Failure>(())),
        Who::Failing => {
            queue.retry(RetryStrategy::constant(Duration::ZERO)).on_any(async |context: Context| {
                if context.attempt() < 3 { Err(Failure::retry("not yet")) } else { Ok(()) }
            })
        }
        _ => queue.on_any(async |_: Context| Ok::<(), Failure>(())),
    };
    let builder = Worker::builder(place.store.clone());
    let worker = match who {
        Who::Default => builder.queue(queue),
        _ => super::best(builder, queue),
    }
    .build()?;
    let running = worker.start();
    let before = running.tally();
    while running.tally().delivered - before.delivered < messages as u64 {
        sleep(Duration::from_millis(1)).await;
    }
    let after = running.tally();
    tokio::spawn(running.shutdown(Duration::from_secs(10))).await?;
    Ok(usize::try_from(after.delivered + after.retried - before.delivered - before.retried)?)
}
