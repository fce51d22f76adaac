//! Tenants of a fair queue are served by weight, without caps (decision "fairness between tenants").

use super::helpers::*;
use crate::Fixture;
use postrider_core::{
    ClaimRequest, ClaimedMessage, Error, Message, MessageId, OnFailure, Outbox, QueuePolicy, TenantId,
    TenantWeights,
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};
use tokio::task::{JoinSet, yield_now};

/// More new messages than one claim reads.
const DEEP: usize = 5_000;

fn fair() -> QueuePolicy {
    QueuePolicy::default().fair_by_tenant()
}

/// Messages of a tenant with their number as payload, from 0.
fn of(tenant: &str, count: usize) -> Vec<Message> {
    let one = |number: usize| message("orders").tenant(tenant).payload(number.to_string()).build().unwrap();
    (0..count).map(one).collect()
}

/// The number of messages of each tenant.
fn counts(claimed: &[ClaimedMessage]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for each in claimed {
        *counts.entry(tenant(each).to_owned()).or_default() += 1;
    }
    counts
}

fn tenant(claimed: &ClaimedMessage) -> &str {
    claimed.message.tenant().map_or("", TenantId::as_str)
}

fn as_counts(counts: &[(&str, usize)]) -> BTreeMap<String, usize> {
    counts.iter().map(|(tenant, count)| ((*tenant).to_owned(), *count)).collect()
}

/// Tenants behind a deep backlog are in the very next claim, even if they are new.
pub async fn quiet_tenants_do_not_wait_behind_a_noisy_one<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", fair()).await;
    let store = fixture.store();
    stage(&fixture, &of("noisy", DEEP)).await;
    assert_eq!(counts(&claim(&store, "orders", 10).await), as_counts(&[("noisy", 10)]));
    for round in 0..3 {
        for quiet in ["quiet", "silent"] {
            stage(&fixture, &of(quiet, 2)).await;
        }
        let newcomer = format!("newcomer-{round}");
        stage(&fixture, &of(&newcomer, 1)).await;

        let claimed = claim(&store, "orders", 20).await;
        let expected = [("noisy", 15), ("quiet", 2), ("silent", 2), (newcomer.as_str(), 1)];
        assert_eq!(counts(&claimed), as_counts(&expected), "round {round}");
        let last = claimed.iter().rposition(|each| tenant(each) != "noisy");
        assert!(last < Some(8), "nor do they wait for the rest of their claim: {last:?}");
    }
    let newcomer = fixture.another_store().await;
    stage(&fixture, &of("quiet", 1)).await;
    let claimed = claim(&newcomer, "orders", 2).await;
    assert_eq!(
        counts(&claimed),
        as_counts(&[("noisy", 1), ("quiet", 1)]),
        "and so for a process that just started"
    );
}

/// A tenant of weight three gets three messages for one of the others, in claims of any size.
pub async fn shares_follow_the_weights<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", fair()).await;
    let store = fixture.store();
    for name in ["gold", "iron", "tin"] {
        stage(&fixture, &of(name, 200)).await;
    }
    let weights = TenantWeights::default().with(TenantId::new("gold").unwrap(), 3);
    let mut claimed = Vec::new();
    for limit in [50, 1, 1, 1, 1, 1, 7, 38, 100] {
        let request = ClaimRequest::new(queue("orders"), limit).with_tenant_weights(weights.clone());
        claimed.extend(store.claim(&request).await.unwrap());
    }
    assert_eq!(counts(&claimed), as_counts(&[("gold", 120), ("iron", 40), ("tin", 40)]));
}

/// There are no caps: a tenant without competitors gets every claim.
pub async fn a_lone_tenant_gets_everything<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", fair()).await;
    let staged = stage(&fixture, &of("noisy", 2_500)).await;
    let store = fixture.store();
    let mut claimed = Vec::new();
    for limit in [1_000, 1_000, 500] {
        let some = claim(&store, "orders", limit).await;
        assert_eq!(some.len(), limit, "a full claim");
        claimed.extend(ids(&some));
    }
    assert_eq!(claimed, staged, "in the order staged");
    assert_nothing_due(&store, "orders").await;
}

/// The unused share of a tenant goes to the others.
pub async fn unused_shares_go_to_the_others<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", fair()).await;
    for (name, count) in [("a", 100), ("b", 2), ("c", 100), ("d", 12)] {
        stage(&fixture, &of(name, count)).await;
    }
    let claimed = claim(&fixture.store(), "orders", 100).await;
    assert_eq!(counts(&claimed), as_counts(&[("a", 43), ("b", 2), ("c", 43), ("d", 12)]));
}

