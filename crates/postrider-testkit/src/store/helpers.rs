//! Helpers of the store suite.

use crate::Fixture;
use postrider_core::{
    Backend, ClaimRequest, ClaimedMessage, IntoMessage, Lease, LeaseSettlement, Message, MessageBuilder,
    MessageId, OrderingKey, Outbox, QueueName, QueuePolicy, StageOutcome, StageReport, State, TimerName,
    inspect::{Action, ListRequest, MessageRow, StateFilter},
};
use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, SystemTime},
};

/// A worker's handle of a store.
pub(crate) type Handle = Arc<dyn Backend>;

/// The duration of every lease. Far longer than any test may run, so that only [`expire_leases`] ends one.
pub(crate) const LEASE: Duration = minutes(10);

pub(crate) const fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

pub(crate) fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

pub(crate) fn key(name: &str) -> OrderingKey {
    OrderingKey::new(name).unwrap()
}

pub(crate) fn timer(name: &str) -> TimerName {
    TimerName::new(name).unwrap()
}

pub(crate) fn fresh_id() -> MessageId {
    MessageId::at(SystemTime::now())
}

/// A small message for `queue`.
pub(crate) fn message(queue: &str) -> MessageBuilder {
    Message::builder(queue).payload("{}")
}

/// Messages for `queue` with their number as payload, from 0.
pub(crate) fn numbered(queue: &str, count: usize) -> Vec<Message> {
    (0..count).map(|number| message(queue).payload(number.to_string()).build().unwrap()).collect()
}

/// Messages for `queue` and `key` with their number as payload, from 0.
pub(crate) fn numbered_of(queue: &str, key: &str, count: usize) -> Vec<Message> {
    (0..count).map(|number| message(queue).key(key).payload(number.to_string()).build().unwrap()).collect()
}

/// Stages in one transaction and commits it.
pub(crate) async fn stage_all<F: Fixture>(fixture: &F, messages: &[Message]) -> StageReport {
    let mut tx = fixture.begin().await;
    let staged = fixture.outbox().stage_all(&mut tx, messages).await.unwrap();
    fixture.commit(tx).await;
    staged
}

/// Stages messages, all of them new, and commits.
pub(crate) async fn stage<F: Fixture>(fixture: &F, messages: &[Message]) -> Vec<MessageId> {
    let staged = stage_all(fixture, messages).await;
    assert_eq!(staged.outcomes().len(), messages.len(), "one fate for each message");
    assert!(staged.outcomes().iter().all(|(_, fate)| *fate == StageOutcome::New), "all are new: {staged:?}");
    staged.outcomes().iter().map(|(id, _)| *id).collect()
}

/// Stages one message, which is new, and commits.
pub(crate) async fn stage_one<F: Fixture>(fixture: &F, message: impl IntoMessage) -> MessageId {
    stage(fixture, &[message.into_message().unwrap()]).await[0]
}

/// Stages one message, commits, and returns the outcome.
pub(crate) async fn stage_again<F: Fixture>(
    fixture: &F,
    message: impl IntoMessage,
) -> (MessageId, StageOutcome) {
    let staged = stage_all(fixture, &[message.into_message().unwrap()]).await;
    assert_eq!(staged.outcomes().len(), 1);
    staged.outcomes()[0]
}

/// Declares the policy of a queue.
pub(crate) async fn declare<F: Fixture>(fixture: &F, name: &str, policy: QueuePolicy) {
    fixture.schema().declare(&queue(name), &policy).await.unwrap();
}

/// Lets every lease expire.
pub(crate) async fn expire_leases<F: Fixture>(fixture: &F) {
    fixture.advance(LEASE + minutes(1)).await;
}

/// Claims once.
pub(crate) async fn claim(store: &Handle, name: &str, limit: usize) -> Vec<ClaimedMessage> {
    let request = ClaimRequest::new(queue(name), limit).with_lease_for(LEASE);
    let claimed = store.claim(&request).await.unwrap();
    assert!(claimed.len() <= limit, "a claim of up to {limit} answered with {}", claimed.len());
    claimed
}

/// Claims until nothing is due.
pub(crate) async fn claim_all(store: &Handle, name: &str) -> Vec<ClaimedMessage> {
    let mut all = Vec::new();
    loop {
        let claimed = claim(store, name, 1000).await;
        if claimed.is_empty() {
            return all;
        }
        all.extend(claimed);
    }
}

/// Claims the only message that is due.
pub(crate) async fn claim_one(store: &Handle, name: &str) -> ClaimedMessage {
    let mut all = claim_all(store, name).await;
    assert_eq!(all.len(), 1, "exactly one message of {name:?} is due");
    all.remove(0)
}

/// Asserts that nothing is due.
pub(crate) async fn assert_nothing_due(store: &Handle, name: &str) {
    let claimed = claim(store, name, 1000).await;
    assert_eq!(ids(&claimed), [], "nothing of {name:?} is due");
}

