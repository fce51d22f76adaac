//! `bench store`: the stores and adapters compared with the same work written by hand.
//!
//! Each scenario runs in rounds. In each round every side has a turn, in alternating order. Each kind of side has its own database,
//! which is emptied before each turn.

use crate::{
    backend::Backend,
    postgres::Databases,
    report::{Report, Series},
    scenario::{Scenario, Store},
    sqlite::Files,
    turn::BenchTurn,
};
use anyhow::{Context, Result};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object per scenario
    #[arg(long)]
    json: bool,

    /// Run only this store
    #[arg(long, value_name = "STORE")]
    store: Option<Store>,

    /// Run this many rounds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// Pass this many messages in one turn; a tenth with batches of 10, a fiftieth with batches of 1
    #[arg(long, default_value_t = 100_000)]
    messages: usize,

    /// Run a quick check: three rounds of a tenth of the messages
    #[arg(long)]
    quick: bool,

    /// Run only scenarios with this prefix, such as `stage`, `stage/adapter=sea-orm` or `claim_settle/batch=1000`
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
}

pub(crate) async fn run(args: &Args) -> Result<()> {
    let mut report = Report::new(args.json);
    let is_wanted = |scenario: &Scenario| {
        args.store.is_none_or(|store| store == scenario.store)
            && (args.only.is_empty() || args.only.iter().any(|only| scenario.name.starts_with(only)))
    };
    for store in [Store::Postgres, Store::Sqlite] {
        let scenarios: Vec<_> = Scenario::all()
            .into_iter()
            .filter(|scenario| scenario.store == store && is_wanted(scenario))
            .collect();
        if scenarios.is_empty() {
            continue;
        }
        let mut backend: Box<dyn Backend> = match store {
            Store::Postgres => Box::new(Databases::connect().await?),
            Store::Sqlite => Box::new(Files::new().await?),
        };
        let mut done = Ok(());
        for scenario in &scenarios {
            done = compare(args, &mut *backend, scenario, &mut report).await;
            if done.is_err() {
                break;
            }
        }
        backend.remove().await?;
        done?;
    }
    report.end()
}

async fn compare(
    args: &Args,
    backend: &mut dyn Backend,
    scenario: &Scenario,
    report: &mut Report,
) -> Result<()> {
    let (rounds, messages) =
        if args.quick { (args.rounds.min(3), args.messages / 10) } else { (args.rounds, args.messages) };
    let Scenario { name, work, sides, .. } = scenario;
    let messages = work.messages(messages);
    let mut turns = Vec::new();
    for side in sides {
        let url = backend.database(&**side).await?;
        turns.push(BenchTurn { side: &**side, url, work: *work, messages });
    }
    let mut series: Vec<_> = sides.iter().map(|side| Series::new(side.name())).collect();
    for round in 0..rounds {
        eprintln!("{}: {name}: round {} of {rounds}", scenario.store.name(), round + 1);
        let mut order: Vec<usize> = (0..turns.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            let figures = turns[index].measure(backend).await;
            let figures = figures.with_context(|| format!("{name}, {}", turns[index].side.name()))?;
            series[index].figures.push(figures);
        }
    }
    for (turn, series) in turns.iter().zip(&mut series) {
        series.trips = turn.trips(backend).await?;
    }
    report.scenario(scenario, backend, rounds, messages, &series)
}
