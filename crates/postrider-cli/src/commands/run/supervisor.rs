//! The supervisor starts, replaces and stops the components of the daemon.

use super::{
    component::{Health, PreparedComponent, RunningComponent},
    consumers::PreparedConsumer,
    follow_ups,
    relay::PreparedRelay,
    shared_database::SharedDatabases,
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
pub(super) struct Supervisor {
    /// The configuration file, for error messages.
    file: PathBuf,
    migrate: bool,
    drain_timeout: Duration,
    /// Requests a graceful shutdown: no component starts after it.
    stop: CancellationToken,
    databases: SharedDatabases,
    components: Mutex<BTreeMap<String, Component>>,
    /// Whether the running components match the configuration: false while the daemon starts, reloads or shuts down.
    is_settled: AtomicBool,
}

/// A running component, and the plan that it runs.
#[derive(Debug)]
struct Component {
    plan: Plan,
    running: Box<dyn RunningComponent>,
}

/// The result of applying new plans.
#[derive(Debug)]
pub(super) enum ReloadReport {
    /// All plans are in effect.
    Applied,
    /// A shutdown was requested meanwhile.
    Stopped,
    /// No component has changed.
    Unchanged(Problem),
    /// The components with these problems keep their previous plan, or have stopped; the others run their new plan.
    Partial(Vec<Problem>),
}

impl ReloadReport {
    /// Adds a problem, which makes the report partial.
    pub(super) fn with_problem(self, problem: Problem) -> Self {
        let mut problems = match self {
            Self::Partial(problems) => problems,
            _ => Vec::new(),
        };
        problems.push(problem);
        Self::Partial(problems)
    }
}

impl Supervisor {
    pub(super) fn new(
        file: PathBuf,
        migrate: bool,
        drain_timeout: Duration,
        stop: CancellationToken,
    ) -> Self {
        let (databases, components) = (SharedDatabases::default(), Mutex::default());
        Self { file, migrate, drain_timeout, stop, databases, components, is_settled: AtomicBool::new(false) }
    }

    /// Replaces the running components by those of these plans. All that can be checked is checked before any component changes;
    /// only a queue policy that the database rejects, and a port in use, show up later, and then that component keeps its previous
    /// plan.
    pub(super) async fn apply(&self, plans: BTreeMap<String, Plan>) -> ReloadReport {
        let removed: Vec<_> =
            self.components.lock().await.keys().filter(|name| !plans.contains_key(*name)).cloned().collect();
        // No component has changed so far, so cancelling is safe.
        let prepared = match self.stop.run_until_cancelled(self.prepare(plans)).await {
            Some(Ok(prepared)) => prepared,
            Some(Err(problem)) => return ReloadReport::Unchanged(problem),
            None => return ReloadReport::Stopped,
        };
        self.is_settled.store(false, SeqCst);
        let changes = prepared.len() + removed.len();
        // A removed component may hold what others need: a port, the ordering of a queue.
        for name in removed {
            if let Some((_, old)) = self.drain(&name).await {
                old.close().await;
            }
        }
        let mut problems = Vec::new();
        for (name, plan, new) in prepared {
            if self.stop.is_cancelled() {
                new.close().await;
            } else {
                problems.extend(self.replace(name, plan, new).await);
            }
        }
        if self.stop.is_cancelled() {
            return ReloadReport::Stopped;
        }
        self.is_settled.store(true, SeqCst);
        match (problems.len() < changes, problems.pop()) {
            (_, None) => ReloadReport::Applied,
            (false, Some(only)) if problems.is_empty() => ReloadReport::Unchanged(only),
            (_, Some(last)) => {
                problems.push(last);
                ReloadReport::Partial(problems)
            }
        }
    }

    /// Drains all components concurrently and closes them.
    pub(super) async fn stop(&self) {
        self.is_settled.store(false, SeqCst);
        let components = mem::take(&mut *self.components.lock().await);
        let mut draining = JoinSet::new();
        for component in components.into_values() {
            let deadline = self.drain_timeout;
            draining.spawn(async move { component.running.drain(deadline).await.close().await });
        }
        draining.join_all().await;
    }

    /// Why the process is not alive; if there is a reason, it should be restarted.
    pub(super) async fn not_alive_reasons(&self) -> Vec<String> {
        let health = self.health().await;
        let reasons = |(name, health): (String, Health)| {
            health.dead_tasks.into_iter().map(move |dead| format!("{name}: the {dead} loop has ended"))
        };
        health.into_iter().flat_map(reasons).collect()
    }

    /// Why the daemon is not ready to deliver, receive or call.
    pub(super) async fn not_ready_reasons(&self) -> Vec<String> {
        if !self.is_settled.load(SeqCst) {
            return vec!["starting, reloading or shutting down".to_owned()];
        }
        let health = self.health().await;
        let reason = |(name, health): (String, Health)| Some(format!("{name}: {}", health.not_ready_reason?));
        health.into_iter().filter_map(reason).collect()
    }

    async fn health(&self) -> Vec<(String, Health)> {
        let mut health = Vec::new();
        for (name, component) in &mut *self.components.lock().await {
            health.push((name.clone(), component.running.health().await));
        }
        health
    }

    /// Prepares every component that is new or whose plan has changed.
    async fn prepare(
        &self,
        plans: BTreeMap<String, Plan>,
    ) -> Result<Vec<(String, Plan, Box<dyn PreparedComponent>)>, Problem> {
        let mut prepared = Vec::new();
        for (name, plan) in plans {
            if self.components.lock().await.get(&name).is_some_and(|component| component.plan == plan) {
                continue;
            }
            match self.prepare_component(&plan).await {
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

    async fn prepare_component(&self, plan: &Plan) -> Result<Box<dyn PreparedComponent>, Problem> {
        Ok(match plan {
            Plan::Relay(plan) => {
                Box::new(PreparedRelay::new(&self.file, plan, &self.databases, self.migrate).await?)
            }
            Plan::Consumer(plan) => {
                Box::new(PreparedConsumer::new(&self.file, plan, &self.databases, self.migrate).await?)
            }
            Plan::FollowUps(plan) => {
                follow_ups::prepare(&self.file, plan, &self.databases, self.migrate).await?
            }
        })
    }

    /// Replaces the old component by the new one. If the new one does not start, the old one resumes.
    async fn replace(&self, name: String, plan: Plan, new: Box<dyn PreparedComponent>) -> Option<Problem> {
        let old = self.drain(&name).await;
        let (component, unused, problem) = match (new.start().await, old) {
            (Ok(running), old) => (Some(Component { plan, running }), old.map(|(_, old)| old), None),
            (Err((new, problem)), None) => (None, Some(new), Some(problem)),
            (Err((new, problem)), Some((plan, old))) => match old.resume().await {
                Ok(running) => (Some(Component { plan, running }), Some(new), Some(problem)),
                Err((old, _)) => {
                    new.close().await;
                    (None, Some(old), Some(problem))
                }
            },
        };
        if let Some(component) = component {
            self.components.lock().await.insert(name, component);
        }
        if let Some(unused) = unused {
            unused.close().await;
        }
        problem
    }

    /// Drains one component without holding the lock, so that health checks of the others do not wait.
    async fn drain(&self, name: &str) -> Option<(Plan, Box<dyn PreparedComponent>)> {
        let Component { plan, running } = self.components.lock().await.remove(name)?;
        Some((plan, running.drain(self.drain_timeout).await))
    }
}
