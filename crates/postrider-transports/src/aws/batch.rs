//! Splits a batch into requests, and the requests into rounds.
//!
//! The n-th message of a group goes in the n-th round, and messages without a group in the first. So a request never has two messages of
//! a group, and a group's next message is sent when the one before has its result. The requests of a round may run concurrently.

use super::BatchEntry;
use std::collections::BTreeMap;

/// The most entries of a request, in both services.
pub(crate) const ENTRIES: usize = 10;

/// The indexes of the messages of one request.
pub(super) type Request = Vec<usize>;

/// Rounds of requests. No message is in an earlier round than an earlier message of its group.
pub(super) fn rounds(entries: &[(usize, BatchEntry)], most_bytes: usize) -> Vec<Vec<Request>> {
    let mut next_rounds: BTreeMap<&str, usize> = BTreeMap::new();
    let mut rounds: Vec<Vec<(Request, usize)>> = Vec::new();
    for (index, (_, entry)) in entries.iter().enumerate() {
        let round = entry.group.as_deref().map_or(0, |group| {
            let next = next_rounds.entry(group).or_default();
            *next += 1;
            *next - 1
        });
        if rounds.len() <= round {
            rounds.push(Vec::new());
        }
        let requests = &mut rounds[round];
        match requests.last_mut() {
            Some((request, bytes)) if request.len() < ENTRIES && *bytes + entry.bytes <= most_bytes => {
                request.push(index);
                *bytes += entry.bytes;
            }
            _ => requests.push((vec![index], entry.bytes)),
        }
    }
    let without_bytes = |requests: Vec<(Request, usize)>| requests.into_iter().map(|(request, _)| request);
    rounds.into_iter().map(|requests| without_bytes(requests).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(groups: &[Option<&str>], bytes: usize) -> Vec<(usize, BatchEntry)> {
        let entry = |group: &Option<&str>| BatchEntry {
            group: group.map(str::to_owned),
            bytes,
            ..BatchEntry::default()
        };
        groups.iter().map(entry).enumerate().collect()
    }

    #[test]
    fn rounds_split_requests_at_ten_entries() {
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
    fn rounds_split_requests_at_byte_limit() {
        assert_eq!(rounds(&entries(&[None; 5], 400), 1_000), [[vec![0, 1], vec![2, 3], vec![4]]]);
        assert_eq!(rounds(&entries(&[None; 3], 500), 1_000), [[vec![0, 1], vec![2]]]);
        assert_eq!(rounds(&entries(&[None; 2], 1_000), 1_000), [[vec![0], vec![1]]]);
    }

    #[test]
    fn rounds_put_one_message_per_group_in_each() {
        let plan = rounds(&entries(&[Some("a"), Some("a"), Some("b"), Some("a"), Some("c")], 1), 1_000);
        assert_eq!(plan, [[vec![0, 2, 4]], [vec![1]], [vec![3]]]);
    }
}
