//! Finding messages, their position, admissions and audit; timers; and replay of archived messages.

use super::helpers::*;
use crate::Fixture;
use postrider_core::{
    Arrival, ConsumerName, Error, EventType, Inbox, MessageId, OnFailure, QueuePolicy, Reason, State,
    SubjectId, TenantId,
    inspect::{Action, CappedCount, Chunk, Fence, FindBy, Selection, StateFilter},
};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// A message is found by its identity, subject, key and trace, in every queue and every state, in staging order.
pub async fn a_message_is_found_by_every_criterion<F: Fixture>(fixture: F) {
    let (store, inspect) = (fixture.store(), fixture.inspect());
    declare(&fixture, "orders", QueuePolicy::default().with_keep_for(minutes(600))).await;
    let traced = |number: u32| {
        let traceparent = format!("00-{TRACE}-00f067aa0ba902b{number}-01");
        message("orders").key("order-17").subject("customer-17").traceparent(traceparent)
    };
    let kept = stage_one(&fixture, traced(1)).await;
    assert_eq!(drain(&store, "orders").await, [kept]);
    let dead = stage_one(&fixture, traced(2)).await;
    dead_letter_one(&store, "orders").await;
    let waiting = stage_one(&fixture, traced(3).due_after(minutes(5))).await;
    let ready = stage_one(&fixture, traced(4)).await;
    // The same message in another queue, and others that share nothing with it.
    let copy = message("copies").id(ready).key("order-17").subject("customer-17").build().unwrap();
    stage_one(&fixture, &copy).await;
    stage_one(&fixture, message("orders").subject("customer-17").tenant("acme")).await;
    stage_one(&fixture, message("orders").key("order-18").subject("customer-18")).await;

    let found = |clue: FindBy| {
        let inspect = inspect.clone();
        async move {
            let entries = inspect.find(&clue, 100).await.unwrap();
            let reported = entries
                .iter()
                .map(|entry| (entry.message.id().unwrap(), entry.message.queue().to_string(), entry.state));
            reported.collect::<Vec<_>>()
        }
    };
    let of = |id: MessageId, name: &str, state| (id, name.to_owned(), state);
    let everywhere = [
        of(kept, "orders", State::Done),
        of(dead, "orders", State::Dead),
        of(waiting, "orders", State::Scheduled),
        of(ready, "orders", State::Pending),
        of(ready, "copies", State::Pending),
    ];
    assert_eq!(found(FindBy::Id(ready)).await, everywhere[3..]);
    assert_eq!(found(FindBy::Id(dead)).await, everywhere[1..2]);
    assert_eq!(found(FindBy::Id(fresh_id())).await, []);
    let subject = |tenant: Option<&str>, name: &str| {
        FindBy::Subject(tenant.map(TenantId::stored), SubjectId::stored(name))
    };
    assert_eq!(found(subject(None, "customer-17")).await, everywhere);
    assert_eq!(found(subject(Some("acme"), "customer-17")).await.len(), 1);
    assert_eq!(found(FindBy::Key(key("order-17"))).await, everywhere);
    assert_eq!(found(FindBy::Trace(TRACE.to_owned())).await, everywhere[..4]);
    assert_eq!(inspect.find(&FindBy::Trace(TRACE.to_owned()), 2).await.unwrap().len(), 2);
    assert_eq!(found(FindBy::Trace("0".repeat(32))).await, []);
}

/// The store counts the messages ahead of a message in its key.
pub async fn messages_ahead_in_the_key_are_counted<F: Fixture>(fixture: F) {
    declare(&fixture, "letters", QueuePolicy::by_key(OnFailure::Block)).await;
    let ada = stage(&fixture, &numbered_of("letters", "ada", 3)).await;
    let ben = stage(&fixture, &numbered_of("letters", "ben", 1)).await;
    let plain = stage_one(&fixture, message("orders").key("ada")).await;
    let inspect = fixture.inspect();
    for (id, ahead) in [(ada[0], 0), (ada[2], 2), (ben[0], 0)] {
        let reported = inspect.ahead(&queue("letters"), id).await.unwrap();
        assert_eq!(reported, Some(CappedCount { at_least: ahead, capped: false }));
    }
    assert_eq!(inspect.ahead(&queue("orders"), plain).await.unwrap(), None);
    assert_eq!(inspect.ahead(&queue("letters"), plain).await.unwrap(), None);
    assert_eq!(inspect.ahead(&queue("nobody"), plain).await.unwrap(), None);
}