/// Messages without a tenant count as one tenant.
pub async fn messages_without_a_tenant_count_as_one_tenant<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", fair()).await;
    stage(&fixture, &numbered("orders", 100)).await;
    stage(&fixture, &of("a", 100)).await;
    let claimed = claim(&fixture.store(), "orders", 20).await;
    assert_eq!(counts(&claimed), as_counts(&[("", 10), ("a", 10)]));
}

/// If a claim is too small for all tenants, the next claims serve the others.
pub async fn more_tenants_than_the_claim_limit_are_all_served<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", fair()).await;
    let store = fixture.store();
    for number in 0..40 {
        stage(&fixture, &of(&format!("tenant-{number}"), 3)).await;
    }
    for _ in 0..3 {
        let mut seen = HashSet::new();
        for _ in 0..4 {
            let claimed = claim(&store, "orders", 10).await;
            seen.extend(claimed.iter().map(|each| tenant(each).to_owned()));
            done(&store, &claimed).await;
        }
        assert_eq!(seen.len(), 40, "each tenant once in forty turns");
    }
    assert_empty(&fixture, "orders").await;
}

/// A tenant with any name is found behind a backlog and by itself.
pub async fn tenants_with_unusual_names_are_served<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", fair()).await;
    let store = fixture.store();
    stage(&fixture, &of("noisy", DEEP)).await;
    let longest = "\u{10FFFF}".repeat(63);
    let names = [
        "NULL",
        "null",
        "a,b",
        "{x}",
        "\"quoted\"",
        "it's",
        "back\\slash",
        " ",
        "  ",
        "a",
        "A",
        "ä",
        "Ä",
        "😀",
        "%s",
        "?1",
        "$1",
        &longest,
    ];
    for _ in 0..2 {
        for name in names {
            stage(&fixture, &of(name, 1)).await;
        }
        let claimed = claim(&store, "orders", names.len() + 1).await;
        let seen: HashSet<_> = claimed.iter().map(tenant).collect();
        assert_eq!(seen, names.into_iter().chain(["noisy"]).collect());
        done(&store, &claimed).await;
    }
}

/// Messages of a tenant are claimed in staging order, and a claim alternates between tenants.
pub async fn a_claim_alternates_tenants_and_keeps_staging_order_within_each<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", fair()).await;
    for name in ["a", "b", "c"] {
        stage(&fixture, &of(name, 10)).await;
    }
    let claimed = claim(&fixture.store(), "orders", 30).await;
    for turn in claimed.chunks(3) {
        assert_eq!(turn.iter().map(tenant).collect::<HashSet<_>>().len(), 3, "each has a turn");
    }
    for name in ["a", "b", "c"] {
        let own: Vec<_> = claimed.iter().filter(|each| tenant(each) == name).cloned().collect();
        assert_eq!(payloads(&own), (0..10).map(|number| number.to_string()).collect::<Vec<_>>());
    }
}

/// Returned and due messages are found and shared fairly: releases, retries, expired leases, timers, requeued dead letters.
pub async fn returned_and_due_messages_are_shared_fairly<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", fair()).await;
    let store = fixture.store();
    stage(&fixture, &of("noisy", DEEP)).await;
    let staged = stage(&fixture, &of("quiet", 5)).await;
    let timers = [
        stage_one(&fixture, message("orders").tenant("quiet").due_after(minutes(1))).await,
        stage_one(&fixture, message("orders").tenant("punctual").timer("bell").due_after(minutes(1))).await,
    ];
    let quiet = async || {
        let claimed = claim(&store, "orders", 20).await;
        let (own, noisy): (Vec<_>, Vec<_>) = claimed.into_iter().partition(|each| tenant(each) != "noisy");
        done(&store, &noisy).await;
        own
    };
    let first = quiet().await;
    assert_eq!(ids(&first), staged);
    settle(
        &store,
        &[
            first[0].lease.done(),
            first[1].lease.release(),
            first[2].lease.retry(minutes(1), "later"),
            first[3].lease.dead(postrider_core::Reason::Rejected, "refused"),
        ],
    )
    .await;
    // Released messages are found by a periodic scan, at no fixed time; everything else continues meanwhile.
    let mut released = quiet().await;
    while released.is_empty() {
        released = quiet().await;
    }
    assert_eq!(ids(&released), [staged[1]]);
    done(&store, &released).await;

    fixture.operate().requeue(&queue("orders"), &[staged[3]], &operator()).await.unwrap();
    let requeued = quiet().await;
    assert_eq!(ids(&requeued), [staged[3]]);
    done(&store, &requeued).await;

    expire_leases(&fixture).await;
    let mut back = BTreeMap::new();
    while back.len() < 4 {
        back.extend(quiet().await.into_iter().map(|each| (each.id(), each)));
    }
    assert_eq!(
        back.keys().copied().collect::<Vec<_>>(),
        sorted([staged[2], staged[4], timers[0], timers[1]])
    );
    assert_eq!((back[&staged[4]].deliveries, back[&staged[2]].attempts), (2, 1));
    done(&store, &back.into_values().collect::<Vec<_>>()).await;
    drain(&store, "orders").await;
    assert_empty(&fixture, "orders").await;
}

