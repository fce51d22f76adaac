//! Schedulers stage each tick once, whatever their number (decision "recurring messages").
//!
//! Ticks are years apart, and the store's time passes by years: none comes due by itself while a case runs.

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

/// Ten schedulers, as ten processes have them, look at once: how many messages they have staged together.
async fn ten_at_once<F: Fixture>(fixture: &F, missed: Missed) -> usize {
    let barrier = Arc::new(Barrier::new(10));
    let mut schedulers = JoinSet::new();
    for _ in 0..10 {
        let timetable = fixture.another_timetable().await;
        let scheduler = Scheduler::builder_on(timetable).schedule(yearly(missed)).build().unwrap();
        let barrier = Arc::clone(&barrier);
        schedulers.spawn(async move {
            barrier.wait().await;
            scheduler.run_once().await.unwrap()
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

/// Ten schedulers begin, and each tick that comes due is staged by one of them.
pub async fn ten_schedulers_stage_each_tick_once<F: Fixture>(fixture: F) {
    assert_eq!(ten_at_once(&fixture, Missed::Once).await, 0, "the past is not made up for");
    for _ in 0..5 {
        fixture.advance(YEAR).await;
        assert_eq!(ten_at_once(&fixture, Missed::Once).await, 1);
        assert_eq!(ten_at_once(&fixture, Missed::Once).await, 0);
        assert_eq!(years(&fixture).await.len(), 1);
    }
}

/// Ten schedulers make up for ten missed ticks: each is staged once, in order.
pub async fn ten_schedulers_make_up_for_missed_ticks_once<F: Fixture>(fixture: F) {
    let each = Missed::Each { at_most: 100 };
    assert_eq!(ten_at_once(&fixture, each).await, 0);
    fixture.advance(YEAR * 10).await;
    let staged = ten_at_once(&fixture, each).await;
    let years = years(&fixture).await;
    assert_eq!((staged, years.len()), (10, 10));
    assert!(years.is_sorted_by(|one, next| one + 1 == *next), "{years:?}");
}

/// After a long night, the policy decides what is made up for.
pub async fn missed_ticks_are_skipped_or_staged_as_told<F: Fixture>(fixture: F) {
    for (missed, expected) in [(Missed::Skip, 0), (Missed::Once, 1), (Missed::Each { at_most: 3 }, 3)] {
        scheduler(&fixture, yearly(missed)).run_once().await.unwrap();
        years(&fixture).await;
        fixture.advance(YEAR * 5).await;
        assert_eq!(scheduler(&fixture, yearly(missed)).run_once().await.unwrap(), expected, "{missed:?}");
        assert_eq!(years(&fixture).await.len(), expected, "{missed:?}");
    }
}

/// A message that breaks a rule stages nothing and records nothing, and the other schedules are served.
pub async fn a_broken_schedule_harms_only_itself<F: Fixture>(fixture: F) {
    let broken = Schedule::new("broken", "0 0 1 1 *", |_| Message::builder("two words"));
    let both = Scheduler::builder_on(fixture.timetable()).schedule(broken).schedule(yearly(Missed::Once));
    let both = both.build().unwrap();
    both.run_once().await.unwrap();
    fixture.advance(YEAR).await;
    let refused = both.run_once().await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    assert_eq!(years(&fixture).await.len(), 1);

    let mended = Schedule::new("broken", "0 0 1 1 *", |_| message("letters"));
    assert_eq!(scheduler(&fixture, mended).run_once().await.unwrap(), 1, "its tick was not lost");
}

/// A scheduler that runs stages what is due, and stops when told.
pub async fn a_running_scheduler_stages_what_is_due_and_stops<F: Fixture>(fixture: F) {
    let scheduler = scheduler(&fixture, yearly(Missed::Once));
    scheduler.run_once().await.unwrap();
    fixture.advance(YEAR).await;
    let mut scheduling = scheduler.start();
    while years(&fixture).await.is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(scheduling.is_alive());
    scheduling.stop().await;
    assert_eq!(scheduler.run_once().await.unwrap(), 0);
}