/// The inbox lists the consumers that have admitted a message.
pub async fn the_inbox_lists_the_consumers_that_admitted_a_message<F: Fixture>(fixture: F) {
    let (id, acme) = (fresh_id(), TenantId::stored("acme"));
    let mut tx = fixture.begin().await;
    for name in ["shipping", "billing"] {
        let consumer = ConsumerName::new(name).unwrap();
        fixture.inbox().admit_all(&mut tx, &consumer, &[Arrival::new(id)]).await.unwrap();
    }
    let consumer = ConsumerName::new("mailing").unwrap();
    let theirs = [Arrival::new(id).of_tenant(acme.clone()), Arrival::new(fresh_id())];
    fixture.inbox().admit_all(&mut tx, &consumer, &theirs).await.unwrap();
    fixture.commit(tx).await;
    let who = |tenant: Option<TenantId>, id| {
        let inspect = fixture.inspect();
        async move {
            let marks = inspect.deduplication_records(tenant.as_ref(), id).await.unwrap();
            marks.into_iter().map(|mark| mark.consumer.to_string()).collect::<Vec<_>>()
        }
    };
    assert_eq!(who(None, id).await, ["billing", "shipping"]);
    assert_eq!(who(Some(acme), id).await, ["mailing"]);
    assert!(who(None, fresh_id()).await.is_empty());
}

/// Active timers are listed by queue and name. An operator cancels one, with an audit row that names it, unless it is being
/// delivered.
pub async fn timers_are_listed_and_cancelled_by_an_operator<F: Fixture>(fixture: F) {
    let (store, operate) = (fixture.store(), fixture.operate());
    let reminder =
        |name: &str, due| message("orders").timer(name).due_after(minutes(due)).event_type("remind");
    let late = stage_one(&fixture, reminder("b-late", 60)).await;
    let due = stage_one(&fixture, reminder("a-due", 1)).await;
    let other = stage_one(&fixture, message("letters").timer("b-late").due_after(minutes(60))).await;
    stage_one(&fixture, message("orders").due_after(minutes(60))).await;
    let listed = |of: Option<&'static str>, limit| {
        let operate = operate.clone();
        async move {
            let of = of.map(queue);
            let timers = operate.timers(of.as_ref(), limit).await.unwrap();
            let reported = timers
                .into_iter()
                .map(|timer| (timer.queue.to_string(), timer.name.to_string(), timer.id, timer.state));
            reported.collect::<Vec<_>>()
        }
    };
    let of = |name: &str, timer: &str, id, state| (name.to_owned(), timer.to_owned(), id, state);
    let others = of("letters", "b-late", other, State::Scheduled);
    let lates = of("orders", "b-late", late, State::Scheduled);
    assert_eq!(
        listed(None, 10).await,
        [others.clone(), of("orders", "a-due", due, State::Scheduled), lates.clone()]
    );
    assert_eq!(listed(Some("orders"), 1).await, [of("orders", "a-due", due, State::Scheduled)]);
    let timers = operate.timers(Some(&queue("orders")), 10).await.unwrap();
    assert_eq!(timers[0].event_type.as_ref().map(EventType::as_str), Some("remind"));
    assert!(timers[0].due_at < timers[1].due_at);

    fixture.advance(minutes(2)).await;
    assert_eq!(listed(Some("orders"), 1).await, [of("orders", "a-due", due, State::Pending)]);
    assert_eq!(claim_one(&store, "orders").await.id(), due);
    assert_eq!(listed(Some("orders"), 10).await, [of("orders", "a-due", due, State::Leased), lates]);
    let cancel = |name: &'static str, of: &'static str| {
        let operate = operate.clone();
        async move { operate.drop_timer(&queue(name), &timer(of), &operator()).await.unwrap() }
    };
    assert!(!cancel("orders", "a-due").await, "it is being delivered");
    assert!(!cancel("orders", "nothing").await);
    assert!(!cancel("nobody", "b-late").await);
    assert!(cancel("orders", "b-late").await);
    assert!(!cancel("orders", "b-late").await, "it is gone");
    assert!(get(&fixture, "orders", late).await.is_none());
    assert_eq!(listed(Some("letters"), 10).await, [others]);
    let rows = operate.audit(10).await.unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(
        (rows[0].verb.as_str(), rows[0].ids.as_slice(), &rows[0].key),
        ("cancel_timer", &[late][..], &Some(key("b-late")))
    );
    let nameless = operate.drop_timer(&queue("letters"), &timer("b-late"), &Action::new("", "x")).await;
    assert!(matches!(nameless, Err(Error::Invalid(_))), "{nameless:?}");
    stage_one(&fixture, reminder("b-late", 60)).await;
}

