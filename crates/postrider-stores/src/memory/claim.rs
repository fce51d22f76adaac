//! Claiming: selects the next messages and leases them.
//!
//! Every queue has candidates: an unordered queue its free messages, an ordered one its lanes. The candidates that have waited
//! longest win, across all queues of the request. Each candidate yields at least one message; the rest of the limit lets the first
//! lanes yield more. Where tenants take turns, candidates come in the order of turns.

use super::{
    clock::after,
    queue::Queue,
    row::{Row, StoredLease},
    tables::Tables,
};
use postrider_core::{
    ClaimRequest, ClaimedMessage, Lease, LeaseToken, OrderingKey, Pausable, QueueName, TenantWeights,
    lease::Turn,
};
use std::{collections::HashMap, time::SystemTime};

/// The most messages that a lane yields in one turn.
const MAX_TURN: usize = 16;

/// A message or a lane that may be claimed.
struct Candidate {
    since: i64,
    queue: QueueName,
    kind: CandidateKind,
}

enum CandidateKind {
    Message,
    /// The position of a message whose tenant has the turn.
    Turn(i64),
    Lane(OrderingKey),
}

impl Tables {
    pub(super) fn claim(&mut self, request: &ClaimRequest, now: SystemTime) -> Vec<ClaimedMessage> {
        if request.limit() == 0 {
            return Vec::new();
        }
        let mut candidates = Vec::new();
        for name in request.queues() {
            if self.is_paused(&Pausable::Queue(name.clone())) {
                continue;
            }
            let Some(queue) = self.queues.get_mut(name) else { continue };
            queue.promote(now, &mut self.positions);
            if queue.policy.fair_by_tenant {
                candidates.extend(queue.turns(name, request, now));
            } else {
                candidates.extend(queue.candidates(name, request.limit(), now));
            }
        }
        candidates.sort_unstable_by_key(|candidate| candidate.since);
        candidates.truncate(request.limit());

        let lease = StoredLease { token: LeaseToken::fresh(), until: after(now, request.lease_for()) };
        let mut spare = request.limit() - candidates.len();
        let mut claimed = Vec::with_capacity(candidates.len());
        for candidate in candidates {
            let Some(queue) = self.queues.get_mut(&candidate.queue) else { continue };
            match candidate.kind {
                CandidateKind::Message => claimed.extend(queue.lease_message(candidate.since, lease, now)),
                CandidateKind::Turn(position) => {
                    let turn = queue.lease_turn(position, lease, request.tenant_weights(), now);
                    claimed.extend(turn.map(|claimed| (candidate.since, claimed)));
                }
                CandidateKind::Lane(key) => {
                    let turn = queue.lease_lane(&key, MAX_TURN.min(1 + spare), lease, now);
                    spare -= turn.len().saturating_sub(1);
                    claimed.extend(turn);
                }
            }
        }
        claimed.sort_unstable_by_key(|(position, _)| *position);
        claimed.into_iter().map(|(_, claimed)| claimed).collect()
    }
}

impl Queue {
    fn candidates(&self, name: &QueueName, limit: usize, now: SystemTime) -> Vec<Candidate> {
        let candidate = |since, kind| Candidate { since, queue: name.clone(), kind };
        if self.is_ordered() {
            let lanes =
                self.lanes.runnable(now).filter(|(_, _, lane)| self.turn(lane.head()).next().is_some());
            return lanes
                .take(limit)
                .map(|(since, key, _)| candidate(since, CandidateKind::Lane(key.clone())))
                .collect();
        }
        let free = self.ready.values().filter(|row| !row.is_leased(now) && !self.locked.contains(&row.id));
        free.take(limit).map(|row| candidate(row.position, CandidateKind::Message)).collect()
    }

