//! All relays of the daemon, one for each database.

use super::carrying::{Carrying, Prepared};
use crate::{config::Plan, problem::Problem};
use std::{
    collections::BTreeMap,
    mem,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::Duration,
};
use tokio::{sync::Mutex, task::JoinSet};

/// A database that says nothing for so long is away.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Fleet {
    /// Where the plans stand.
    file: PathBuf,
    migrate: bool,
    drain: Duration,
    relays: Mutex<BTreeMap<String, Carrying>>,
    /// Whether what carries is what should: not while it starts, changes or stops.
    is_steady: AtomicBool,
}

impl Fleet {
    pub(super) fn new(file: PathBuf, migrate: bool, drain: Duration) -> Self {
        Self { file, migrate, drain, relays: Mutex::default(), is_steady: AtomicBool::new(false) }
    }

    /// Carries by these plans from now on. Whatever can be found wrong is found before anything changes; only what a
    /// database says about its queues comes later, and then that database goes on as before.
    pub(super) async fn follow(&self, plans: BTreeMap<String, Plan>) -> Vec<Problem> {
        let gone: Vec<_> =
            self.relays.lock().await.keys().filter(|name| !plans.contains_key(*name)).cloned().collect();
        let prepared = match self.prepare(plans).await {
            Ok(prepared) => prepared,
            Err(problem) => return vec![problem],
        };
        self.is_steady.store(false, SeqCst);
        let mut problems = Vec::new();
        for (name, new) in prepared {
            problems.extend(self.change(name, new).await);
        }
        for name in gone {
            if let Some(old) = self.halt(&name).await {
                old.close().await;
            }
        }
        self.is_steady.store(true, SeqCst);
        problems
    }

    /// Lets what is on its way arrive, everywhere at once, and closes.
    pub(super) async fn stop(&self) {
        self.is_steady.store(false, SeqCst);
        let relays = mem::take(&mut *self.relays.lock().await);
        let mut draining = JoinSet::new();
        for carrying in relays.into_values() {
            let deadline = self.drain;
            draining.spawn(async move { carrying.drain(deadline).await.close().await });
        }
        draining.join_all().await;
    }

    /// What keeps it from being alive: if anything, it should be restarted.
    pub(super) async fn ailments(&self) -> Vec<String> {
        let mut ailments = Vec::new();
        for (name, carrying) in &mut *self.relays.lock().await {
            let health = carrying.running.ping(PATIENCE).await;
            ailments.extend(health.dead_loops.iter().map(|dead| format!("{name}: a {dead} has ended")));
        }
        ailments
    }

    /// What keeps messages from being carried.
    pub(super) async fn hindrances(&self) -> Vec<String> {
        if !self.is_steady.load(SeqCst) {
            return vec!["it starts, changes or stops".to_owned()];
        }
        let mut hindrances = Vec::new();
        for (name, carrying) in &mut *self.relays.lock().await {
            let health = carrying.running.ping(PATIENCE).await;
            let what = match (health.is_ready(), &health.store) {
                (true, _) => continue,
                (false, Err(_)) => "its database does not answer",
                (false, Ok(())) => "its relay has stopped",
            };
            hindrances.push(format!("{name}: {what}"));
        }
        hindrances
    }

    /// Makes everything ready that is new or has changed.
    async fn prepare(&self, plans: BTreeMap<String, Plan>) -> Result<Vec<(String, Prepared)>, Problem> {
        let mut prepared = Vec::new();
        for (name, plan) in plans {
            if self.relays.lock().await.get(&name).is_some_and(|carrying| *carrying.plan() == plan) {
                continue;
            }
            match Prepared::new(&self.file, plan, self.migrate).await {
                Ok(new) => prepared.push((name, new)),
                Err(problem) => {
                    for (_, unused) in prepared {
                        unused.close().await;
                    }
                    return Err(problem);
                }
            }
        }
        Ok(prepared)
    }

    /// Puts the new relay in the place of the old one, or else the old one back.
    async fn change(&self, name: String, new: Prepared) -> Option<Problem> {
        let old = self.halt(&name).await;
        let (carrying, unused, problem) = match new.start().await {
            Ok(carrying) => (Some(carrying), old, None),
            Err((new, problem)) => (old.map(Prepared::resume), Some(*new), Some(problem)),
        };
        if let Some(carrying) = carrying {
            self.relays.lock().await.insert(name, carrying);
        }
        if let Some(unused) = unused {
            unused.close().await;
        }
        problem
    }

    /// Drains one relay without keeping those waiting who ask for the health of the others.
    async fn halt(&self, name: &str) -> Option<Prepared> {
        let carrying = self.relays.lock().await.remove(name)?;
        Some(carrying.drain(self.drain).await)
    }
}
