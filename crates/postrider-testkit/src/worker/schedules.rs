//! Schedulers stage each tick once, whatever their number (decision "recurring messages").
//!
//! Ticks are years apart, and the store's clock moves by years: no tick becomes due by itself while a case runs.

use super::helpers::*;
use crate::Fixture;
use postrider_core::{Error, Message};
use postrider_engine::cron::{Missed, SCHEDULED_AT, Schedule, Scheduler};
use std::{sync::Arc, time::Duration};
use tokio::{sync::Barrier, task::JoinSet};

const YEAR: Duration = minutes(366 * 24 * 60);

fn yearly(missed: Missed) -> Schedule {
    let make =
        |tick: postrider_engine::cron::Tick| Message::builder("letters").payload(tick.schedule.to_string());
    Schedule::new("new-year", "0 0 1 1 *", make).on_missed(missed)
}

fn scheduler<F: Fixture>(fixture: &F, schedule: Schedule) -> Scheduler {
    Scheduler::builder_on(fixture.timetable()).schedule(schedule).build().unwrap()
}

/// Ten schedulers, as in ten processes, run at once; returns the number of messages that they staged together.
async fn ten_at_once<F: Fixture>(fixture: &F, missed: Missed) -> usize {
    let barrier = Arc::new(Barrier::new(10));
    let mut schedulers = JoinSet::new();
    for _ in 0..10 {
        let timetable = fixture.another_timetable().await;
        let scheduler = Scheduler::builder_on(timetable).schedule(yearly(missed)).build().unwrap();
        let barrier = Arc::clone(&barrier);
        schedulers.spawn(async move {
            barrier.wait().await;
            scheduler.run_until_idle().await.unwrap()
        });
    }
    schedulers.join_all().await.into_iter().sum()
}

/// The years of the ticks whose messages are due, which are settled.
async fn years<F: Fixture>(fixture: &F) -> Vec<u32> {
    let claimed = claim_all(&fixture.store(), "letters").await;
    done(&fixture.store(), &claimed).await;
    let year = |header: &str| header.split_once("-01-01T00:00:00.000Z").unwrap().0.parse().unwrap();
    claimed.iter().map(|each| year(each.message.headers().get(SCHEDULED_AT).unwrap())).collect()
}

/// Ten schedulers run, and each due tick is staged by one of them.
pub async fn ten_schedulers_stage_each_tick_once<F: Fixture>(fixture: F) {
    assert_eq!(ten_at_once(&fixture, Missed::Once).await, 0, "the past is not made up for");
    for _ in 0..5 {
        fixture.advance(YEAR).await;
        assert_eq!(ten_at_once(&fixture, Missed::Once).await, 1);
        assert_eq!(ten_at_once(&fixture, Missed::Once).await, 0);
        assert_eq!(years(&fixture).await.len(), 1);
    }
}

/// Ten schedulers stage ten missed ticks: each once, in order.
pub async fn ten_schedulers_stage_missed_ticks_once<F: Fixture>(fixture: F) {
    let each = Missed::Each { at_most: 100 };
    assert_eq!(ten_at_once(&fixture, each).await, 0);
    fixture.advance(YEAR * 10).await;
    let staged = ten_at_once(&fixture, each).await;
    let years = years(&fixture).await;
    assert_eq!((staged, years.len()), (10, 10));
    assert!(years.is_sorted_by(|one, next| one + 1 == *next), "{years:?}");
}

/// After a long outage, the policy decides which missed ticks are staged.
pub async fn missed_ticks_follow_the_missed_policy<F: Fixture>(fixture: F) {
    for (missed, expected) in [(Missed::Skip, 0), (Missed::Once, 1), (Missed::Each { at_most: 3 }, 3)] {
        scheduler(&fixture, yearly(missed)).run_until_idle().await.unwrap();
        years(&fixture).await;
        fixture.advance(YEAR * 5).await;
        assert_eq!(
            scheduler(&fixture, yearly(missed)).run_until_idle().await.unwrap(),
            expected,
            "{missed:?}"
        );
        assert_eq!(years(&fixture).await.len(), expected, "{missed:?}");
    }
}

/// An invalid message stages nothing and records nothing, and the other schedules continue.
pub async fn a_failing_schedule_affects_no_other<F: Fixture>(fixture: F) {
    let broken = Schedule::new("broken", "0 0 1 1 *", |_| Message::builder("two words"));
    let both = Scheduler::builder_on(fixture.timetable()).schedule(broken).schedule(yearly(Missed::Once));
    let both = both.build().unwrap();
    both.run_until_idle().await.unwrap();
    fixture.advance(YEAR).await;
    let refused = both.run_until_idle().await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    assert_eq!(years(&fixture).await.len(), 1);

    let repaired = Schedule::new("broken", "0 0 1 1 *", |_| message("letters"));
    assert_eq!(scheduler(&fixture, repaired).run_until_idle().await.unwrap(), 1, "its tick was not lost");
}

/// A running scheduler stages due ticks, and stops on request.
pub async fn a_running_scheduler_stages_due_ticks_and_stops<F: Fixture>(fixture: F) {
    let scheduler = scheduler(&fixture, yearly(Missed::Once));
    scheduler.run_until_idle().await.unwrap();
    fixture.advance(YEAR).await;
    let mut scheduling = scheduler.start();
    while years(&fixture).await.is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(scheduling.is_alive());
    scheduling.stop().await;
    assert_eq!(scheduler.run_until_idle().await.unwrap(), 0);
}
