//! The scenarios: their names and sides.

use crate::{adapters, postgres, side::Side, sqlite};

/// The database of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Store {
    Postgres,
    Sqlite,
}

impl Store {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Sqlite => "sqlite",
        }
    }
}

/// The work of a scenario.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Work {
    Stage { batch: usize },
    ClaimSettle { batch: usize, workers: usize },
}

impl Work {
    fn name(self) -> String {
        match self {
            Self::Stage { batch: 1 } => "stage/single".to_owned(),
            Self::Stage { batch } => format!("stage/batch={batch}"),
            Self::ClaimSettle { batch, workers } => format!("claim_settle/batch={batch}/workers={workers}"),
        }
    }

    /// The number of messages, of a full load of `messages`: whole batches.
    pub(crate) fn messages(self, messages: usize) -> usize {
        let (Self::Stage { batch } | Self::ClaimSettle { batch, .. }) = self;
        let share = match batch {
            1 => messages / 50,
            10 => messages / 10,
            _ => messages,
        };
        share.max(batch).next_multiple_of(batch)
    }
}

/// One comparison.
pub(crate) struct Scenario {
    pub(crate) store: Store,
    pub(crate) name: String,
    pub(crate) work: Work,
    /// Ours, the reference, and for some the raw lease.
    pub(crate) sides: Vec<Box<dyn Side>>,
}

impl Scenario {
    pub(crate) fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for work in works(&[1, 2, 4]) {
            let mut sides: Vec<Box<dyn Side>> = vec![Box::new(postgres::Ours), Box::new(postgres::Reference)];
            if matches!(work, Work::ClaimSettle { .. }) {
                sides.push(Box::new(postgres::Raw));
            }
            all.push(Self { store: Store::Postgres, name: work.name(), work, sides });
        }
        for driver in adapters::DRIVERS {
            for batch in [1, 100, 1000] {
                let name = format!("stage/adapter={}/batch={batch}", driver.name);
                let (work, sides) = (Work::Stage { batch }, (driver.sides)());
                all.push(Self { store: driver.store, name, work, sides });
            }
        }
        for work in works(&[1, 2]) {
            let sides: Vec<Box<dyn Side>> = vec![Box::new(sqlite::Ours), Box::new(sqlite::Reference)];
            all.push(Self { store: Store::Sqlite, name: work.name(), work, sides });
        }
        all
    }
}

fn works(workers: &[usize]) -> Vec<Work> {
    let stage = [1, 100, 1000].map(|batch| Work::Stage { batch });
    let claims = [1, 10, 100, 1000]
        .into_iter()
        .flat_map(|batch| workers.iter().map(move |workers| Work::ClaimSettle { batch, workers: *workers }));
    stage.into_iter().chain(claims).collect()
}
