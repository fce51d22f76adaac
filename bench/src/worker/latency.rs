//! The time from a commit to the handler of an idle worker.

use super::BenchDatabase;
use crate::figure::{Figure, quantile};
use anyhow::{Context as _, Result};
use postrider_core::Outbox as _;
use postrider_engine::{Context, Failure, Queue, Worker};
use sqlx::Row;
use std::time::{Duration, Instant};
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};

pub(super) async fn measure(bench_db: &BenchDatabase, times: usize) -> Result<Vec<Figure>> {
    let (sender, mut handled) = mpsc::unbounded_channel();
    let queue = Queue::new(bench_db.queue.as_str()).on_any(move |_: Context| {
        let sender = sender.clone();
        async move {
            sender.send(Instant::now())?;
            Ok::<(), Failure>(())
        }
    });
    let running = Worker::builder(bench_db.store.clone()).queue(queue).build()?.start();
    let mut waits = Vec::with_capacity(times);
    for time in 0..times {
        if time % 50 == 0 {
            eprintln!("latency: {time} of {times}");
        }
        until_asleep(bench_db).await?;
        let message = crate::side::batch(1)?;
        let mut tx = bench_db.app.begin().await?;
        bench_db.store.outbox().stage_all(&mut tx, &message).await?;
        tx.commit().await?;
        let committed_at = Instant::now();
        let handled_at =
            timeout(Duration::from_secs(10), handled.recv()).await?.context("the worker ended")?;
        waits.push(handled_at.saturating_duration_since(committed_at).as_secs_f64() * 1e3);
    }
    running.stop(Duration::from_secs(10)).await;
    let figure = |share: f64, name: &str, reference, goal| Figure {
        bench: "worker",
        scenario: format!("latency/{name}"),
        unit: "ms",
        ours: quantile(&waits, share),
        reference,
        reference_name: "ms at the most, on a machine at rest",
        goal,
    };
    Ok(vec![figure(0.5, "p50", 5.0, "≤ 1"), figure(0.99, "p99", 25.0, "≤ 1")])
}

/// Waits until the worker has registered as idle, and a while longer, so that it is between two polls.
async fn until_asleep(bench_db: &BenchDatabase) -> Result<()> {
    loop {
        let row = sqlx::query("select count(*) from postrider.idle").fetch_one(&bench_db.app).await?;
        if row.try_get::<i64, _>(0)? > 0 {
            sleep(Duration::from_millis(120)).await;
            return Ok(());
        }
        sleep(Duration::from_millis(10)).await;
    }
}