/// Operator actions on a message are found by its identity.
pub async fn the_audit_of_a_message_lists_every_action<F: Fixture>(fixture: F) {
    let (store, operate) = (fixture.store(), fixture.operate());
    let ids = stage(&fixture, &numbered("orders", 2)).await;
    let ends: Vec<_> = claim_all(&store, "orders")
        .await
        .iter()
        .map(|each| each.lease.dead(Reason::Rejected, "no"))
        .collect();
    settle(&store, &ends).await;
    operate.requeue(&queue("orders"), &ids, &operator()).await.unwrap();
    operate.discard(&queue("orders"), &ids[..1], &operator()).await.unwrap();
    let verbs = |id, limit| {
        let operate = operate.clone();
        async move {
            let rows = operate.audit_of(id, limit).await.unwrap();
            rows.into_iter().map(|row| row.verb).collect::<Vec<_>>()
        }
    };
    assert_eq!(verbs(ids[0], 10).await, ["discard", "requeue"]);
    assert_eq!(verbs(ids[0], 1).await, ["discard"]);
    assert_eq!(verbs(ids[1], 10).await, ["requeue"]);
    assert!(verbs(fresh_id(), 10).await.is_empty());
}

/// An archived message is redelivered, under its own identity and in the order of its key, and at most once.
pub async fn an_archived_message_can_be_replayed<F: Fixture>(fixture: F) {
    let (store, operate) = (fixture.store(), fixture.operate());
    let keeping = QueuePolicy::default().with_keep_for(minutes(600));
    declare(&fixture, "orders", keeping).await;
    declare(&fixture, "letters", QueuePolicy::by_key(OnFailure::Block).with_keep_for(minutes(600))).await;
    for name in ["orders", "letters"] {
        let staged = stage(&fixture, &numbered_of(name, "ada", 5)).await;
        assert_eq!(drain(&store, name).await, staged);
        let selection = Selection::new(queue(name), StateFilter::Done);
        let selected = operate.summarize(&selection).await.unwrap();
        assert_eq!(selected.count, 5);
        let mut chunk = Chunk::first(selected.fence, 2);
        let mut delivered = Vec::new();
        loop {
            let done = operate.requeue_next(&selection, &chunk, &operator()).await.unwrap();
            delivered.extend(drain(&store, name).await);
            let Some(next) = done.next else { break };
            chunk.after = Some(next);
        }
        assert_eq!(delivered, staged, "each of {name:?} once more, in order");
        assert_eq!(operate.summarize(&selection).await.unwrap().count, 5, "and kept again");
    }
    let rows = operate.audit(10).await.unwrap();
    assert!(rows.iter().all(|row| row.verb == "replay"), "{rows:?}");
    assert_eq!(rows.iter().map(|row| row.ids.len()).sum::<usize>(), 10);
    let nothing = Fence { at: std::time::SystemTime::UNIX_EPOCH, position: 0 };
    let selection = Selection::new(queue("orders"), StateFilter::Done);
    let done = operate.requeue_next(&selection, &Chunk::first(nothing, 2), &operator()).await.unwrap();
    assert_eq!((done.looked_at, done.changed, done.next), (0, 0, None));
}

/// Copies of archived messages are staged together with an audit row that names the originals: both or neither.
pub async fn replayed_copies_are_staged_and_audited<F: Fixture>(fixture: F) {
    let (store, operate) = (fixture.store(), fixture.operate());
    declare(&fixture, "orders", QueuePolicy::default().with_keep_for(minutes(600))).await;
    let staged = stage(&fixture, &numbered("orders", 2)).await;
    assert_eq!(drain(&store, "orders").await, staged);
    let copies: Vec<_> = staged.iter().map(|id| message("again").id(*id).build().unwrap()).collect();
    operate.replay(&queue("orders"), &staged, &copies, &operator()).await.unwrap();
    assert_eq!(sorted(drain(&store, "again").await), sorted(staged.clone()));
    operate.replay(&queue("orders"), &staged[..1], &[], &operator()).await.unwrap();
    let rows = operate.audit(10).await.unwrap();
    let reported: Vec<_> = rows
        .iter()
        .map(|row| (row.verb.as_str(), row.queue.as_ref().map_or("", |queue| queue.as_str()), row.ids.len()))
        .collect();
    assert_eq!(reported, [("replay", "orders", 1), ("replay", "orders", 2)]);
    let nameless = operate.replay(&queue("orders"), &staged, &copies, &Action::new("", "x")).await;
    assert!(matches!(nameless, Err(Error::Invalid(_))), "{nameless:?}");
    assert_nothing_due(&store, "again").await;
}
