//! The processes of a round: started, killed, frozen and stopped.

use crate::{
    role::{DRAIN_TIMEOUT, LEASE, ProcessArgs, Role},
    servers::Servers,
    task::Defect,
};
use anyhow::{Context as _, Result, bail};
use nix::sys::signal::Signal;
use postrider_testkit::process::Process;
use rand::{RngExt, rngs::StdRng, seq::IteratorRandom};
use std::{
    fs::{self, File},
    os::unix::process::{CommandExt, ExitStatusExt},
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    time::{Duration, Instant},
};

/// Two of each, so that they compete, and one works on while the other is down.
const ROLES: [Role; 8] = [
    Role::Producer,
    Role::Producer,
    Role::Worker,
    Role::Worker,
    Role::Relay,
    Role::Relay,
    Role::Consumer,
    Role::Consumer,
];
/// The rest works.
const MOST_FROZEN: usize = 3;
/// One process in this many connects through the pooler.
const POOLED: u32 = 3;
const LOG_TAIL: usize = 20;

#[derive(Debug)]
struct RunningProcess {
    role: Role,
    process: Process,
    frozen_until: Option<Instant>,
}

/// The running processes. Dropping them kills all.
#[derive(Debug)]
pub(crate) struct Processes {
    folder: PathBuf,
    defects: Vec<Defect>,
    running: Vec<RunningProcess>,
}

impl Processes {
    /// No processes yet. Their logs and the journal are in the folder.
    pub(crate) fn new(folder: &Path, defects: &[Defect]) -> Result<Self> {
        fs::create_dir_all(folder.join("logs"))?;
        Ok(Self { folder: folder.to_owned(), defects: defects.to_vec(), running: Vec::new() })
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.folder.join("journal")
    }

    /// The argument of a process.
    pub(crate) fn args(&self, role: Role, servers: &Servers, random: &mut StdRng) -> ProcessArgs {
        ProcessArgs {
            role,
            address: servers.address(random.random_ratio(1, POOLED)),
            broker: servers.broker.url().to_owned(),
            journal: self.journal(),
            seed: random.random(),
            defects: self.defects.clone(),
        }
    }

    /// Starts all of them, or all but the producers.
    pub(crate) fn start_all(
        &mut self,
        servers: &Servers,
        random: &mut StdRng,
        is_producing: bool,
    ) -> Result<()> {
        for role in ROLES.into_iter().filter(|role| is_producing || *role != Role::Producer) {
            self.start(role, servers, random)?;
        }
        Ok(())
    }

    fn start(&mut self, role: Role, servers: &Servers, random: &mut StdRng) -> Result<()> {
        let args = serde_json::to_string(&self.args(role, servers, random))?;
        let log = File::options().create(true).append(true).open(self.log(role))?;
        let mut command = Command::new(std::env::current_exe()?);
        // In a process group of its own: the system continues a frozen process whose parent has died.
        command.arg("process").arg(args).stderr(log).process_group(0);
        self.running.push(RunningProcess { role, process: Process::spawn(command), frozen_until: None });
        Ok(())
    }

    /// Kills one of them, and starts another in its place.
    pub(crate) fn kill(&mut self, servers: &Servers, random: &mut StdRng) -> Result<()> {
        self.check()?;
        let victim = self.running.swap_remove(random.random_range(0..self.running.len()));
        victim.process.kill();
        self.start(victim.role, servers, random)
    }

    /// Freezes one of them until its leases have expired.
    pub(crate) fn freeze(&mut self, random: &mut StdRng) -> Result<()> {
        self.check()?;
        let awake = self.running.iter_mut().filter(|running| running.frozen_until.is_none());
        if let Some(victim) = awake.choose(random) {
            victim.process.signal(Signal::SIGSTOP);
            let longer = Duration::from_millis(random.random_range(300..1_500));
            victim.frozen_until = Some(Instant::now() + LEASE + longer);
        }
        Ok(())
    }

    /// Whether another one may be frozen.
    pub(crate) fn may_freeze(&self) -> bool {
        self.running.iter().filter(|running| running.frozen_until.is_some()).count() < MOST_FROZEN
    }

    /// Continues those that were frozen for long enough.
    pub(crate) fn thaw(&mut self) {
        let now = Instant::now();
        for running in &mut self.running {
            if running.frozen_until.is_some_and(|until| until <= now) {
                running.thaw();
            }
        }
    }

    /// Continues all, and stops the producers gracefully.
    pub(crate) async fn stop_producers(&mut self) -> Result<()> {
        self.running.iter_mut().for_each(RunningProcess::thaw);
        self.stop(|role| role == Role::Producer).await
    }

    /// Stops all of them gracefully.
    pub(crate) async fn stop_all(&mut self) -> Result<()> {
        self.stop(|_| true).await
    }

    async fn stop(&mut self, is_wanted: impl Fn(Role) -> bool) -> Result<()> {
        self.check()?;
        let (stopping, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.running).into_iter().partition(|running| is_wanted(running.role));
        self.running = others;
        for stopping in &stopping {
            stopping.process.signal(Signal::SIGTERM);
        }
        for mut stopping in stopping {
            let Some(status) = stopping.process.ends_within(2 * DRAIN_TIMEOUT).await else {
                bail!("the {} did not stop{}", stopping.role.name(), self.log_tail(stopping.role));
            };
            if !is_graceful(status) {
                bail!("the {} stopped with {status}{}", stopping.role.name(), self.log_tail(stopping.role));
            }
        }
        Ok(())
    }

    /// Fails if one has ended by itself.
    fn check(&mut self) -> Result<()> {
        for running in &mut self.running {
            if let Some(status) = running.process.ended() {
                let role = running.role;
                bail!("the {} ended by itself with {status}{}", role.name(), self.log_tail(role));
            }
        }
        Ok(())
    }

    /// Empties the journal and the logs of a checked round.
    pub(crate) fn empty(&self) -> Result<()> {
        File::create(self.journal()).context("cannot empty the journal")?;
        for role in ROLES {
            File::create(self.log(role)).context("cannot empty a log")?;
        }
        Ok(())
    }

    fn log(&self, role: Role) -> PathBuf {
        self.folder.join("logs").join(format!("{}.log", role.name()))
    }

    fn log_tail(&self, role: Role) -> String {
        let text = fs::read_to_string(self.log(role)).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(LOG_TAIL)..].join("\n");
        format!("; the end of {}:\n{tail}", self.log(role).display())
    }
}

impl RunningProcess {
    fn thaw(&mut self) {
        if self.frozen_until.take().is_some() {
            self.process.signal(Signal::SIGCONT);
        }
    }
}

/// SIGTERM ends a process that has not begun to work.
fn is_graceful(status: ExitStatus) -> bool {
    status.success() || status.signal() == Some(Signal::SIGTERM as i32)
}
