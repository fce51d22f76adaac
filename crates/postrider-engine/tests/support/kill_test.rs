//! Kill tests: worker processes under load, one of them killed every few hundred milliseconds.

use crate::{
    orders::batch,
    process::Process,
    shop::{Ending, Shop, WorkerArgs, assert_valid, ending, history, until},
};
use nix::sys::signal::Signal;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

#[derive(Debug, Clone)]
pub(crate) struct KillTest {
    /// The test that is the body of a worker process.
    pub(crate) body: &'static str,
    pub(crate) address: String,
    pub(crate) journal: PathBuf,
    pub(crate) workers: usize,
    pub(crate) kills: usize,
    pub(crate) messages: usize,
    pub(crate) producers: usize,
    pub(crate) batch: usize,
    pub(crate) lease_for: Duration,
}

/// The random seed of a run that is to be repeated.
const SEED: &str = "POSTRIDER_TEST_SEED";

impl KillTest {
    /// Kills workers, waits until all messages are delivered or dead, and checks the history.
    pub(crate) async fn run<S: Shop>(&self, shop: &S) {
        let seed = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random);
        // Shown when the test fails.
        eprintln!("to repeat the run: {SEED}={seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let kills = Arc::new(AtomicUsize::new(0));
        let producers: Vec<_> = (0..self.producers)
            .map(|_| tokio::spawn(produce(shop.clone(), self.clone(), Arc::clone(&kills), random.random())))
            .collect();

        let mut workers: Vec<Process> = (0..self.workers).map(|_| self.worker(&mut random)).collect();
        while kills.load(SeqCst) < self.kills {
            tokio::time::sleep(Duration::from_millis(random.random_range(200..450))).await;
            let mut victim = workers.swap_remove(random.random_range(0..workers.len()));
            assert_eq!(victim.ended(), None, "a worker ended by itself (seed {seed})");
            victim.kill();
            kills.fetch_add(1, SeqCst);
            workers.push(self.worker(&mut random));
        }
        let mut rolled_back = 0;
        for producer in producers {
            rolled_back += producer.await.unwrap();
        }
        // The remaining workers also produce: they end before the rest is delivered.
        workers.into_iter().for_each(Process::kill);
        let quiet = WorkerArgs { seed: None, ..self.args(0) };
        let mut last: Vec<Process> =
            (0..self.workers).map(|_| Process::start(self.body, &quiet.text())).collect();
        until("messages are left", Duration::from_secs(90), async || shop.left().await == 0).await;
        for worker in &mut last {
            worker.signal(Signal::SIGTERM);
            let ended = worker.ends_within(quiet.deadline).await;
            assert!(ended.is_some_and(|status| status.success()), "{ended:?} (seed {seed})");
        }

        let history = history(shop, &self.journal).await;
        let (runs, repeated) = (history.runs.len(), history.repeated_runs());
        let (staged, effects, dead) = (history.witness.len(), history.effects.len(), history.dead.len());
        eprintln!(
            "{staged} staged, {rolled_back} rolled back, {runs} runs, {repeated} repeated, {effects} effects, {dead} dead"
        );
        assert_valid(&history, &format!("seed {seed}"));
        assert!(staged >= self.messages, "only {staged} messages were staged");
        // A run in which none of this happened has shown nothing.
        for (what, count) in
            [("rolled back", rolled_back), ("repeated", repeated), ("dead", dead), ("effects", effects)]
        {
            assert!(count > 0, "{what}: none (seed {seed})");
        }
    }

    fn args(&self, seed: u64) -> WorkerArgs {
        WorkerArgs {
            address: self.address.clone(),
            journal: self.journal.clone(),
            lease_for: self.lease_for,
            deadline: Duration::from_secs(20),
            seed: Some(seed),
        }
    }

    fn worker(&self, random: &mut StdRng) -> Process {
        Process::start(self.body, &self.args(random.random()).text())
    }
}

/// Produces its share in step with the kills, so that there is load all the time. Returns how many messages were rolled back.
async fn produce<S: Shop>(shop: S, kill_test: KillTest, kills: Arc<AtomicUsize>, seed: u64) -> usize {
    let mut random = StdRng::seed_from_u64(seed);
    let share = kill_test.messages.div_ceil(kill_test.producers);
    let (mut staged, mut rolled_back) = (0, 0);
    while staged < share {
        let ahead = kill_test.kills / 20 + 1;
        if staged > share * (kills.load(SeqCst) + ahead) / kill_test.kills {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        }
        let (messages, doomed) = batch(&mut random, kill_test.batch);
        let ending = ending(&mut random);
        shop.produce(&messages, &doomed, ending).await.unwrap();
        match ending {
            Ending::Commit => staged += messages.len(),
            Ending::Rollback => rolled_back += messages.len(),
        }
    }
    rolled_back
}
