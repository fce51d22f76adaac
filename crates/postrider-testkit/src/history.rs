//! The history of a run with faults, and the check that nothing in it violates a guarantee.
//!
//! The reference is a witness row that producers write in the transaction that stages the message. The result that a client
//! received does not count, since a commit can succeed although the client never learns of it.

use std::{
    collections::{HashMap, HashSet},
    fmt,
};
use uuid::Uuid;

/// Everything that is known after a run. A list contains a message once for each time that the event happened to it, in the order of
/// the events.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Messages staged by committed transactions; `true` for messages that must end as dead letters.
    pub witness: HashMap<Uuid, bool>,
    /// The positions of messages whose queue is ordered by key.
    pub positions: HashMap<Uuid, KeyPosition>,
    /// Completed runs of plain handlers. A message can have more than one.
    pub runs: Vec<Uuid>,
    /// Effects that handlers wrote in the transaction of their message. Exactly one per message.
    pub effects: Vec<Uuid>,
    /// Dead letters.
    pub dead: Vec<Uuid>,
    /// Messages that are not delivered yet.
    pub waiting: Vec<Uuid>,
}

/// The position of a message among those of its ordering key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPosition {
    /// The ordering key.
    pub key: String,
    /// Grows from one message of the key to the next. Numbers of transactions that were rolled back are missing.
    pub number: i64,
}

/// A violation of a guarantee, with the messages concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// Committed messages that were lost.
    Lost(Vec<Uuid>),
    /// Messages of rolled-back transactions that exist or were handled.
    Invented(Vec<Uuid>),
    /// Effects that happened more than once, or whose message was not settled with them.
    Doubled(Vec<Uuid>),
    /// Messages in two states at once, or twice in one.
    Split(Vec<Uuid>),
    /// Dead letters that should have been delivered, or the reverse.
    Misjudged(Vec<Uuid>),
    /// Messages that were overtaken by a later message of their key.
    Overtaken(Vec<Uuid>),
}

impl History {
    /// Checks for every violation.
    ///
    /// # Errors
    /// With all violations found.
    pub fn check(&self) -> Result<(), Vec<Violation>> {
        let (runs, effects) = (counted(&self.runs), counted(&self.effects));
        let (dead, waiting) = (counted(&self.dead), counted(&self.waiting));
        let places = [&runs, &effects, &dead, &waiting];
        let everywhere = || places.iter().flat_map(|place| place.keys());
        let is_done = |id: &Uuid| runs.contains_key(id) || effects.contains_key(id);

        let lost = self.witness.keys().filter(|id| places.iter().all(|place| !place.contains_key(id)));
        let invented = everywhere().filter(|id| !self.witness.contains_key(id));
        // An effect and the settlement of its message commit together.
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
            Violation::Overtaken(sorted(self.overtaken(&self.runs).chain(self.overtaken(&self.effects)))),
        ]
        .into_iter()
        .filter(|violation| !violation.messages().is_empty())
        .collect();
        if found.is_empty() { Ok(()) } else { Err(found) }
    }

    /// The messages whose first event came after an event of a later message of their key. A repeated run may come at any time: it is
    /// of a process that has lost its lease.
    fn overtaken<'h>(&'h self, events: &'h [Uuid]) -> impl Iterator<Item = &'h Uuid> {
        let (mut seen, mut last) = (HashSet::new(), HashMap::new());
        let ordered = events.iter().filter_map(|id| Some((id, self.positions.get(id)?)));
        ordered.filter_map(move |(id, KeyPosition { key, number })| {
            let last = last.entry(key).or_insert(number);
            let is_overtaken = seen.insert(id) && number < *last;
            *last = number.max(*last);
            is_overtaken.then_some(id)
        })
    }

    /// The number of repeated runs of plain handlers: the cost of a crash between handling and settlement. A run with faults that
    /// has none proves nothing.
    pub fn repeated_runs(&self) -> usize {
        self.runs.len() - counted(&self.runs).len()
    }
}

