//! A whole run: rounds until the goal is reached.

use crate::{
    database::Database,
    evidence,
    fault::FaultPlan,
    goal::Goal,
    processes::Processes,
    progress::Progress,
    role::{self, Role},
    round::{Checked, Round},
    servers::Servers,
    state::{State, lock},
    task::Defect,
};
use anyhow::{Context as _, Result};
use nix::sys::signal::Signal;
use rand::{SeedableRng, rngs::StdRng};
use std::{
    collections::BTreeMap,
    fs,
    io::{ErrorKind, Write, stdout},
    path::{self, Path, PathBuf},
    time::Instant,
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    goal: Goal,

    /// Continue the run in this folder, or begin one there
    #[arg(long, default_value = "target/soak", value_name = "FOLDER")]
    dir: PathBuf,

    /// Begin a new run, and remove what an earlier one has left in the folder
    #[arg(long)]
    fresh: bool,

    /// Choose the faults of a new run by this seed [default: random]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,

    /// Build in these defects, which the check must find
    #[arg(long, hide = true, value_delimiter = ',', value_name = "NAMES")]
    defects: Vec<Defect>,
}

/// Runs until the goal is reached, and returns whether there was no violation.
pub(crate) async fn run(args: &Args) -> Result<bool> {
    let folder = path::absolute(&args.dir)?;
    let _lock = lock(&folder)?;
    if args.fresh {
        clear(&folder)?;
    }
    let seed = args.seed.unwrap_or_else(rand::random);
    let mut state = State::read(&folder)?.unwrap_or_else(|| State::new(seed));
    eprintln!("soak: seed {}, round {}, folder {}", state.seed, state.rounds + 1, folder.display());
    let interrupted = interruptions()?;
    // With its seed, if the first round is never finished.
    state.save(&folder)?;
    if !args.goal.is_reached(&state.totals, state.elapsed) {
        rounds(args, &folder, &mut state, &interrupted).await?;
    }
    writeln!(stdout(), "{}", state.totals)?;
    Ok(state.totals.violations() == 0)
}

/// Runs rounds until the goal is reached, a violation was found, or the run was interrupted.
async fn rounds(
    args: &Args,
    folder: &Path,
    state: &mut State,
    interrupted: &watch::Receiver<Option<Signal>>,
) -> Result<()> {
    let mut servers = Servers::start().await?;
    let mut processes = Processes::new(folder, &args.defects)?;
    processes.empty()?;
    let direct = servers.address(false);
    Database::open(&direct).await?.create().await?;
    // Opened again, because settings of a database apply to new sessions.
    let database = Database::open(&direct).await?;
    let progress = Progress::start(database.clone(), args.goal, state.totals.kills, state.totals.messages);
    let mut random = StdRng::seed_from_u64(state.seed.wrapping_add(state.rounds));
    let mut plan = FaultPlan::new(&mut random);
    role::declare(&database, &processes.args(Role::Worker, &servers, &mut random)).await?;

    loop {
        let began_at = Instant::now();
        let round = Round {
            servers: &mut servers,
            processes: &mut processes,
            database: &database,
            progress: &progress,
            plan: &mut plan,
            random: StdRng::seed_from_u64(state.seed.wrapping_add(state.rounds)),
            interrupted: interrupted.clone(),
            faults: BTreeMap::new(),
        };
        let checked = round.run(&args.goal, &state.totals, state.elapsed).await?;
        state.rounds += 1;
        state.elapsed += began_at.elapsed();
        state.totals.add(&checked.totals);
        if checked.totals.violations() > 0 {
            report(folder, state, &checked, &database, &mut servers).await?;
        }
        state.save(folder)?;
        let is_over = args.goal.is_reached(&state.totals, state.elapsed);
        if checked.totals.violations() > 0 || is_over || interrupted.borrow().is_some() {
            return Ok(());
        }
        database.empty().await?;
        servers.purge().await?;
        processes.empty()?;
        progress.end_round(checked.totals.messages);
    }
}

/// Keeps everything that explains a violation, and says where it is.
async fn report(
    folder: &Path,
    state: &State,
    checked: &Checked,
    database: &Database,
    servers: &mut Servers,
) -> Result<()> {
    let data = servers.keep();
    let path = evidence::write(folder, state, checked, database, &data).await?;
    eprintln!("soak: violation in round {}, seed {}", state.rounds, state.seed);
    for violation in &checked.violations {
        eprintln!("soak: {violation}");
    }
    if !checked.history.waiting.is_empty() {
        eprintln!("soak: neither delivered nor dead: {} messages", checked.history.waiting.len());
    }
    eprintln!("soak: messages and their rows: {}", path.display());
    eprintln!("soak: journal and logs of the processes: {}", folder.display());
    eprintln!("soak: the database can be started from {}", data.join("data").display());
    Ok(())
}

/// Removes the files of an earlier run, and nothing else: the folder may be the caller's.
fn clear(folder: &Path) -> Result<()> {
    for name in ["state.json", "violations.json", "journal"] {
        match fs::remove_file(folder.join(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot remove {name}"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The first signal ends the round early, and its result is checked; the second ends the process.
fn interruptions() -> Result<watch::Receiver<Option<Signal>>> {
    let (interrupt, interrupted) = watch::channel(None);
    for (kind, name) in [
        (SignalKind::interrupt(), Signal::SIGINT),
        (SignalKind::terminate(), Signal::SIGTERM),
        (SignalKind::hangup(), Signal::SIGHUP),
    ] {
        let mut signals = signal(kind)?;
        let interrupt = interrupt.clone();
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                if interrupt.send_replace(Some(name)).is_some() {
                    std::process::exit(128 + name as i32);
                }
                eprintln!("soak: ending the round and checking it; a second {name} ends at once");
            }
        });
    }
    Ok(interrupted)
}
