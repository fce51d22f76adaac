//! Which messages go together, and which wait for which.
//!
//! The n-th message of a group goes in the n-th round, and whatever has no group in the first. So a request never has two of a group,
//! and a group's next message is sent when the answer to the one before is there. The requests of a round may go side by side.

use super::Entry;
use std::collections::BTreeMap;

/// What a request takes, here and there.
pub(crate) const ENTRIES: usize = 10;

/// The places of messages that go together.
pub(super) type Request = Vec<usize>;

/// Rounds of requests. Nobody's turn comes before that of an earlier one of its group.
pub(super) fn rounds(entries: &[(usize, Entry)], most_bytes: usize) -> Vec<Vec<Request>> {
    let mut turns: BTreeMap<&str, usize> = BTreeMap::new();
    let mut rounds: Vec<Vec<(Request, usize)>> = Vec::new();
    for (place, (_, entry)) in entries.iter().enumerate() {
        let turn = entry.group.as_deref().map_or(0, |group| {
            let next = turns.entry(group).or_default();
            *next += 1;
            *next - 1
        });
        if rounds.len() <= turn {
            rounds.push(Vec::new());
        }
        let requests = &mut rounds[turn];
        match requests.last_mut() {
            Some((request, bytes)) if request.len() < ENTRIES && *bytes + entry.bytes <= most_bytes => {
                request.push(place);
                *bytes += entry.bytes;
            }
            _ => requests.push((vec![place], entry.bytes)),
        }
    }
    let without_bytes = |requests: Vec<(Request, usize)>| requests.into_iter().map(|(request, _)| request);
    rounds.into_iter().map(|requests| without_bytes(requests).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(groups: &[Option<&str>], bytes: usize) -> Vec<(usize, Entry)> {
        let entry =
            |group: &Option<&str>| Entry { group: group.map(str::to_owned), bytes, ..Entry::default() };
        groups.iter().map(entry).enumerate().collect()
    }

    #[test]
    fn ten_go_together_and_no_more() {
        let sizes = |count| -> Vec<usize> {
            let plan = rounds(&entries(&vec![None; count], 1), 1_000);
            assert!(plan.len() <= 1);
            plan.into_iter().flatten().map(|request| request.len()).collect()
        };
        assert!(sizes(0).is_empty());
        assert_eq!(sizes(1), [1]);
        assert_eq!(sizes(10), [10]);
        assert_eq!(sizes(25), [10, 10, 5]);
    }

    #[test]
    fn bytes_are_counted() {
        assert_eq!(rounds(&entries(&[None; 5], 400), 1_000), [[vec![0, 1], vec![2, 3], vec![4]]]);
        assert_eq!(rounds(&entries(&[None; 3], 500), 1_000), [[vec![0, 1], vec![2]]]);
        assert_eq!(rounds(&entries(&[None; 2], 1_000), 1_000), [[vec![0], vec![1]]]);
    }

    #[test]
    fn the_messages_of_a_group_follow_each_other() {
        let plan = rounds(&entries(&[Some("a"), Some("a"), Some("b"), Some("a"), Some("c")], 1), 1_000);
        assert_eq!(plan, [[vec![0, 2, 4]], [vec![1]], [vec![3]]]);
    }
}