impl Violation {
    /// The messages concerned.
    pub fn messages(&self) -> &[Uuid] {
        match self {
            Self::Lost(ids)
            | Self::Invented(ids)
            | Self::Doubled(ids)
            | Self::Split(ids)
            | Self::Misjudged(ids)
            | Self::Overtaken(ids) => ids,
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
            Self::Split(_) => "in two states",
            Self::Misjudged(_) => "misjudged",
            Self::Overtaken(_) => "overtaken",
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

/// Negative controls: a checker that has never failed proves nothing.
#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u128) -> Uuid {
        Uuid::from_u128(number)
    }

    /// One message of each kind: handled twice, with an effect, dead, waiting.
    fn good() -> History {
        History {
            witness: [(id(1), false), (id(2), false), (id(3), true), (id(4), false)].into(),
            runs: vec![id(1), id(1)],
            effects: vec![id(2)],
            dead: vec![id(3)],
            waiting: vec![id(4)],
            positions: HashMap::new(),
        }
    }

    /// A key with three messages, whose handler runs in this order.
    fn keyed(runs: &[u128]) -> History {
        let position = |number: i64| KeyPosition { key: "key".into(), number };
        History {
            witness: (1..=3).map(|number| (id(number), false)).collect(),
            positions: [(id(1), position(1)), (id(2), position(2)), (id(3), position(4))].into(),
            runs: runs.iter().map(|number| id(*number)).collect(),
            ..History::default()
        }
    }

    fn found(change: impl FnOnce(&mut History)) -> Vec<Violation> {
        let mut history = good();
        change(&mut history);
        history.check().unwrap_err()
    }

    #[test]
    fn a_valid_history_passes_and_repeated_runs_are_counted() {
        assert_eq!(good().check(), Ok(()));
        assert_eq!(good().repeated_runs(), 1);
    }

    #[test]
    fn a_lost_message_is_detected() {
        assert_eq!(found(|history| history.runs.clear()), [Violation::Lost(vec![id(1)])]);
        assert_eq!(found(|history| history.effects.clear()), [Violation::Lost(vec![id(2)])]);
        assert_eq!(found(|history| history.dead.clear()), [Violation::Lost(vec![id(3)])]);
    }

    #[test]
    fn a_handled_rolled_back_message_is_detected() {
        assert_eq!(found(|history| history.runs.push(id(9))), [Violation::Invented(vec![id(9)])]);
        assert_eq!(found(|history| history.effects.push(id(9))), [Violation::Invented(vec![id(9)])]);
        assert_eq!(found(|history| history.dead.push(id(9))), [Violation::Invented(vec![id(9)])]);
    }

    #[test]
    fn a_duplicate_effect_is_detected() {
        assert_eq!(found(|history| history.effects.push(id(2))), [Violation::Doubled(vec![id(2)])]);
    }

    #[test]
    fn an_effect_of_an_unsettled_message_is_detected() {
        assert_eq!(found(|history| history.waiting.push(id(2))), [Violation::Doubled(vec![id(2)])]);
    }

    #[test]
    fn a_message_in_two_states_is_detected() {
        assert_eq!(found(|history| history.waiting.push(id(3))), [Violation::Split(vec![id(3)])]);
        assert_eq!(found(|history| history.dead.push(id(3))), [Violation::Split(vec![id(3)])]);
    }

    #[test]
    fn a_message_with_the_wrong_outcome_is_detected() {
        assert_eq!(found(|history| history.dead.push(id(1))), [Violation::Misjudged(vec![id(1)])]);
        assert_eq!(found(|history| history.runs.push(id(3))), [Violation::Misjudged(vec![id(3)])]);
    }
    #[test]
    fn an_overtaken_message_is_detected() {
        assert_eq!(keyed(&[1, 3, 2]).check(), Err(vec![Violation::Overtaken(vec![id(2)])]));
        let effects = History { effects: vec![id(2), id(1), id(3)], runs: Vec::new(), ..keyed(&[]) };
        assert_eq!(effects.check(), Err(vec![Violation::Overtaken(vec![id(1)])]));
    }

    #[test]
    fn a_late_repeated_run_overtakes_nothing() {
        assert_eq!(keyed(&[1, 2, 1, 3, 2]).check(), Ok(()));
    }
}
