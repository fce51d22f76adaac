//! A tick of a schedule is staged once or not at all, by whichever scheduler (decision "recurring messages").

use super::helpers::*;
use crate::Fixture;
use postrider_core::{
    Error, Message, ScheduleName, inspect::ScheduleRow, notifier::IdleWorker, timetable::ScheduleReading,
};
use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};
use tokio::{sync::Barrier, task::JoinSet, time::timeout};
use uuid::Uuid;

fn nightly() -> ScheduleName {
    ScheduleName::new("nightly").unwrap()
}

async fn read<F: Fixture>(fixture: &F, schedule: &ScheduleName) -> ScheduleReading {
    fixture.timetable().read_schedule(schedule).await.unwrap()
}

/// Tries to stage a message for the tick at `at`.
async fn tick<F: Fixture>(fixture: &F, at: SystemTime, text: &str) -> bool {
    fixture.timetable().tick(&nightly(), at, &[letter(text)]).await.unwrap()
}

fn letter(text: &str) -> Message {
    message("letters").payload(text.to_owned()).build().unwrap()
}

/// A time that every store keeps exactly: a whole second.
fn whole(time: SystemTime) -> SystemTime {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// The first read of a schedule starts it, at that time by the store's clock, and later reads do not. No message is staged.
pub async fn a_schedule_starts_at_its_first_read<F: Fixture>(fixture: F) {
    let first = read(&fixture, &nightly()).await;
    assert!(first.last <= first.now, "{first:?}");
    assert!(first.now.duration_since(first.last).unwrap() < minutes(1), "{first:?}");
    fixture.advance(minutes(5)).await;
    let second = read(&fixture, &nightly()).await;
    assert!(second.now.duration_since(second.last).unwrap() >= minutes(5), "{second:?}");
    assert!(!tick(&fixture, second.last, "too late").await, "the past is not made up for");
    assert_empty(&fixture, "letters").await;
}

/// The messages of a tick can be claimed, and later reads return the tick.
pub async fn a_tick_stages_its_messages_and_is_recorded<F: Fixture>(fixture: F) {
    let at = whole(read(&fixture, &nightly()).await.now) + minutes(1);
    let messages = [letter("one"), letter("two")];
    assert!(fixture.timetable().tick(&nightly(), at, &messages).await.unwrap());
    assert_eq!(read(&fixture, &nightly()).await.last, at);
    assert_eq!(payloads(&claim_all(&fixture.store(), "letters").await), ["one", "two"]);
    assert!(!tick(&fixture, at, "again").await, "delivered or not, it was staged");
    assert_nothing_due(&fixture.store(), "letters").await;
}

/// A tick without messages is recorded as well.
pub async fn a_tick_without_messages_is_recorded<F: Fixture>(fixture: F) {
    let at = whole(read(&fixture, &nightly()).await.now) + minutes(1);
    assert!(fixture.timetable().tick(&nightly(), at, &[]).await.unwrap());
    assert_eq!(read(&fixture, &nightly()).await.last, at);
    assert!(!tick(&fixture, at, "too late").await);
}

/// Ten processes race for each of ten ticks: one of them stages it.
pub async fn a_tick_raced_by_ten_schedulers_is_staged_once<F: Fixture>(fixture: F) {
    let from = whole(read(&fixture, &nightly()).await.now) + minutes(1);
    let barrier = Arc::new(Barrier::new(10));
    let mut racers = JoinSet::new();
    for _ in 0..10 {
        let (timetable, barrier) = (fixture.another_timetable().await, Arc::clone(&barrier));
        racers.spawn(async move {
            let mut won = 0;
            for number in 0..10 {
                barrier.wait().await;
                let at = from + minutes(number);
                won += usize::from(
                    timetable.tick(&nightly(), at, &[letter(&number.to_string())]).await.unwrap(),
                );
            }
            won
        });
    }
    let won: usize = racers.join_all().await.into_iter().sum();
    assert_eq!(won, 10, "each tick was staged by one");
    let expected: Vec<_> = (0..10).map(|number| number.to_string()).collect();
    assert_eq!(payloads(&claim_all(&fixture.store(), "letters").await), expected);
}

/// An older tick is never staged after a newer one.
pub async fn an_older_tick_after_a_newer_one_is_ignored<F: Fixture>(fixture: F) {
    let at = whole(read(&fixture, &nightly()).await.now) + minutes(10);
    assert!(tick(&fixture, at, "newer").await);
    assert!(!tick(&fixture, at - minutes(1), "older").await);
    assert!(tick(&fixture, at + minutes(1), "newest").await);
    assert_eq!(payloads(&claim_all(&fixture.store(), "letters").await), ["newer", "newest"]);
}

/// Schedules are independent of each other.
pub async fn every_schedule_has_its_own_ticks<F: Fixture>(fixture: F) {
    let hourly = ScheduleName::new("hourly").unwrap();
    let at = whole(read(&fixture, &nightly()).await.now) + minutes(1);
    assert!(tick(&fixture, at, "nightly").await);
    assert!(fixture.timetable().tick(&hourly, at, &[letter("hourly")]).await.unwrap());
    assert_eq!(payloads(&claim_all(&fixture.store(), "letters").await), ["nightly", "hourly"]);
}

/// Operators see every schedule with its last tick, also one that is in the future of the store's clock.
pub async fn schedules_are_listed_with_their_last_ticks<F: Fixture>(fixture: F) {
    let inspect = fixture.inspect();
    assert_eq!(inspect.schedules().await.unwrap(), []);
    let hourly = ScheduleName::new("hourly").unwrap();
    let first_read = read(&fixture, &hourly).await;
    let at = whole(first_read.now) + minutes(60 * 24 * 365);
    assert!(fixture.timetable().tick(&nightly(), at, &[]).await.unwrap());
    let expected =
        [ScheduleRow { name: hourly, last: first_read.last }, ScheduleRow { name: nightly(), last: at }];
    assert_eq!(inspect.schedules().await.unwrap(), expected);
}

/// A tick with an invalid message is rejected completely, and can be retried.
pub async fn a_tick_with_an_invalid_message_records_nothing<F: Fixture>(fixture: F) {
    let last = read(&fixture, &nightly()).await;
    let at = whole(last.now) + minutes(1);
    let too_big = message("letters").payload(vec![b'x'; 64 << 20]).build().unwrap();
    let refused = fixture.timetable().tick(&nightly(), at, &[letter("good"), too_big]).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    assert_eq!(read(&fixture, &nightly()).await.last, last.last);
    assert_empty(&fixture, "letters").await;
    assert!(tick(&fixture, at, "better").await);
    assert_eq!(payloads(&claim_all(&fixture.store(), "letters").await), ["better"]);
}

/// A tick whose future is dropped halfway is complete or absent, and does not affect later ticks.
pub async fn a_cancelled_tick_is_complete_or_absent<F: Fixture>(fixture: F) {
    let from = whole(read(&fixture, &nightly()).await.now) + minutes(1);
    for number in 0..20 {
        let (timetable, schedule, at) = (fixture.timetable(), nightly(), from + minutes(number));
        let messages = [letter(&number.to_string())];
        let mut tick = std::pin::pin!(timetable.tick(&schedule, at, &messages));
        // Dropped after this many polls.
        for _ in 0..number {
            tokio::select! {
                biased;
                _ = &mut tick => break,
                () = tokio::task::yield_now() => {}
            }
        }
    }
    for number in 0..20 {
        // The dropped tick is retried, and rejected if it or a later one was recorded.
        tick(&fixture, from + minutes(number), &number.to_string()).await;
    }
    let mut staged = payloads(&claim_all(&fixture.store(), "letters").await);
    let count = staged.len();
    staged.sort_unstable();
    staged.dedup();
    assert_eq!(staged.len(), count, "no tick was staged twice");
    assert_eq!(read(&fixture, &nightly()).await.last, from + minutes(19));
    assert!(staged.contains(&"19".to_owned()));
}

/// A tick wakes an idle worker, like any other commit.
pub async fn a_tick_wakes_an_idle_worker<F: Fixture>(fixture: F) {
    let at = whole(read(&fixture, &nightly()).await.now) + minutes(1);
    let idle = IdleWorker { worker: Uuid::new_v4(), queues: vec![queue("letters")] };
    fixture.wake().register_idle(&idle, minutes(600)).await.unwrap();
    let mut listener = fixture.wake().listen(&idle.queues).await.unwrap();
    assert!(tick(&fixture, at, "wake up").await);
    let notified =
        timeout(Duration::from_secs(20), listener.wait()).await.expect("a notification arrives").unwrap();
    assert_eq!(notified, queue("letters"));
}
