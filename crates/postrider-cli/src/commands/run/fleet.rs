//! All parts of the daemon, by their names.

use super::{
    carrying, consuming, following,
    unit::{Pulse, Rested, Working},
};
use crate::{config::Plan, problem::Problem};
use std::{
    collections::BTreeMap,
    mem,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::Duration,
};
use tokio::{sync::Mutex, task::JoinSet};
use tokio_util::sync::CancellationToken;

#[derive(Debug)]
pub(super) struct Fleet {
    /// Where the plans stand.
    file: PathBuf,
    migrate: bool,
    drain: Duration,
    /// Asks for the end: nothing new is begun.
    stop: CancellationToken,
    parts: Mutex<BTreeMap<String, Part>>,
    /// Whether what works is what should: not while it starts, changes or stops.
    is_steady: AtomicBool,
}

/// One part at work, and what it goes by.
#[derive(Debug)]
struct Part {
    plan: Plan,
    working: Box<dyn Working>,
}

/// What became of new plans.
#[derive(Debug)]
pub(super) enum Followed {
    Whole,
    /// It was asked to stop meanwhile.
    Stopped,
    /// Nothing has changed.
    Kept(Problem),
    /// These parts go on as before, or not at all, and the others have changed.
    Partly(Vec<Problem>),
}

impl Followed {
    /// The same, except for this.
    pub(super) fn but(self, problem: Problem) -> Self {
        let mut problems = match self {
            Self::Partly(problems) => problems,
            _ => Vec::new(),
        };
        problems.push(problem);
        Self::Partly(problems)
    }
}

impl Fleet {
    pub(super) fn new(file: PathBuf, migrate: bool, drain: Duration, stop: CancellationToken) -> Self {
        Self { file, migrate, drain, stop, parts: Mutex::default(), is_steady: AtomicBool::new(false) }
    }

    /// Works by these plans from now on. Whatever can be found wrong is found before anything changes; only what a database says
    /// about its queues, and a port that is taken, comes later, and then that part goes on as before.
    pub(super) async fn follow(&self, plans: BTreeMap<String, Plan>) -> Followed {
        let gone: Vec<_> =
            self.parts.lock().await.keys().filter(|name| !plans.contains_key(*name)).cloned().collect();
        // Nothing has changed so far, so it may be cut short.
        let prepared = match self.stop.run_until_cancelled(self.prepare(plans)).await {
            Some(Ok(prepared)) => prepared,
            Some(Err(problem)) => return Followed::Kept(problem),
            None => return Followed::Stopped,
        };
        self.is_steady.store(false, SeqCst);
        let changes = prepared.len() + gone.len();
        // What goes first may hold what others need: a port, the order of a queue.
        for name in gone {
            if let Some((_, old)) = self.halt(&name).await {
                old.close().await;
            }
        }
        let mut problems = Vec::new();
        for (name, plan, new) in prepared {
            if self.stop.is_cancelled() {
                new.close().await;
            } else {
                problems.extend(self.change(name, plan, new).await);
            }
        }
        if self.stop.is_cancelled() {
            return Followed::Stopped;
        }
        self.is_steady.store(true, SeqCst);
        match (problems.len() < changes, problems.pop()) {
            (_, None) => Followed::Whole,
            (false, Some(only)) if problems.is_empty() => Followed::Kept(only),
            (_, Some(last)) => {
                problems.push(last);
                Followed::Partly(problems)
            }
        }
    }

    /// Lets what is in hand end, everywhere at once, and closes.
    pub(super) async fn stop(&self) {
        self.is_steady.store(false, SeqCst);
        let parts = mem::take(&mut *self.parts.lock().await);
        let mut draining = JoinSet::new();
        for part in parts.into_values() {
            let deadline = self.drain;
            draining.spawn(async move { part.working.drain(deadline).await.close().await });
        }
        draining.join_all().await;
    }

    /// What keeps it from being alive: if anything, it should be restarted.
    pub(super) async fn ailments(&self) -> Vec<String> {
        let pulses = self.pulses().await;
        let told = |(name, pulse): (String, Pulse)| {
            pulse.dead.into_iter().map(move |dead| format!("{name}: a {dead} has ended"))
        };
        pulses.into_iter().flat_map(told).collect()
    }

    /// What keeps messages from being carried.
    pub(super) async fn hindrances(&self) -> Vec<String> {
        if !self.is_steady.load(SeqCst) {
            return vec!["it starts, changes or stops".to_owned()];
        }
        let pulses = self.pulses().await;
        let told = |(name, pulse): (String, Pulse)| Some(format!("{name}: {}", pulse.hindrance?));
        pulses.into_iter().filter_map(told).collect()
    }

    async fn pulses(&self) -> Vec<(String, Pulse)> {
        let mut pulses = Vec::new();
        for (name, part) in &mut *self.parts.lock().await {
            pulses.push((name.clone(), part.working.ping().await));
        }
        pulses
    }

    /// Makes everything ready that is new or has changed.
    async fn prepare(
        &self,
        plans: BTreeMap<String, Plan>,
    ) -> Result<Vec<(String, Plan, Box<dyn Rested>)>, Problem> {
        let mut prepared = Vec::new();
        for (name, plan) in plans {
            if self.parts.lock().await.get(&name).is_some_and(|part| part.plan == plan) {
                continue;
            }
            match self.rested(&plan).await {
                Ok(new) => prepared.push((name, plan, new)),
                Err(problem) => {
                    for (_, _, unused) in prepared {
                        unused.close().await;
                    }
                    return Err(problem);
                }
            }
        }
        Ok(prepared)
    }

    async fn rested(&self, plan: &Plan) -> Result<Box<dyn Rested>, Problem> {
        Ok(match plan {
            Plan::Relay(plan) => Box::new(carrying::Prepared::new(&self.file, plan, self.migrate).await?),
            Plan::Consumer(plan) => Box::new(consuming::Prepared::new(&self.file, plan, self.migrate).await?),
            Plan::FollowUps(plan) => following::prepared(&self.file, plan, self.migrate).await?,
        })
    }

    /// Puts the new part in the place of the old one, or else the old one back.
    async fn change(&self, name: String, plan: Plan, new: Box<dyn Rested>) -> Option<Problem> {
        let old = self.halt(&name).await;
        let (part, unused, problem) = match (new.start().await, old) {
            (Ok(working), old) => (Some(Part { plan, working }), old.map(|(_, old)| old), None),
            (Err((new, problem)), None) => (None, Some(new), Some(problem)),
            (Err((new, problem)), Some((plan, old))) => match old.resume().await {
                Ok(working) => (Some(Part { plan, working }), Some(new), Some(problem)),
                Err((old, _)) => {
                    new.close().await;
                    (None, Some(old), Some(problem))
                }
            },
        };
        if let Some(part) = part {
            self.parts.lock().await.insert(name, part);
        }
        if let Some(unused) = unused {
            unused.close().await;
        }
        problem
    }

    /// Drains one part without keeping those waiting who ask for the health of the others.
    async fn halt(&self, name: &str) -> Option<(Plan, Box<dyn Rested>)> {
        let Part { plan, working } = self.parts.lock().await.remove(name)?;
        Some((plan, working.drain(self.drain).await))
    }
}
