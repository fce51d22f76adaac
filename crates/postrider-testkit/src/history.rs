//! What happened in a run with faults, and whether it may have.
//!
//! The truth is a witness: a row that producers write in the transaction that stages the message. What a client was told
//! does not count, since a commit may have happened though nobody heard of it.

use std::{collections::HashMap, fmt};
use uuid::Uuid;

/// Everything that is known after a run. Lists hold a message as often as something happened to it.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Staged, by transactions that committed; `true` for messages that must end as dead letters.
    pub witness: HashMap<Uuid, bool>,
    /// Runs of plain handlers that did their work. It may happen more than once.
    pub runs: Vec<Uuid>,
    /// Effects that handlers wrote in the transaction of their message. Once each.
    pub effects: Vec<Uuid>,
    /// Dead letters.
    pub dead: Vec<Uuid>,
    /// Not delivered yet.
    pub waiting: Vec<Uuid>,
}

/// What must never happen, and how often it did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// Committed, and nowhere.
    Lost(Vec<Uuid>),
    /// Never committed, and yet somewhere.
    Invented(Vec<Uuid>),
    /// An effect that happened more than once, or to a message that did not end with it.
    Doubled(Vec<Uuid>),
    /// In two places at once, or twice in one.
    Split(Vec<Uuid>),
    /// A dead letter that nothing was wrong with, or the other way round.
    Misjudged(Vec<Uuid>),
}

impl History {
    /// Looks for everything that must never happen.
    ///
    /// # Errors
    /// With all that did.
    pub fn check(&self) -> Result<(), Vec<Violation>> {
        let (runs, effects) = (counted(&self.runs), counted(&self.effects));
        let (dead, waiting) = (counted(&self.dead), counted(&self.waiting));
        let places = [&runs, &effects, &dead, &waiting];
        let everywhere = || places.iter().flat_map(|place| place.keys());
        let is_done = |id: &Uuid| runs.contains_key(id) || effects.contains_key(id);

        let lost = self.witness.keys().filter(|id| places.iter().all(|place| !place.contains_key(id)));
        let invented = everywhere().filter(|id| !self.witness.contains_key(id));
        // An effect and the end of its message commit together.
        let is_elsewhere =
            |id: &Uuid| runs.contains_key(id) || dead.contains_key(id) || waiting.contains_key(id);
        let doubled = effects.iter().filter(|(id, count)| **count > 1 || is_elsewhere(id)).map(|(id, _)| id);
        let split = dead
            .iter()
            .filter(|(id, count)| **count > 1 || waiting.contains_key(*id))
            .chain(waiting.iter().filter(|(_, count)| **count > 1))
            .map(|(id, _)| id);
        let misjudged = self.witness.iter().filter(|(id, is_doomed)| match is_doomed {
            true => is_done(id),
            false => dead.contains_key(*id),
        });

        let found: Vec<Violation> = [
            Violation::Lost(sorted(lost)),
            Violation::Invented(sorted(invented)),
            Violation::Doubled(sorted(doubled)),
            Violation::Split(sorted(split)),
            Violation::Misjudged(sorted(misjudged.map(|(id, _)| id))),
        ]
        .into_iter()
        .filter(|violation| !violation.messages().is_empty())
        .collect();
        if found.is_empty() { Ok(()) } else { Err(found) }
    }

    /// How many runs of plain handlers were not the first of their message: what a crash between work and settlement
    /// costs. A run with faults in which there are none has shown nothing.
    pub fn repeated_runs(&self) -> usize {
        self.runs.len() - counted(&self.runs).len()
    }
}

impl Violation {
    /// Those concerned.
    pub fn messages(&self) -> &[Uuid] {
        match self {
            Self::Lost(ids)
            | Self::Invented(ids)
            | Self::Doubled(ids)
            | Self::Split(ids)
            | Self::Misjudged(ids) => ids,
        }
    }
}

impl fmt::Display for Violation {
    /// A few examples are enough.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            Self::Lost(_) => "lost",
            Self::Invented(_) => "invented",
            Self::Doubled(_) => "doubled effects",
            Self::Split(_) => "in two places",
            Self::Misjudged(_) => "misjudged",
        };
        let ids = self.messages();
        write!(f, "{what}: {} messages, such as {:?}", ids.len(), &ids[..ids.len().min(5)])
    }
}

fn counted(ids: &[Uuid]) -> HashMap<Uuid, usize> {
    let mut counts = HashMap::with_capacity(ids.len());
    for id in ids {
        *counts.entry(*id).or_default() += 1;
    }
    counts
}

fn sorted<'i>(ids: impl Iterator<Item = &'i Uuid>) -> Vec<Uuid> {
    let mut ids: Vec<Uuid> = ids.copied().collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// The negative controls: a checker that has never failed proves nothing.
#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u128) -> Uuid {
        Uuid::from_u128(number)
    }

    /// One message of each kind: run twice, with an effect, dead, waiting.
    fn good() -> History {
        History {
            witness: [(id(1), false), (id(2), false), (id(3), true), (id(4), false)].into(),
            runs: vec![id(1), id(1)],
            effects: vec![id(2)],
            dead: vec![id(3)],
            waiting: vec![id(4)],
        }
    }

    fn found(change: impl FnOnce(&mut History)) -> Vec<Violation> {
        let mut history = good();
        change(&mut history);
        history.check().unwrap_err()
    }

    #[test]
    fn a_good_history_passes_and_repeated_runs_are_counted() {
        assert_eq!(good().check(), Ok(()));
        assert_eq!(good().repeated_runs(), 1);
    }

    #[test]
    fn a_lost_message_is_caught() {
        assert_eq!(found(|history| history.runs.clear()), [Violation::Lost(vec![id(1)])]);
        assert_eq!(found(|history| history.effects.clear()), [Violation::Lost(vec![id(2)])]);
        assert_eq!(found(|history| history.dead.clear()), [Violation::Lost(vec![id(3)])]);
    }

    #[test]
    fn a_rolled_back_message_that_is_handled_is_caught() {
        assert_eq!(found(|history| history.runs.push(id(9))), [Violation::Invented(vec![id(9)])]);
        assert_eq!(found(|history| history.effects.push(id(9))), [Violation::Invented(vec![id(9)])]);
        assert_eq!(found(|history| history.dead.push(id(9))), [Violation::Invented(vec![id(9)])]);
    }

    #[test]
    fn a_doubled_effect_is_caught() {
        assert_eq!(found(|history| history.effects.push(id(2))), [Violation::Doubled(vec![id(2)])]);
    }

    #[test]
    fn an_effect_of_a_message_that_is_still_there_is_caught() {
        assert_eq!(found(|history| history.waiting.push(id(2))), [Violation::Doubled(vec![id(2)])]);
    }

    #[test]
    fn a_message_in_two_places_is_caught() {
        assert_eq!(found(|history| history.waiting.push(id(3))), [Violation::Split(vec![id(3)])]);
        assert_eq!(found(|history| history.dead.push(id(3))), [Violation::Split(vec![id(3)])]);
    }

    #[test]
    fn a_message_that_ended_as_it_should_not_is_caught() {
        assert_eq!(found(|history| history.dead.push(id(1))), [Violation::Misjudged(vec![id(1)])]);
        assert_eq!(found(|history| history.runs.push(id(3))), [Violation::Misjudged(vec![id(3)])]);
    }
}