    /// The free messages, shared out among the tenants. The first message in turn gets the position of the oldest of them, and so
    /// on: that keeps the order of turns among the candidates of other queues.
    fn turns(&self, name: &QueueName, request: &ClaimRequest, now: SystemTime) -> Vec<Candidate> {
        let is_free = |position: &i64| {
            self.ready.get(position).is_some_and(|row| !row.is_leased(now) && !self.locked.contains(&row.id))
        };
        // This is only a plan: turns are charged for the messages that are claimed.
        let mut turns = self.turns.clone();
        let waiting = self.tenants.keys().cloned();
        let mut round = turns.round(request.tenant_weights(), waiting, request.limit());
        let mut free_by_tenant: HashMap<&str, _> = HashMap::new();
        loop {
            let shares = round.shares();
            if shares.is_empty() {
                break;
            }
            for (tenant, share) in shares {
                let Some((tenant, positions)) = self.tenants.get_key_value(&tenant) else { continue };
                let free = free_by_tenant
                    .entry(tenant.as_str())
                    .or_insert_with(|| positions.iter().filter(|position| is_free(position)));
                round.found(tenant, share, free.take(share).map(|position| (*position, ())));
            }
        }
        let turns: Vec<i64> = round.finish().into_iter().map(|(position, ())| position).collect();
        let mut since = turns.clone();
        since.sort_unstable();
        let candidate =
            |(since, position)| Candidate { since, queue: name.clone(), kind: CandidateKind::Turn(position) };
        since.into_iter().zip(turns).map(candidate).collect()
    }

    fn lease_turn(
        &mut self,
        position: i64,
        lease: StoredLease,
        weights: &TenantWeights,
        now: SystemTime,
    ) -> Option<ClaimedMessage> {
        let (_, claimed) = self.lease_message(position, lease, now)?;
        self.turns.charge(weights, [claimed.message.tenant().map_or("", |tenant| tenant.as_str())]);
        Some(claimed)
    }

    fn lease_message(
        &mut self,
        position: i64,
        lease: StoredLease,
        now: SystemTime,
    ) -> Option<(i64, ClaimedMessage)> {
        let row = self.ready.get_mut(&position)?;
        row.promoted = false;
        row.lease = Some(lease);
        row.deliveries = row.deliveries.saturating_add(1);
        Some((
            position,
            row.claimed(row.deliveries, Lease::new(row.message.queue().clone(), row.id, lease.token), now),
        ))
    }

    /// Begins a lane's turn with up to `limit` of its messages. After an expired lease the head comes alone: it may be the message
    /// that crashes workers.
    fn lease_lane(
        &mut self,
        key: &OrderingKey,
        limit: usize,
        lease: StoredLease,
        now: SystemTime,
    ) -> Vec<(i64, ClaimedMessage)> {
        let Some(lane) = self.lanes.get_mut(key) else { return Vec::new() };
        lane.lease(lease);
        let expired_leases = lane.expired_leases;
        let limit = if expired_leases > 0 { 1 } else { limit };
        let positions: Vec<_> = lane.positions.iter().copied().take(limit).collect();
        let positions: Vec<_> = self.turn(positions).map(|row| row.position).collect();
        let mut claimed = Vec::with_capacity(positions.len());
        for position in &positions {
            let Some(row) = self.ready.get_mut(position) else { continue };
            row.promoted = false;
            let turn =
                Turn { key: key.clone(), position: *position, last: Some(position) == positions.last() };
            let lease = Lease::new(row.message.queue().clone(), row.id, lease.token).in_turn(turn);
            claimed.push((*position, row.claimed(row.delivered(expired_leases), lease, now)));
        }
        claimed
    }

    /// The messages at these positions of one lane, up to the first that an open transaction has locked.
    fn turn(&self, positions: impl IntoIterator<Item = i64>) -> impl Iterator<Item = &Row> {
        let rows = positions.into_iter().filter_map(|position| self.ready.get(&position));
        rows.take_while(|row| !self.locked.contains(&row.id))
    }
}

impl Row {
    fn claimed(&self, deliveries: u32, lease: Lease, now: SystemTime) -> ClaimedMessage {
        ClaimedMessage {
            message: self.message.clone(),
            lease,
            deliveries,
            attempts: self.attempts,
            isolated: self.isolated,
            staged_at: self.staged_at,
            due_at: self.due_at,
            claimed_at: now,
            first_failed_at: self.first_failed_at,
        }
    }
}
