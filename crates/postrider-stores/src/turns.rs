//! Whose turn it is among the tenants of a queue that is fair to them.
//!
//! Each tenant has a *time* of its own, which every message handed out moves on by one step divided by its weight; whoever is
//! furthest behind goes next. The common clock is the time at which the last message was handed out: a tenant that has been
//! away comes back there and not with what it might have had, and one that ran ahead while it was alone keeps its debt. So
//! shares hold across claims of any size, also when there are more tenants than a claim has room for, and nothing is capped.
//!
//! This is a process's own memory, and a hint: without it the next claim is shared out afresh.

use postrider_core::TenantWeights;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap},
};

/// What has come due joins the line so many at a time at least, whatever the limit of a claim: while it is not there yet,
/// tenants do not take turns in it.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) const COME_DUE: usize = 1_000;

/// One step of a tenant of weight 1.
const STEP: u64 = 1 << 24;

/// The tenants' times. A tenant is known by its name; what has none has an empty one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Turns {
    now: u64,
    /// Only of tenants that are ahead of the clock.
    ahead: HashMap<String, u64>,
}

impl Turns {
    /// Begins to share out up to `limit` messages among the tenants in `waiting`.
    pub(crate) fn round<'t, T>(
        &'t mut self,
        weights: &'t TenantWeights,
        waiting: impl IntoIterator<Item = String>,
        limit: usize,
    ) -> Round<'t, T> {
        let now = self.now;
        self.ahead.retain(|_, time| *time > now);
        Round { waiting: waiting.into_iter().collect(), left: limit, taken: Vec::new(), turns: self, weights }
    }

    /// Counts messages that were handed out, one for each of these tenants.
    #[cfg(any(feature = "memory", feature = "sqlite"))]
    pub(crate) fn charge<'a>(&mut self, weights: &TenantWeights, tenants: impl IntoIterator<Item = &'a str>) {
        let times = tenants.into_iter().map(|tenant| self.step(tenant, weights.of(tenant)));
        self.now = times.max().map_or(self.now, |latest| latest.max(self.now));
    }

    /// Moves a tenant on by one message, and answers with the time at which it was handed out.
    fn step(&mut self, tenant: &str, weight: u32) -> u64 {
        let time = self.time(tenant);
        self.ahead.insert(tenant.to_owned(), time + step(weight));
        time
    }

    fn time(&self, tenant: &str) -> u64 {
        self.ahead.get(tenant).copied().unwrap_or(0).max(self.now)
    }
}

fn step(weight: u32) -> u64 {
    STEP / u64::from(weight)
}

/// One claim, shared out: ask for shares, tell what was found, until there are none.
#[derive(Debug)]
pub(crate) struct Round<'t, T> {
    turns: &'t mut Turns,
    weights: &'t TenantWeights,
    waiting: BTreeSet<String>,
    left: usize,
    taken: Vec<(u64, i64, T)>,
}

