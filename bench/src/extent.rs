//! How much a benchmark does, and what of it.

#[derive(Debug, clap::Args)]
pub(crate) struct Extent {
    /// Print one JSON object per scenario
    #[arg(long)]
    pub(crate) json: bool,

    /// How often each side has its turn
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// A look at how things stand: three rounds of a fifth of the messages
    #[arg(long)]
    pub(crate) quick: bool,

    /// Only scenarios whose name begins so
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
}

impl Extent {
    pub(crate) fn rounds(&self) -> u32 {
        if self.quick { self.rounds.min(3) } else { self.rounds }
    }

    /// So many messages, or a part of them.
    pub(crate) fn of(&self, messages: usize) -> usize {
        if self.quick { messages / 5 } else { messages }
    }

    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| name.starts_with(only.as_str()))
    }
}

/// Whose turn it is in each round, by number. Whoever comes first has the colder caches, so every second round goes backwards.
pub(crate) fn turns(rounds: u32, sides: usize) -> impl Iterator<Item = usize> {
    (0..rounds).flat_map(move |round| {
        (0..sides).map(move |side| if round % 2 == 0 { side } else { sides - 1 - side })
    })
}

#[cfg(test)]
mod tests {
    use super::turns;

    #[test]
    fn every_second_round_goes_backwards() {
        assert_eq!(turns(3, 3).collect::<Vec<_>>(), [0, 1, 2, 2, 1, 0, 0, 1, 2]);
    }
}
