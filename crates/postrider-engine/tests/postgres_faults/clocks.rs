//! Processes whose clocks are wrong. The clock of the store decides: due times, leases and retries are as with right clocks.

use crate::{
    BODY, WRONG_CLOCK,
    orders::{OrderParcel, batch},
    postgres_shop::PostgresShop,
    process::Process,
    shop::{Ending, Shop, WorkerArgs, assert_valid, history, until},
};
use nix::sys::signal::Signal;
use postrider_core::{Event, Message};
use rand::{SeedableRng, rngs::StdRng};
use std::time::{Duration, SystemTime};

const HOUR: i64 = 3600;
const TIMEOUT: Duration = Duration::from_secs(90);
/// Later than now by the store's clock, and earlier by a clock that is an hour ahead.
const SOON: Duration = Duration::from_secs(30 * 60);
const TIMERS: usize = 20;

/// The control: the wrong clock is the clock that a process reads.
#[tokio::test]
async fn control_process_reads_the_wrong_clock() {
    for seconds in [HOUR, -HOUR] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("now");
        let argument = file.display().to_string();
        let mut process = Process::start_with_wrong_clock(WRONG_CLOCK, &argument, seconds);
        assert!(process.ends_within(TIMEOUT).await.unwrap().success());
        let read: i64 = std::fs::read_to_string(&file).unwrap().parse().unwrap();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let difference = read - i64::try_from(now.as_secs()).unwrap();
        assert!((difference - seconds).abs() < 600, "the clock is wrong by {difference} s");
    }
}

/// Timers that are not due stay, as their store says; every other message ends as with right clocks, although one of the processes is
/// killed and its leases expire.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_an_hour_ahead_and_behind_change_no_outcome() {
    let (shop, database) = PostgresShop::fresh().await;
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let timer = |_| Message::builder(OrderParcel::QUEUE).due_after(SOON).payload("later").build().unwrap();
    let timers: Vec<Message> = (0..TIMERS).map(timer).collect();
    shop.produce(&timers, &[false; TIMERS], Ending::Commit).await.unwrap();

    let args = |seed| WorkerArgs {
        address: database.url().to_owned(),
        journal: journal.clone(),
        lease_for: Duration::from_secs(2),
        deadline: Duration::from_secs(20),
        seed,
    };
    let start = |seconds, seed| Process::start_with_wrong_clock(BODY, &args(seed).text(), seconds);
    // They stage, too: with ids and times of their own clocks.
    let producers = [start(HOUR, Some(1)), start(-HOUR, Some(2))];
    let mut random = StdRng::seed_from_u64(47);
    for _ in 0..40 {
        let (messages, doomed) = batch(&mut random, 50);
        shop.produce(&messages, &doomed, Ending::Commit).await.unwrap();
    }
    producers.into_iter().for_each(Process::kill);
    let mut workers = [start(HOUR, None), start(-HOUR, None)];
    let timers = i64::try_from(TIMERS).unwrap();
    until("messages are left", TIMEOUT, async || shop.left().await == timers).await;
    for worker in &mut workers {
        worker.signal(Signal::SIGTERM);
        let ended = worker.ends_within(TIMEOUT).await;
        assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
    }
    let history = history(&shop, &journal).await;
    assert_valid(&history, "with wrong clocks");
    assert_eq!(history.waiting.len(), TIMERS);
}
