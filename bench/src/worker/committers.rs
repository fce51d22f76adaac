//! The cost of a busy worker's notifications for concurrent producers.

use super::{BenchDatabase, best};
use crate::{figure::Figure, report::median};
use anyhow::Result;
use postrider_core::Outbox as _;
use postrider_engine::{Context, Failure, Queue, Worker};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::{task::JoinSet, time::sleep};

const COMMITTERS: usize = 8;

pub(super) async fn measure(bench_db: &BenchDatabase, rounds: u32, quick: bool) -> Result<Vec<Figure>> {
    let lasting = Duration::from_secs(if quick { 3 } else { 6 });
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        eprintln!("committers: round {} of {rounds}", round + 1);
        let is_first = round % 2 == 0;
        for signals in [is_first, !is_first] {
            let rate = commits(bench_db, signals, lasting).await?;
            if signals { &mut with } else { &mut without }.push(rate);
        }
    }
    let ratios: Vec<f64> = with.iter().zip(&without).map(|(with, without)| with / without).collect();
    eprintln!("committers: ratios {ratios:.2?}");
    Ok(vec![Figure {
        bench: "worker",
        scenario: "committers/signals".to_owned(),
        unit: "commits/s",
        ours: median(with).unwrap_or(f64::NAN),
        reference: median(without).unwrap_or(f64::NAN),
        reference_name: "commits beside a worker that polls",
        goal: "≥ 0.9",
    }])
}

/// Commits per second of eight producers, each with one message per transaction, next to a worker that handles the messages.
async fn commits(bench_db: &BenchDatabase, signals: bool, lasting: Duration) -> Result<f64> {
    let queue = Queue::new(bench_db.queue.as_str()).on_any(async |_: Context| Ok::<(), Failure>(()));
    let builder = best(Worker::builder(bench_db.store.clone()), queue);
    let worker = if signals { builder } else { builder.without_notifications() }.build()?;
    let running = worker.start();
    let (committed, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let mut team = JoinSet::new();
    for _ in 0..COMMITTERS {
        let (app, outbox) = (bench_db.app.clone(), bench_db.store.outbox());
        let (committed, is_over) = (Arc::clone(&committed), Arc::clone(&is_over));
        team.spawn(async move {
            while !is_over.load(Relaxed) {
                let message = crate::side::batch(1)?;
                let mut tx = app.begin().await?;
                outbox.stage_all(&mut tx, &message).await?;
                tx.commit().await?;
                committed.fetch_add(1, Relaxed);
            }
            anyhow::Ok(())
        });
    }
    sleep(Duration::from_millis(500)).await;
    let (before, began) = (committed.load(Relaxed), Instant::now());
    sleep(lasting).await;
    let rate = (committed.load(Relaxed) - before) as f64 / began.elapsed().as_secs_f64();
    is_over.store(true, Relaxed);
    while let Some(one) = team.join_next().await {
        one??;
    }
    while running.report().in_flight > 0 {
        sleep(Duration::from_millis(10)).await;
    }
    running.stop(Duration::from_secs(10)).await;
    Ok(rate)
}
