//! Claiming: who goes next, and under what lease.
//!
//! Every queue offers what could run: an unordered one its free messages, an ordered one its lanes. The offers that have
//! waited longest win, whichever queue they are in; each is good for at least one message, and what is left of the limit lets
//! the first lanes hand out more of their messages. Where tenants take turns, offers come in the order of turns.

use super::{
    clock::after,
    queue::Queue,
    rooms::Rooms,
    row::{Held, Row},
};
use postrider_core::{
    ClaimRequest, Claimed, Lease, LeaseToken, OrderingKey, Pausable, QueueName, TenantWeights, lease::Turn,
};
use std::{collections::HashMap, time::SystemTime};

/// How many messages a lane hands out in one turn, at the most.
const TURN: usize = 16;

/// Something of a queue that could run.
struct Offer {
    since: i64,
    queue: QueueName,
    what: What,
}

enum What {
    Message,
    /// A message whose tenant has a turn, by its place.
    Turn(i64),
    Lane(OrderingKey),
}

impl Rooms {
    pub(super) fn claim(&mut self, request: &ClaimRequest, now: SystemTime) -> Vec<Claimed> {
        if request.limit() == 0 {
            return Vec::new();
        }
        let mut offers = Vec::new();
        for name in request.queues() {
            if self.is_paused(&Pausable::Queue(name.clone())) {
                continue;
            }
            let Some(queue) = self.queues.get_mut(name) else { continue };
            queue.promote(now, &mut self.line);
            if queue.policy.fair_by_tenant {
                offers.extend(queue.turns(name, request, now));
            } else {
                offers.extend(queue.offers(name, request.limit(), now));
            }
        }
        offers.sort_unstable_by_key(|offer| offer.since);
        offers.truncate(request.limit());

        let held = Held { token: LeaseToken::fresh(), until: after(now, request.lease_for()) };
        let mut spare = request.limit() - offers.len();
        let mut claimed = Vec::with_capacity(offers.len());
        for offer in offers {
            let Some(queue) = self.queues.get_mut(&offer.queue) else { continue };
            match offer.what {
                What::Message => claimed.extend(queue.lease_message(offer.since, held)),
                What::Turn(place) => {
                    let turn = queue.lease_turn(place, held, request.tenant_weights());
                    claimed.extend(turn.map(|claimed| (offer.since, claimed)));
                }
                What::Lane(key) => {
                    let turn = queue.lease_lane(&key, TURN.min(1 + spare), held);
                    spare -= turn.len().saturating_sub(1);
                    claimed.extend(turn);
                }
            }
        }
        claimed.sort_unstable_by_key(|(place, _)| *place);
        claimed.into_iter().map(|(_, claimed)| claimed).collect()
    }
}

impl Queue {
    fn offers(&self, name: &QueueName, limit: usize, now: SystemTime) -> Vec<Offer> {
        let offer = |since, what| Offer { since, queue: name.clone(), what };
        if self.is_ordered() {
            let lanes =
                self.lanes.runnable(now).filter(|(_, _, lane)| self.turn(lane.head()).next().is_some());
            return lanes.take(limit).map(|(since, key, _)| offer(since, What::Lane(key.clone()))).collect();
        }
        let free = self.ready.values().filter(|row| !row.is_held(now) && !self.locked.contains(&row.id));
        free.take(limit).map(|row| offer(row.place, What::Message)).collect()
    }

    /// What is free, shared out among the tenants. The first in turn stands where the oldest of them does, and so on: that
    /// keeps the order of turns among the offers of other queues.
    fn turns(&self, name: &QueueName, request: &ClaimRequest, now: SystemTime) -> Vec<Offer> {
        let is_free = |place: &i64| {
            self.ready.get(place).is_some_and(|row| !row.is_held(now) && !self.locked.contains(&row.id))
        };
        // Only a plan: what of it is claimed is counted then.
        let mut turns = self.turns.clone();
        let waiting = self.tenants.keys().cloned();
        let mut round = turns.round(request.tenant_weights(), waiting, request.limit());
        let mut lines: HashMap<&str, _> = HashMap::new();
        loop {
            let shares = round.shares();
            if shares.is_empty() {
                break;
            }
            for (tenant, share) in shares {
                let Some((tenant, places)) = self.tenants.get_key_value(&tenant) else { continue };
                let line = lines
                    .entry(tenant.as_str())
                    .or_insert_with(|| places.iter().filter(|place| is_free(place)));
                round.found(tenant, share, line.take(share).map(|place| (*place, ())));
            }
        }
        let turns: Vec<i64> = round.finish().into_iter().map(|(place, ())| place).collect();
        let mut since = turns.clone();
        since.sort_unstable();
        let offer = |(since, place)| Offer { since, queue: name.clone(), what: What::Turn(place) };
        since.into_iter().zip(turns).map(offer).collect()
    }

    fn lease_turn(&mut self, place: i64, held: Held, weights: &TenantWeights) -> Option<Claimed> {
        let (_, claimed) = self.lease_message(place, held)?;
        self.turns.charge(weights, [claimed.message.tenant().map_or("", |tenant| tenant.as_str())]);
        Some(claimed)
    }

    fn lease_message(&mut self, place: i64, held: Held) -> Option<(i64, Claimed)> {
        let row = self.ready.get_mut(&place)?;
        row.ripe = false;
        row.held = Some(held);
        row.deliveries = row.deliveries.saturating_add(1);
        Some((
            place,
            row.claimed(row.deliveries, Lease::new(row.message.queue().clone(), row.id, held.token)),
        ))
    }

    /// Begins a lane's turn with up to `limit` of its messages. After a lapse its head comes alone: it may be what kills
    /// workers.
    fn lease_lane(&mut self, key: &OrderingKey, limit: usize, held: Held) -> Vec<(i64, Claimed)> {
        let Some(lane) = self.lanes.get_mut(key) else { return Vec::new() };
        lane.lease(held);
        let lapses = lane.lapses;
        let limit = if lapses > 0 { 1 } else { limit };
        let places: Vec<_> = lane.places.iter().copied().take(limit).collect();
        let places: Vec<_> = self.turn(places).map(|row| row.place).collect();
        let mut claimed = Vec::with_capacity(places.len());
        for place in &places {
            let Some(row) = self.ready.get_mut(place) else { continue };
            row.ripe = false;
            let turn = Turn { key: key.clone(), place: *place, last: Some(place) == places.last() };
            let lease = Lease::new(row.message.queue().clone(), row.id, held.token).in_turn(turn);
            claimed.push((*place, row.claimed(row.delivered(lapses), lease)));
        }
        claimed
    }

    /// The messages at these places of one lane, up to the first that an open transaction has locked.
    fn turn(&self, places: impl IntoIterator<Item = i64>) -> impl Iterator<Item = &Row> {
        let rows = places.into_iter().filter_map(|place| self.ready.get(&place));
        rows.take_while(|row| !self.locked.contains(&row.id))
    }
}

impl Row {
    fn claimed(&self, deliveries: u32, lease: Lease) -> Claimed {
        Claimed {
            message: self.message.clone(),
            lease,
            deliveries,
            attempts: self.attempts,
            staged_at: self.staged_at,
            due_at: self.due_at,
        }
    }
}
