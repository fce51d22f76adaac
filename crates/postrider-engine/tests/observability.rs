//! `docs/observability.md` lists exactly the metrics and events that the engine emits.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use postrider_core::{Incoming, Message, OutboxExt, RetryStrategy};
use postrider_engine::{
    Consumer, Context, Destination, Failure, Queue, Relay, Route, Tx, Worker,
    cron::{Schedule, Scheduler},
};
use postrider_stores::memory::{MemoryStore, MemoryTransaction};
use postrider_transports::memory::{MemoryQueue, MemoryTransport};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    time::Duration,
};

const DOCUMENT: &str = include_str!("../../../docs/observability.md");

/// The first cells of all table rows that begin with `prefix`.
fn documented(prefix: &str) -> BTreeSet<String> {
    let cells = DOCUMENT.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    cells.map(|(name, _)| name.to_owned()).filter(|name| name.starts_with(prefix)).collect()
}

/// All quoted texts in the sources that begin with `prefix`.
fn in_sources(prefix: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let source = fs::read_to_string(path).unwrap();
            let quoted = source.split('"').skip(1).step_by(2);
            names.extend(quoted.filter(|text| text.starts_with(prefix)).map(str::to_owned));
        }
    }
    names
}

#[test]
fn every_event_is_documented() {
    let spans = BTreeSet::from(
        ["handle", "relay", "publish", "receive", "follow_up"].map(|name| format!("postrider.{name}")),
    );
    assert!(spans.iter().all(|name| DOCUMENT.contains(&format!("`{name}`"))));
    assert_eq!(&in_sources("postrider.") - &spans, documented("postrider."));
}

#[test]
fn every_metric_is_documented() {
    assert_eq!(in_sources("postrider_"), documented("postrider_"));
}

/// One run that emits every metric: each is documented with its labels, and every handler that started has one outcome.
#[tokio::test]
async fn every_documented_metric_is_emitted() {
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    recorder.install().unwrap();

    let store = MemoryStore::new();
    let mut tx = store.begin();
    for number in 0..100 {
        store.stage(&mut tx, Message::builder("orders").json(&number)).await.unwrap();
    }
    tx.commit();
    let queue = Queue::new("orders")
        .retry(RetryStrategy::constant(Duration::from_secs(3600)))
        .concurrency(1)
        .on_json(|number: u64, _: Context| async move {
            match number {
                1 => Err(Failure::retry("again")),
                2 => Err(Failure::reject("never")),
                3 => Err(Failure::snooze(Duration::from_secs(3600))),
                50 => std::future::pending().await,
                _ => Ok(()),
            }
        });
    let nightly = Schedule::new("nightly", "@daily", |_| Message::builder("reports"));
    let scheduler = Scheduler::builder(store.clone()).schedule(nightly).build().unwrap();
    scheduler.run_until_idle().await.unwrap();
    store.advance(Duration::from_secs(24 * 3600));
    assert_eq!(scheduler.run_until_idle().await.unwrap(), 1);
    let mut tx = store.begin();
    store.stage(&mut tx, Message::builder("letters").payload("x")).await.unwrap();
    tx.commit();
    let relay = Relay::builder(store.clone(), "/shop")
        .destination(Destination::new("mail", MemoryTransport::new()))
        .route(Route::new("letters").to("mail", "letters"));
    assert_eq!(relay.build().unwrap().run_until_idle().await.unwrap().delivered, 1);
    let letters = MemoryQueue::new("letters");
    let consumer = Consumer::builder("post", letters.source(), store.clone());
    let consumer = consumer.on_any(|_: Tx<MemoryTransaction>, _: Context| async { Ok::<(), Failure>(()) });
    let consumer = consumer.idle_after(Duration::from_millis(20)).build().unwrap();
    letters.put(Incoming::new("letters", "nobody's"));
    assert_eq!(consumer.run_until_idle().await.unwrap().dead, 1);
    let running = Worker::builder(store).queue(queue).build().unwrap().start();
    while running.report().delivered < 47 {
        tokio::task::yield_now().await;
    }
    // One second of these is reserved for releasing messages.
    let stopped = running.stop(Duration::from_secs(5)).await;
    assert!(!stopped.clean);

    let mut counted: BTreeMap<String, u64> = BTreeMap::new();
    let mut emitted = BTreeSet::new();
    for (key, _, _, value) in snapshots.snapshot().into_vec() {
        let name = key.key().name().to_owned();
        let row = DOCUMENT.lines().find(|line| line.starts_with(&format!("| `{name}`")));
        let row = row.unwrap_or_else(|| panic!("{name} is not documented"));
        for label in key.key().labels() {
            assert!(row.contains(&format!("`{}`", label.key())), "{name} has the label {}", label.key());
        }
        if let DebugValue::Counter(count) = value {
            *counted.entry(name.clone()).or_default() += count;
        }
        emitted.insert(name);
    }
    assert_eq!(emitted, documented("postrider_"));
    let count = |name: &str| counted[&format!("postrider_{name}_total")];
    let ended = ["delivered", "retried", "dead", "released", "lease_lost"].map(count);
    assert_eq!(count("dispatched"), ended.iter().sum::<u64>());
    assert_eq!(count("claimed"), count("dispatched") + count("unstarted"));
    assert_eq!((ended[1], ended[2], count("drain_timeout")), (1, 1, 1));
}