/// Four claimers of six tenants, which settle in every way and sometimes crash: every message is settled once.
pub async fn many_claimers_lose_and_duplicate_nothing<F: Fixture>(fixture: F) {
    const MESSAGES: usize = 1_800;
    declare(&fixture, "orders", fair()).await;
    let mut staged = stage(&fixture, &of("noisy", MESSAGES - 500)).await;
    for name in ["a", "b", "c", "d"] {
        staged.extend(stage(&fixture, &of(name, 100)).await);
    }
    staged.extend(stage(&fixture, &numbered("orders", 100)).await);
    let (ended, forgotten) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut claimers = JoinSet::new();
    for number in 0..4 {
        let store = fixture.another_store().await;
        let (ended, forgotten) = (Arc::clone(&ended), Arc::clone(&forgotten));
        let mut rng = StdRng::seed_from_u64(number);
        claimers.spawn(async move {
            let mut mine = Vec::new();
            // Until only dropped claims are left.
            while ended.load(SeqCst) + forgotten.load(SeqCst) < MESSAGES {
                let claimed = claim(&store, "orders", rng.random_range(1..60)).await;
                let mut settlements = Vec::new();
                for each in &claimed {
                    settlements.push(match rng.random_range(0..100) {
                        0..20 => each.lease.release(),
                        20..40 => each.lease.retry(Duration::ZERO, "again"),
                        40..43 => {
                            forgotten.fetch_add(1, SeqCst);
                            continue;
                        }
                        _ => {
                            mine.push(each.id());
                            ended.fetch_add(1, SeqCst);
                            each.lease.done()
                        }
                    });
                }
                settle(&store, &settlements).await;
                yield_now().await;
            }
            mine
        });
    }
    let mut handled = claimers.join_all().await.concat();
    assert!(forgotten.load(SeqCst) > 0);
    expire_leases(&fixture).await;
    let store = fixture.another_store().await;
    handled.extend(drain(&store, "orders").await);

    assert_eq!(sorted(handled), sorted(staged), "everything once");
    assert_empty(&fixture, "orders").await;
}

/// A tenant's message that is staged first and commits last is found, although claims have passed its position.
pub async fn a_late_commit_of_a_tenant_is_not_missed<F: Fixture>(fixture: F) {
    if !fixture.features().concurrent_transactions {
        return;
    }
    declare(&fixture, "orders", fair()).await;
    let store = fixture.store();
    let mut late: Vec<(F::Tx, Vec<MessageId>)> = Vec::new();
    for name in ["a", "b", "never seen before"] {
        let mut tx = fixture.begin().await;
        let staged = fixture.outbox().stage_all(&mut tx, &of(name, 2)).await.unwrap();
        late.push((tx, staged.outcomes().iter().map(|(id, _)| *id).collect()));
    }
    for _ in 0..3 {
        let mut staged = stage(&fixture, &of("a", 20)).await;
        staged.extend(stage(&fixture, &of("b", 20)).await);
        assert_eq!(sorted(drain(&store, "orders").await), sorted(staged));
    }
    stage(&fixture, &of("noisy", DEEP)).await;
    while let Some((tx, staged)) = late.pop() {
        fixture.commit(tx).await;
        let mut found = Vec::new();
        // Late commits are found by a periodic scan; everything else continues meanwhile.
        while found.len() < staged.len() {
            let claimed = claim(&store, "orders", 20).await;
            done(&store, &claimed).await;
            found.extend(claimed.iter().filter(|each| tenant(each) != "noisy").map(ClaimedMessage::id));
        }
        assert_eq!(found, staged);
    }
    drain(&store, "orders").await;
    assert_empty(&fixture, "orders").await;
}

