//! The size of a benchmark, and the selection of its scenarios.

#[derive(Debug, clap::Args)]
pub(crate) struct Workload {
    /// Print one JSON object per scenario
    #[arg(long)]
    pub(crate) json: bool,

    /// Run this many rounds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// Run a quick check: three rounds of a fifth of the messages
    #[arg(long)]
    pub(crate) quick: bool,

    /// Run only scenarios whose name has this prefix
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
}

impl Workload {
    pub(crate) fn rounds(&self) -> u32 {
        if self.quick { self.rounds.min(3) } else { self.rounds }
    }

    /// The number of messages, or a part of it.
    pub(crate) fn of(&self, messages: usize) -> usize {
        if self.quick { messages / 5 } else { messages }
    }

    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| name.starts_with(only.as_str()))
    }
}

/// The order of the sides in each round. The first side has colder caches, so every second round is reversed.
pub(crate) fn turns(rounds: u32, sides: usize) -> impl Iterator<Item = usize> {
    (0..rounds).flat_map(move |round| {
        (0..sides).map(move |side| if round % 2 == 0 { side } else { sides - 1 - side })
    })
}

#[cfg(test)]
mod tests {
    use super::turns;

    #[test]
    fn every_second_round_is_reversed() {
        assert_eq!(turns(3, 3).collect::<Vec<_>>(), [0, 1, 2, 2, 1, 0, 0, 1, 2]);
    }
}
