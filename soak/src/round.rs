//! One round: faults while messages flow, then the check of everything that has happened.

use crate::{
    database::Database,
    fault::{Fault, FaultPlan},
    goal::Goal,
    journal::Journal,
    processes::Processes,
    progress::Progress,
    servers::Servers,
    totals::Totals,
};
use anyhow::Result;
use nix::sys::signal::Signal;
use postrider_testkit::{History, history::Violation};
use rand::{RngExt, rngs::StdRng};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};
use tokio::{sync::watch, time::sleep};

/// A round has at least this many kills and messages, if the run does not end before.
const KILLS: u64 = 40;
const MESSAGES: u64 = 80_000;
/// The pause between two faults, in milliseconds.
const PAUSE: std::ops::Range<u64> = 100..600;
/// A server is down for at most this long, in milliseconds.
const MAX_DOWN: u64 = 500;
/// Without progress for this long, the rest of the messages is lost.
const STALL_TIMEOUT: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(20);

/// What a round works with.
pub(crate) struct Round<'r> {
    pub(crate) servers: &'r mut Servers,
    pub(crate) processes: &'r mut Processes,
    pub(crate) database: &'r Database,
    pub(crate) progress: &'r Progress,
    pub(crate) plan: &'r mut FaultPlan,
    pub(crate) random: StdRng,
    pub(crate) interrupted: watch::Receiver<Option<Signal>>,
    pub(crate) faults: BTreeMap<Fault, u64>,
}

/// What a round has done, and what the check has found.
pub(crate) struct Checked {
    pub(crate) history: History,
    pub(crate) violations: Vec<Violation>,
    pub(crate) totals: Totals,
}

impl Round<'_> {
    /// Runs until the round or the run has done enough, or was interrupted, and checks the result.
    pub(crate) async fn run(mut self, goal: &Goal, before: &Totals, elapsed: Duration) -> Result<Checked> {
        let began_at = Instant::now();
        self.processes.start_all(self.servers, &mut self.random, true)?;
        while !self.is_done(goal, before, elapsed + began_at.elapsed()) {
            self.pause().await;
            let fault = self.choose_fault();
            self.progress.phase(fault.name());
            self.inject(fault).await?;
            *self.faults.entry(fault).or_default() += 1;
            self.progress.add_kill();
        }
        self.progress.phase("stopping the producers");
        self.processes.stop_producers().await?;
        self.deliver_rest().await?;
        self.progress.phase("checking");
        let history =
            History { runs: Journal::read(&self.processes.journal())?, ..self.database.history().await? };
        let violations = history.check().err().unwrap_or_default();
        let totals = Totals::of(&history, &violations, self.faults);
        Ok(Checked { history, violations, totals })
    }

    fn is_done(&self, goal: &Goal, before: &Totals, elapsed: Duration) -> bool {
        let (kills, messages) = (self.faults.values().sum::<u64>(), self.progress.current());
        let done =
            Totals { kills: before.kills + kills, messages: before.messages + messages, ..Totals::default() };
        (kills >= KILLS && messages >= MESSAGES)
            || goal.is_reached(&done, elapsed)
            || self.interrupted.borrow().is_some()
    }

    /// A random pause, during which frozen processes may continue.
    async fn pause(&mut self) {
        let pause = Duration::from_millis(self.random.random_range(PAUSE));
        tokio::select! {
            () = sleep(pause) => {}
            // Fails only when nobody can interrupt any more.
            _ = self.interrupted.changed() => {}
        }
        self.processes.thaw();
    }

    fn choose_fault(&mut self) -> Fault {
        match self.plan.next(&mut self.random) {
            Fault::Sigstop if !self.processes.may_freeze() => Fault::Sigkill,
            fault => fault,
        }
    }

    async fn inject(&mut self, fault: Fault) -> Result<()> {
        let down = Duration::from_millis(self.random.random_range(0..MAX_DOWN));
        match fault {
            Fault::Sigkill => self.processes.kill(self.servers, &mut self.random)?,
            Fault::Sigstop => self.processes.freeze(&mut self.random)?,
            Fault::ServerCrash => {
                self.servers.pair.crash();
                sleep(down).await;
                self.servers.pair.recover().await;
            }
            Fault::Failover => {
                self.servers.pair.fail_over().await;
                self.servers.pair.rebuild_standby().await;
            }
            Fault::PoolerRestart => {
                self.servers.pooler.kill();
                sleep(down).await;
                self.servers.pooler.restart().await;
            }
            Fault::BrokerKill => {
                self.servers.broker.kill();
                sleep(down).await;
                self.servers.broker.restart().await;
            }
        }
        Ok(())
    }

    /// Waits until nothing is left to deliver, and stops all processes: the check must not race with them. A killed producer may have
    /// left a transaction that commits late, so the rest is looked at again when nothing is running.
    async fn deliver_rest(&mut self) -> Result<()> {
        loop {
            let is_stalled = !self.wait_until_delivered().await?;
            self.processes.stop_all().await?;
            while self.database.open_transactions().await? > 0 {
                sleep(POLL).await;
            }
            if is_stalled || self.left().await? == 0 {
                return Ok(());
            }
            self.processes.start_all(self.servers, &mut self.random, false)?;
        }
    }

    /// Returns `false` when nothing is delivered any more although something is left.
    async fn wait_until_delivered(&mut self) -> Result<bool> {
        let (mut last, mut progressed_at) = (u64::MAX, Instant::now());
        loop {
            let left = self.left().await?;
            if left == 0 {
                return Ok(true);
            }
            if left < last {
                (last, progressed_at) = (left, Instant::now());
            }
            if progressed_at.elapsed() > STALL_TIMEOUT {
                return Ok(false);
            }
            sleep(POLL).await;
        }
    }

    /// The messages that are neither delivered nor dead, in the database and in the stream.
    async fn left(&mut self) -> Result<u64> {
        let queued = u64::try_from(self.database.left().await?).unwrap_or_default();
        let not_acked = self.servers.not_acked().await?;
        self.progress.phase(format!("delivering the rest, {queued} in queues, {not_acked} in the stream"));
        Ok(queued + not_acked)
    }
}
