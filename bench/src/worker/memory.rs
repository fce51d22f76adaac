//! The memory of a worker after millions of messages.

use super::{BenchDatabase, best};
use crate::figure::Figure;
use anyhow::{Context as _, Result};
use postrider_engine::{Context, Failure, Queue, Worker};
use std::{fs, time::Duration};
use tokio::time::sleep;

/// The number of messages in the store at once.
const WAVE: usize = 50_000;

pub(super) async fn measure(bench_db: &BenchDatabase, messages: usize) -> Result<Vec<Figure>> {
    let queue = Queue::new(bench_db.queue.as_str()).on_any(async |_: Context| Ok::<(), Failure>(()));
    let running = best(Worker::builder(bench_db.store.clone()), queue).build()?.start();
    let (mut staged, mut early) = (0, None);
    while staged < messages {
        bench_db.fill(WAVE).await?;
        staged += WAVE;
        while running.report().delivered < staged as u64 {
            sleep(Duration::from_millis(5)).await;
        }
        eprintln!("memory: {staged} of {messages}, {:.1} MiB", resident()?);
        // By then every buffer has grown to its full size.
        if early.is_none() && staged * 10 >= messages {
            early = Some(resident()?);
        }
    }
    let late = resident()?;
    running.stop(Duration::from_secs(10)).await;
    Ok(vec![Figure {
        bench: "worker",
        scenario: "memory".to_owned(),
        unit: "MiB",
        ours: late,
        reference: early.unwrap_or(late),
        reference_name: "MiB after a tenth of the messages",
        goal: "≤ 1.1",
    }])
}

/// The resident memory of this process, in MiB.
fn resident() -> Result<f64> {
    let status = fs::read_to_string("/proc/self/status").context("memory can only be read on Linux")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").trim().parse()?;
    Ok(kib / 1024.0)
}
