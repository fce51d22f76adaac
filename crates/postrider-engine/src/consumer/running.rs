//! A consumer at work, and how it stops.

use super::{
    Consumed, Consumer, StartError,
    work::{Floor, Work},
};
use crate::carry::{Health, Running, signal::Signals};
use postrider_core::Receive;
use std::{
    fmt,
    sync::{Arc, PoisonError},
    time::Duration,
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout_at},
};

/// A consumer at work. Dropped, it ends at once: what was in hand comes again, and nothing is lost.
pub struct Consuming<R: Receive> {
    work: Arc<Work<R>>,
    floor: Arc<Floor>,
    before: Consumed,
    receiver: JoinSet<()>,
    runners: JoinSet<()>,
    /// Those who extend and forget.
    keepers: JoinSet<()>,
    /// Replays.
    carrier: Running,
}

/// How a consumer stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Whether everything in hand ended in time.
    pub is_clean: bool,
    /// What became of the messages since it was started.
    pub consumed: Consumed,
}

impl<R: Receive> Consumer<R> {
    /// Starts, and goes on until it is stopped. Whatever happens to the broker or the database, it tries again.
    ///
    /// # Errors
    /// When marks would be gone before the last duplicate came, or the source cannot be asked about that.
    pub async fn start(&self) -> Result<Consuming<R>, StartError> {
        let keeps = self.work.retention().await?;
        for trap in &self.work.traps {
            tracing::warn!(name: "postrider.trap", "{trap}");
        }
        let (work, before) = (&self.work, self.consumed());
        let floor = Arc::new(Floor::new(work.in_hand));
        let (mut receiver, mut runners, mut keepers) = (JoinSet::new(), JoinSet::new(), JoinSet::new());
        receiver.spawn(Arc::clone(work).receive(Arc::clone(&floor)));
        for _ in 0..work.concurrency {
            runners.spawn(Arc::clone(work).run(Arc::clone(&floor)));
        }
        keepers.spawn(Arc::clone(work).extend(Arc::clone(&floor)));
        keepers.spawn(Arc::clone(work).forget(keeps));
        let carrier = work.carrier.start();
        Ok(Consuming { work: Arc::clone(work), floor, before, receiver, runners, keepers, carrier })
    }

    /// Starts, and stops when nothing has come for so long and nothing is in hand. For tests, and for jobs that are started by a clock.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn run_until_idle(&self, idle_for: Duration) -> Result<Consumed, StartError> {
        let running = self.start().await?;
        loop {
            let came_at = *running.floor.came_at.lock().unwrap_or_else(PoisonError::into_inner);
            let is_idle = running.floor.room.available_permits() == self.work.in_hand;
            match (came_at + idle_for).saturating_duration_since(Instant::now()) {
                Duration::ZERO if is_idle => break,
                left => sleep(left.max(Duration::from_millis(1))).await,
            }
        }
        Ok(running.shutdown(Duration::from_secs(30)).await.consumed)
    }

    /// Starts, and stops on the first SIGINT or SIGTERM within `deadline`. On the second it ends at once: what was in hand comes again.
    ///
    /// # Errors
    /// As [`start`](Self::start), or when signals cannot be listened for.
    pub async fn run_until_signal(
        &self,
        deadline: Duration,
    ) -> Result<Drained, Box<dyn std::error::Error + Send + Sync>> {
        let mut signals = Signals::new()?;
        let running = self.start().await?;
        signals.next().await;
        tracing::info!(name: "postrider.stopping", ?deadline, "stopping");
        tokio::select! {
            drained = running.shutdown(deadline) => Ok(drained),
            () = signals.next() => Ok(Drained { is_clean: false, consumed: self.consumed() }),
        }
    }
}

impl<R: Receive> Consuming<R> {
    /// What became of the messages since it was started.
    pub fn consumed(&self) -> Consumed {
        self.work.counts.consumed() - self.before
    }

    /// Asks the database and every loop how they are, and waits for the answer at most so long. A broker that is away is no ailment: it is tried
    /// again.
    pub async fn ping(&mut self, within: Duration) -> Health {
        let mut health = self.carrier.ping(within).await;
        let is_stopping = self.floor.stop.is_cancelled();
        // One forgets, and one extends where there is something to extend.
        let keepers = 1 + usize::from(self.work.abilities.holds_for.is_some());
        for (name, tasks, started) in [
            ("receiver", &mut self.receiver, 1),
            ("runner", &mut self.runners, self.work.concurrency),
            ("keeper", &mut self.keepers, keepers),
        ] {
            while tasks.try_join_next().is_some() {}
            if tasks.len() < started && !is_stopping {
                health.dead_loops.push(name);
            }
        }
        health
    }

    /// Stops: receives nothing more, hands back what nobody has begun, and lets what runs finish within `deadline`. Then the source is
    /// closed, and what was still in hand comes again.
    pub async fn shutdown(mut self, deadline: Duration) -> Drained {
        let end_at = Instant::now() + deadline;
        self.floor.stop.cancel();
        self.receiver.shutdown().await;
        let left = self.floor.hall.close();
        self.floor.porch.close();
        let replays = self.carrier.shutdown(deadline);
        let runners = &mut self.runners;
        let (work, floor) = (&self.work, &self.floor);
        let running = async {
            work.hand_back(left, floor).await;
            while runners.join_next().await.is_some() {}
            floor.porch.wait().await;
        };
        let (ran, replayed) = tokio::join!(timeout_at(end_at, running), replays);
        if ran.is_err() {
            tracing::warn!(name: "postrider.drain_timeout", consumer = %work.name, ?deadline, "time is up: what still runs is cancelled, and comes again");
            runners.shutdown().await;
        }
        self.keepers.shutdown().await;
        timeout_at(end_at.max(Instant::now() + Duration::from_secs(1)), work.source.close()).await.ok();
        let consumed = work.counts.consumed() - self.before;
        Drained { is_clean: ran.is_ok() && replayed.is_clean, consumed }
    }

    /// Ends at once, as if the process had died.
    pub async fn abort(mut self) -> Drained {
        for tasks in [&mut self.receiver, &mut self.runners, &mut self.keepers] {
            tasks.shutdown().await;
        }
        self.carrier.abort().await;
        Drained { is_clean: false, consumed: self.work.counts.consumed() - self.before }
    }
}

impl<R: Receive> fmt::Debug for Consuming<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consuming").field("consumed", &self.work.counts.consumed()).finish_non_exhaustive()
    }
}
