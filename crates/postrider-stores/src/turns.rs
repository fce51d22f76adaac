//! The order in which the tenants of a fair queue take turns: weighted fair queueing.
//!
//! Each tenant has a *virtual time*, which every claimed message advances by one step divided by the tenant's weight; the tenant
//! that is furthest behind goes next. The common clock is the time at which the last message was claimed: a tenant that was absent
//! returns at that time, without credit for what it missed, and one that ran ahead while it was alone keeps its debt. So shares
//! hold across claims of any size, also when there are more tenants than a claim has messages, and no tenant is capped.
//!
//! This memory belongs to one process, and is a hint: without it the next claim is shared out afresh.

use postrider_core::TenantWeights;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap},
};

/// The least number of due messages that move to `ready` at a time, whatever the limit of a claim: tenants take turns only among
/// messages that are there.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) const COME_DUE: usize = 1_000;

/// The step of a tenant of weight 1.
const STEP: u64 = 1 << 24;

/// The virtual times of the tenants, by name; messages without a tenant have the empty name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Turns {
    now: u64,
    /// Only tenants that are ahead of the clock.
    ahead: HashMap<String, u64>,
}

impl Turns {
    /// Starts to share out up to `limit` messages among the tenants in `waiting`.
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

    /// Charges claimed messages, one for each of these tenants.
    #[cfg(any(feature = "memory", feature = "sqlite"))]
    pub(crate) fn charge<'a>(&mut self, weights: &TenantWeights, tenants: impl IntoIterator<Item = &'a str>) {
        let times = tenants.into_iter().map(|tenant| self.step(tenant, weights.of(tenant)));
        self.now = times.max().map_or(self.now, |latest| latest.max(self.now));
    }

    /// Advances a tenant by one message, and returns the time at which the message was claimed.
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

/// One claim, shared out: call [`shares`](Self::shares) and [`found`](Self::found) until there are no shares.
#[derive(Debug)]
pub(crate) struct Round<'t, T> {
    turns: &'t mut Turns,
    weights: &'t TenantWeights,
    waiting: BTreeSet<String>,
    left: usize,
    taken: Vec<(u64, i64, T)>,
}

impl<T> Round<'_, T> {
    /// The share of each tenant in the rest of the limit. Empty when the limit is used up, or no tenant waits.
    pub(crate) fn shares(&self) -> Vec<(String, usize)> {
        let heap = self.waiting.iter().map(|tenant| Reverse((self.turns.time(tenant), tenant.as_str())));
        let mut heap: BinaryHeap<_> = heap.collect();
        let mut shares: BTreeMap<&str, usize> = BTreeMap::new();
        for _ in 0..self.left {
            let Some(Reverse((time, tenant))) = heap.pop() else { break };
            *shares.entry(tenant).or_default() += 1;
            heap.push(Reverse((time + step(self.weights.of(tenant)), tenant)));
        }
        shares.into_iter().map(|(tenant, share)| (tenant.to_owned(), share)).collect()
    }

    /// Adds the messages of a tenant that were found, by position. Fewer than the share means that the tenant has no more.
    pub(crate) fn found(&mut self, tenant: &str, share: usize, found: impl IntoIterator<Item = (i64, T)>) {
        let before = self.taken.len();
        for (position, one) in found {
            let time = self.turns.step(tenant, self.weights.of(tenant));
            self.taken.push((time, position, one));
        }
        let count = self.taken.len() - before;
        self.left = self.left.saturating_sub(count);
        if count < share {
            self.waiting.remove(tenant);
        }
    }

    /// All messages found, in the order of turns.
    pub(crate) fn finish(mut self) -> Vec<(i64, T)> {
        self.taken.sort_by_key(|(time, position, _)| (*time, *position));
        // Only now, so that within a claim the order of the tenants does not matter.
        self.turns.now = self.taken.last().map_or(self.turns.now, |(latest, ..)| self.turns.now.max(*latest));
        self.taken.into_iter().map(|(_, position, one)| (position, one)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_core::TenantId;

    /// The tenants of the messages of one claim of `limit`, in order; `has` is each tenant's backlog.
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
                round.found(&tenant, share, (0..found).map(|position| (position as i64, tenant.clone())));
            }
        }
        round.finish().into_iter().map(|(_, tenant)| tenant).collect()
    }

    fn weights(of: &[(&str, u32)]) -> TenantWeights {
        of.iter()
            .fold(TenantWeights::default(), |all, (name, weight)| all.with(TenantId::stored(*name), *weight))
    }

    #[test]
    fn tenants_alternate_and_unused_share_goes_to_others() {
        let mut turns = Turns::default();
        assert_eq!(share_out(&mut turns, &weights(&[]), &mut [("a", 100), ("b", 2)], 7), "ababaaa");
    }

    #[test]
    fn shares_follow_weights() {
        let mut turns = Turns::default();
        let claimed = share_out(&mut turns, &weights(&[("a", 3)]), &mut [("a", 100), ("b", 100)], 40);
        assert_eq!(claimed.matches('a').count(), 30);
    }

    #[test]
    fn shares_hold_across_claims_of_one() {
        let mut turns = Turns::default();
        let mut has = [("a", 100), ("b", 100), ("c", 100)];
        let claimed: String =
            (0..40).map(|_| share_out(&mut turns, &weights(&[("b", 2)]), &mut has, 1)).collect();
        assert_eq!([10, 20, 10], ["a", "b", "c"].map(|name| claimed.matches(name).count()));
    }

    #[test]
    fn all_tenants_get_a_turn_when_limit_is_smaller_than_tenant_count() {
        let mut turns = Turns::default();
        let mut has = [("a", 9), ("b", 9), ("c", 9), ("d", 9), ("e", 9)];
        let claimed: String = (0..5).map(|_| share_out(&mut turns, &weights(&[]), &mut has, 2)).collect();
        assert!(["a", "b", "c", "d", "e"].iter().all(|name| claimed.matches(name).count() == 2), "{claimed}");
    }

    #[test]
    fn returning_tenant_gets_no_credit_for_absence() {
        let mut turns = Turns::default();
        let none = weights(&[]);
        share_out(&mut turns, &none, &mut [("a", 1_000)], 1_000);
        let claimed = share_out(&mut turns, &none, &mut [("a", 100), ("b", 100)], 10);
        assert_eq!(claimed.matches('b').count(), 5, "{claimed}");
    }

    #[test]
    fn tenant_that_ran_alone_has_no_debt_to_later_tenants() {
        let mut turns = Turns::default();
        let none = weights(&[]);
        share_out(&mut turns, &none, &mut [("a", 1_000), ("b", 1)], 1_000);
        let claimed = share_out(&mut turns, &none, &mut [("a", 100), ("b", 100)], 10);
        assert_eq!(claimed.matches('a').count(), 5, "{claimed}");
    }

    #[test]
    fn memory_holds_only_tenants_ahead_of_clock() {
        let mut turns = Turns::default();
        for number in 0..1_000 {
            let name = format!("tenant-{number}");
            share_out(&mut turns, &weights(&[]), &mut [(&name, 1), ("a", 1)], 2);
        }
        assert!(turns.ahead.len() < 10, "{}", turns.ahead.len());
    }
}
