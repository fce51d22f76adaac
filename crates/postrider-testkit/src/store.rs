//! The suite that every store passes, one module for each promise.
//!
//! Each case is a plain `async fn` over a [`Fixture`](crate::Fixture) that is made for it alone. Time passes through
//! [`Fixture::advance`](crate::Fixture::advance) only: no case sleeps. [`store_suite!`](crate::store_suite) turns the
//! names into tests.

pub mod big_batches;
pub mod claiming;
pub mod concurrency;
pub mod failing_keys;
mod helpers;
pub mod identity;
pub mod inspecting;
pub mod late_commits;
pub mod leases;
pub mod operators;
pub mod ordering;
pub mod payloads;
pub mod retention;
pub mod schema;
pub mod settling;
pub mod staging;
pub mod timer_changes;
pub mod timers;
pub mod torture;
mod truth;
pub mod turns;
pub mod waking;

use std::time::Duration;

/// How long a case may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Makes a fixture and runs a case on it, for a minute at the most: a case that hangs has failed.
///
/// # Panics
/// When the case does, or when it takes too long.
pub async fn run<F>(make: impl Future<Output = F>, case: impl AsyncFnOnce(F)) {
    let fixture = make.await;
    assert!(tokio::time::timeout(LIMIT, case(fixture)).await.is_ok(), "the case took longer than {LIMIT:?}");
}

/// Makes a test of every case of the store suite, in a module for each promise.
///
/// Takes the path of an `async fn` without arguments that makes a [`Fixture`](crate::Fixture). The crate that uses it
/// needs `tokio` with the features `macros` and `rt-multi-thread`.
///
/// ```ignore
/// async fn memory() -> MemoryFixture { … }
/// postrider_testkit::store_suite!(memory);
/// ```
#[macro_export]
macro_rules! store_suite {
    ($($make:ident)::+) => {
        use $($make)::+ as make_fixture_of_the_store_suite;

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn every_flaw_is_caught() {
            $crate::flaws::every_flaw_is_caught(make_fixture_of_the_store_suite).await;
        }
    };
}