impl<T> Round<'_, T> {
    /// Who may take how much of what is left. Empty when everything is given out, or nobody waits any more.
    pub(crate) fn shares(&self) -> Vec<(String, usize)> {
        let line = self.waiting.iter().map(|tenant| Reverse((self.turns.time(tenant), tenant.as_str())));
        let mut line: BinaryHeap<_> = line.collect();
        let mut shares: BTreeMap<&str, usize> = BTreeMap::new();
        for _ in 0..self.left {
            let Some(Reverse((time, tenant))) = line.pop() else { break };
            *shares.entry(tenant).or_default() += 1;
            line.push(Reverse((time + step(self.weights.of(tenant)), tenant)));
        }
        shares.into_iter().map(|(tenant, share)| (tenant.to_owned(), share)).collect()
    }

    /// What was found of a tenant's share, by places. If it is less than the share, nothing more of the tenant waits.
    pub(crate) fn found(&mut self, tenant: &str, share: usize, found: impl IntoIterator<Item = (i64, T)>) {
        let before = self.taken.len();
        for (place, one) in found {
            let time = self.turns.step(tenant, self.weights.of(tenant));
            self.taken.push((time, place, one));
        }
        let count = self.taken.len() - before;
        self.left = self.left.saturating_sub(count);
        if count < share {
            self.waiting.remove(tenant);
        }
    }

    /// Everything that was found, in the order of turns.
    pub(crate) fn finish(mut self) -> Vec<(i64, T)> {
        self.taken.sort_by_key(|(time, place, _)| (*time, *place));
        // Only now, so that within a claim it does not matter who was asked first.
        self.turns.now = self.taken.last().map_or(self.turns.now, |(latest, ..)| self.turns.now.max(*latest));
        self.taken.into_iter().map(|(_, place, one)| (place, one)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_core::TenantId;

    /// Tenants with so many messages each, and what they get of claims of `limit`.
    fn share_out(
        turns: &mut Turns,
        weights: &TenantWeights,
        has: &mut [(&str, usize)],
        limit: usize,
    ) -> String {
        let waiting: Vec<_> =
            has.iter().filter(|(_, count)| *count > 0).map(|(name, _)| (*name).to_owned()).collect();
        let mut round = turns.round(weights, waiting, limit);
        loop {
            let shares = round.shares();
            if shares.is_empty() {
                break;
            }
            for (tenant, share) in shares {
                let (_, left) = has.iter_mut().find(|(name, _)| *name == tenant).unwrap();
                let found = share.min(*left);
                *left -= found;
                round.found(&tenant, share, (0..found).map(|place| (place as i64, tenant.clone())));
            }
        }
        round.finish().into_iter().map(|(_, tenant)| tenant).collect()
    }

    fn weights(of: &[(&str, u32)]) -> TenantWeights {
        of.iter()
            .fold(TenantWeights::default(), |all, (name, weight)| all.with(TenantId::stored(*name), *weight))
    }

    #[test]
    fn tenants_alternate_and_what_one_does_not_use_goes_to_the_other() {
        let mut turns = Turns::default();
        assert_eq!(share_out(&mut turns, &weights(&[]), &mut [("a", 100), ("b", 2)], 7), "ababaaa");
    }

    #[test]
    fn shares_are_by_weight() {
        let mut turns = Turns::default();
        let handed = share_out(&mut turns, &weights(&[("a", 3)]), &mut [("a", 100), ("b", 100)], 40);
        assert_eq!(handed.matches('a').count(), 30);
    }

    #[test]
    fn shares_hold_across_claims_of_one() {
        let mut turns = Turns::default();
        let mut has = [("a", 100), ("b", 100), ("c", 100)];
        let handed: String =
            (0..40).map(|_| share_out(&mut turns, &weights(&[("b", 2)]), &mut has, 1)).collect();
        assert_eq!([10, 20, 10], ["a", "b", "c"].map(|name| handed.matches(name).count()));
    }

    #[test]
    fn more_tenants_than_room_all_have_their_turn() {
        let mut turns = Turns::default();
        let mut has = [("a", 9), ("b", 9), ("c", 9), ("d", 9), ("e", 9)];
        let handed: String = (0..5).map(|_| share_out(&mut turns, &weights(&[]), &mut has, 2)).collect();
        assert!(["a", "b", "c", "d", "e"].iter().all(|name| handed.matches(name).count() == 2), "{handed}");
    }

    #[test]
    fn who_was_away_has_no_claim_to_what_it_missed() {
        let mut turns = Turns::default();
        let none = weights(&[]);
        share_out(&mut turns, &none, &mut [("a", 1_000)], 1_000);
        let handed = share_out(&mut turns, &none, &mut [("a", 100), ("b", 100)], 10);
        assert_eq!(handed.matches('b').count(), 5, "{handed}");
    }

    #[test]
    fn who_ran_ahead_alone_owes_nothing_to_those_who_come_later() {
        let mut turns = Turns::default();
        let none = weights(&[]);
        share_out(&mut turns, &none, &mut [("a", 1_000), ("b", 1)], 1_000);
        let handed = share_out(&mut turns, &none, &mut [("a", 100), ("b", 100)], 10);
        assert_eq!(handed.matches('a').count(), 5, "{handed}");
    }

    #[test]
    fn memory_holds_only_those_ahead_of_the_clock() {
        let mut turns = Turns::default();
        for number in 0..1_000 {
            let name = format!("tenant-{number}");
            share_out(&mut turns, &weights(&[]), &mut [(&name, 1), ("a", 1)], 2);
        }
        assert!(turns.ahead.len() < 10, "{}", turns.ahead.len());
    }
}