/// Fairness can be declared on a queue with messages: it applies to pending, leased and scheduled ones.
pub async fn fairness_can_be_declared_on_a_queue_that_holds_messages<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let mut staged = stage(&fixture, &of("noisy", DEEP)).await;
    staged.extend(stage(&fixture, &of("quiet", 3)).await);
    staged.push(stage_one(&fixture, message("orders").tenant("punctual").due_after(minutes(1))).await);
    let in_flight = claim(&store, "orders", 10).await;
    declare(&fixture, "orders", fair()).await;
    staged.extend(stage(&fixture, &of("new", 3)).await);

    let claimed = claim(&store, "orders", 9).await;
    let found = counts(&claimed);
    assert_eq!((found.get("noisy"), found.get("new")), (Some(&3), Some(&3)), "{found:?}");
    assert_eq!(found.get("quiet"), Some(&3), "{found:?}");
    settle(&store, &in_flight.iter().map(|each| each.lease.release()).collect::<Vec<_>>()).await;
    done(&store, &claimed).await;
    fixture.advance(minutes(2)).await;
    let mut handled = ids(&claimed);
    handled.extend(drain(&store, "orders").await);
    assert_eq!(sorted(handled), sorted(staged));
    assert_empty(&fixture, "orders").await;
}

/// Fairness can be revoked and declared again while the queue has messages.
pub async fn fairness_can_be_revoked<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", fair()).await;
    let store = fixture.store();
    let mut staged = stage(&fixture, &of("noisy", 50)).await;
    staged.extend(stage(&fixture, &of("quiet", 5)).await);
    let in_flight = claim(&store, "orders", 10).await;
    assert_eq!(counts(&in_flight), as_counts(&[("noisy", 5), ("quiet", 5)]));
    declare(&fixture, "orders", QueuePolicy::default()).await;
    staged.extend(stage(&fixture, &of("plain", 5)).await);
    let oldest_first = claim(&store, "orders", 10).await;
    assert_eq!(ids(&oldest_first), staged[5..15]);
    declare(&fixture, "orders", fair()).await;
    expire_leases(&fixture).await;
    staged.extend(stage(&fixture, &of("new", 1)).await);
    assert_eq!(sorted(drain(&store, "orders").await), sorted(staged));
    assert_empty(&fixture, "orders").await;
}

/// Queues of every kind can be claimed together.
pub async fn fair_and_other_queues_are_claimed_together<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", fair()).await;
    declare(&fixture, "keyed", QueuePolicy::by_key(OnFailure::Block)).await;
    let mut staged = stage(&fixture, &of("a", 4)).await;
    staged.extend(stage(&fixture, &of("b", 4)).await);
    staged.extend(stage(&fixture, &numbered("plain", 4)).await);
    staged.extend(stage(&fixture, &numbered_of("keyed", "key", 4)).await);
    let store = fixture.store();
    let mut handled = Vec::new();
    loop {
        let request = ClaimRequest::of([queue("orders"), queue("keyed"), queue("plain")], 6);
        let claimed = store.claim(&request).await.unwrap();
        if claimed.is_empty() {
            break;
        }
        assert!(claimed.len() <= 6);
        done(&store, &claimed).await;
        handled.extend(ids(&claimed));
    }
    assert_eq!(sorted(handled), sorted(staged));
}

/// Fairness cannot be combined with ordering by key, and a weight of 0 is invalid; the errors say so.
pub async fn invalid_fairness_settings_are_rejected<F: Fixture>(fixture: F) {
    let both = QueuePolicy::by_key(OnFailure::Skip).fair_by_tenant();
    let Err(Error::Invalid(refused)) = fixture.schema().declare(&queue("orders"), &both).await else {
        panic!("it must be refused")
    };
    assert!(
        refused.to_string().contains("fair_by_tenant: cannot be combined with ordering by key"),
        "{refused}"
    );

    let weights = TenantWeights::default().with(TenantId::new("acme").unwrap(), 0);
    let request = ClaimRequest::new(queue("orders"), 1).with_tenant_weights(weights);
    let Err(Error::Invalid(refused)) = fixture.store().claim(&request).await else {
        panic!("it must be refused")
    };
    assert!(refused.to_string().contains("tenant_weight: is 0 for tenant acme"), "{refused}");
}