/// Settles, and asserts that no lease is lost.
pub(crate) async fn settle(store: &Handle, settlements: &[LeaseSettlement]) {
    assert_eq!(store.settle(settlements).await.unwrap(), [], "nothing is lost");
}

/// Settles claims as done, and asserts that no lease is lost.
pub(crate) async fn done(store: &Handle, claimed: &[ClaimedMessage]) {
    let settlements: Vec<_> = claimed.iter().map(|each| each.lease.done()).collect();
    settle(store, &settlements).await;
}

/// Claims and settles as done until nothing is due, and returns all ids in the order claimed.
pub(crate) async fn drain(store: &Handle, name: &str) -> Vec<MessageId> {
    let mut all = Vec::new();
    loop {
        let claimed = claim(store, name, 1000).await;
        if claimed.is_empty() {
            return all;
        }
        done(store, &claimed).await;
        all.extend(ids(&claimed));
    }
}

/// Claims the only message that is due and dead-letters it.
pub(crate) async fn dead_letter_one(store: &Handle, name: &str) -> MessageId {
    let claimed = claim_one(store, name).await;
    settle(store, &[claimed.lease.dead(postrider_core::Reason::Rejected, "refused")]).await;
    claimed.id()
}

pub(crate) fn ids(claimed: &[ClaimedMessage]) -> Vec<MessageId> {
    claimed.iter().map(ClaimedMessage::id).collect()
}

pub(crate) fn ids_of(entries: &[MessageRow]) -> Vec<MessageId> {
    entries.iter().map(|entry| entry.message.id().expect("a stored message has an id")).collect()
}

/// The ids in a fixed order, for comparisons that ignore order.
pub(crate) fn sorted(ids: impl IntoIterator<Item = MessageId>) -> Vec<MessageId> {
    let mut ids: Vec<_> = ids.into_iter().collect();
    ids.sort_unstable();
    ids
}

/// The payload of each message, as text.
pub(crate) fn payloads(claimed: &[ClaimedMessage]) -> Vec<String> {
    claimed.iter().map(|each| String::from_utf8(each.message.payload().to_vec()).unwrap()).collect()
}

pub(crate) fn leases(claimed: &[ClaimedMessage]) -> Vec<Lease> {
    claimed.iter().map(|each| each.lease.clone()).collect()
}

/// Asserts that exactly these leases were reported as lost, in any order.
pub(crate) fn assert_lost<'a>(lost: &[Lease], expected: impl IntoIterator<Item = &'a Lease>) {
    let (reported, lost) = (lost.len(), lost.iter().collect::<HashSet<_>>());
    assert_eq!(reported, lost.len(), "a lost lease is reported once");
    assert_eq!(lost, expected.into_iter().collect(), "exactly the expected leases are lost");
}

/// Every message in a state, page by page.
pub(crate) async fn list<F: Fixture>(fixture: &F, name: &str, filter: StateFilter) -> Vec<MessageRow> {
    pages(fixture, ListRequest::new(queue(name), filter).with_limit(1000)).await.concat()
}

/// Every page of a listing; none is longer than the limit.
pub(crate) async fn pages<F: Fixture>(fixture: &F, mut request: ListRequest) -> Vec<Vec<MessageRow>> {
    let mut pages = Vec::new();
    loop {
        let page = fixture.inspect().list(&request).await.unwrap();
        assert!(page.entries.len() <= request.limit, "a page is not longer than its limit");
        pages.push(page.entries);
        assert!(pages.len() < 1000, "paging comes to an end");
        match page.next {
            Some(cursor) => request = request.after(Some(cursor)),
            None => return pages,
        }
    }
}

/// A message, in whatever state it is.
pub(crate) async fn get<F: Fixture>(fixture: &F, name: &str, id: MessageId) -> Option<MessageRow> {
    fixture.inspect().get(&queue(name), id).await.unwrap()
}

/// A message that exists in this state.
pub(crate) async fn entry_in<F: Fixture>(fixture: &F, name: &str, id: MessageId, state: State) -> MessageRow {
    let entry = get(fixture, name, id).await.unwrap_or_else(|| panic!("{id} is not in {name:?}"));
    assert_eq!(entry.state, state, "the state of {id}");
    entry
}

/// Asserts that no state has a message of the queue.
pub(crate) async fn assert_empty<F: Fixture>(fixture: &F, name: &str) {
    for filter in [StateFilter::Ready, StateFilter::Scheduled, StateFilter::Dead, StateFilter::Done] {
        assert_eq!(ids_of(&list(fixture, name, filter).await), [], "{name:?} holds nothing in {filter:?}");
    }
}

/// An operator with a reason.
pub(crate) fn operator() -> Action {
    Action::new("ada", "ticket 17")
}
