//! The commands of operators, on PostgreSQL.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use postrider::{
    ClaimRequest, FollowUp, FollowUpExt, LeaseSettlement, Message, OutboxExt, QueueName, QueuePolicy, Reason,
    Reference, Settlement, Store, postgres::PostgresStore, schema::Schema,
};
use postrider_testkit::postgres::TestDatabase;
use sqlx::{Connection, PgConnection};
use std::time::Duration;
use support::program::{CompletionOutcome, postrider, run};

/// A migrated database, and its store.
async fn migrated() -> (TestDatabase, PostgresStore) {
    let database = TestDatabase::empty().await;
    let store = PostgresStore::connect(database.url()).await.unwrap();
    store.migrate().await.unwrap();
    (database, store)
}

/// Claims all due messages, and settles them in the same way.
async fn settle_all(store: &PostgresStore, queue: &str, settlement: &Settlement) {
    let claimed = store.claim(&ClaimRequest::new(QueueName::stored(queue), 100)).await.unwrap();
    let ends: Vec<_> = claimed
        .iter()
        .map(|claimed| LeaseSettlement { lease: claimed.lease.clone(), settlement: settlement.clone() })
        .collect();
    assert_eq!(store.settle(&ends).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kept_messages_are_traced_replayed_tailed_and_pruned() {
    let (database, store) = migrated().await;
    let keeping = QueuePolicy::default().with_keep_for(Duration::from_secs(3600));
    store.declare(&QueueName::stored("orders"), &keeping).await.unwrap();
    let mut ids = Vec::new();
    for number in 1..=3 {
        let body = number.to_string();
        let publish = ["publish", "orders", "--key", "order-17", "--json-body", &body, "--json"];
        ids.push(at(&database, &publish).report()["id"].as_str().unwrap().to_owned());
    }
    settle_all(&store, "orders", &Settlement::Done).await;
    let traced = at(&database, &["messages", "trace", &ids[0], "--json"]).report();
    assert_eq!(
        (&traced["messages"][0]["state"], &traced["messages"][0]["queue"]),
        (&"done".into(), &"orders".into())
    );
    assert_eq!(at(&database, &["messages", "show", &ids[0], "--json"]).report()["state"], "done");
    let of_key = at(&database, &["messages", "trace", "--key", "order-17", "--json"]).report();
    assert_eq!(of_key["messages"].as_array().unwrap().len(), 3);

    let replay = ["replay", "--queue", "orders", "--why", "gap", "--yes", "--json"];
    let copied = at(&database, &[&replay[..], &["--to-queue", "projections"]].concat());
    assert_eq!((copied.code, &copied.report()["replayed"]), (Some(0), &3.into()), "{copied:?}");
    let back = at(&database, &[&replay[..], &["--since", "1h"]].concat());
    assert_eq!((back.code, &back.report()["replayed"]), (Some(0), &3.into()), "{back:?}");
    let again = at(&database, &["messages", "trace", &ids[0], "--json"]).report();
    let states: Vec<_> =
        again["messages"].as_array().unwrap().iter().map(|message| message["state"].clone()).collect();
    assert_eq!(states, ["pending", "pending"], "{again}");
    let verbs: Vec<_> =
        again["actions"].as_array().unwrap().iter().map(|action| action["verb"].clone()).collect();
    assert_eq!(verbs, ["replay", "replay"], "{again}");

    let seen = at(&database, &["tail", "--queue", "orders", "--since", "1h", "--count", "3", "--jsonl"]);
    assert_eq!((seen.code, seen.out.lines().count()), (Some(0), 3), "{seen:?}");
    let collected = at(&database, &["gc", "--json", "--inbox-older-than", "1d"]);
    assert_eq!((collected.code, &collected.report()["kept"]), (Some(0), &0.into()), "{collected:?}");
    let vacuum = at(&database, &["gc", "--vacuum"]);
    assert_eq!((vacuum.code, vacuum.out.as_str()), (Some(2), ""), "{vacuum:?}");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn follow_ups_are_requeued_and_timers_cancelled() {
    let (database, store) = migrated().await;
    let mut connection = PgConnection::connect(database.url()).await.unwrap();
    let mut tx = connection.begin().await.unwrap();
    let reference = Reference::new("customer", "cus_17");
    let erase = FollowUp::new("customer-17", "payments", "erase", reference).unwrap();
    store.outbox().follow_up(&mut tx, [erase]).await.unwrap();
    let reminder =
        Message::builder("reminders").timer("cart-17").due_after(Duration::from_secs(3600)).json(&17);
    store.outbox().stage(&mut tx, reminder).await.unwrap();
    tx.commit().await.unwrap();
    let dead = Settlement::Dead { reason: Reason::RetriesExhausted, error: Some("timeout".to_owned()) };
    settle_all(&store, "follow-ups", &dead).await;

    let refused = at(&database, &["dead", "requeue", "--queue", "follow-ups", "--yes", "--why", "x"]);
    assert_eq!((refused.code, refused.out.as_str()), (Some(1), ""), "{refused:?}");
    assert!(refused.err.contains("postrider saga requeue"), "{refused:?}");
    let requeued = at(&database, &["saga", "requeue", "--all", "--yes", "--why", "it is back", "--json"]);
    assert_eq!((requeued.code, &requeued.report()["requeued"]), (Some(0), &1.into()), "{requeued:?}");
    let shown = at(&database, &["saga", "show", "customer-17", "--json"]).report();
    assert_eq!(
        (&shown["follow_ups"][0]["status"], &shown["ledger"][0]["kind"]),
        (&"pending".into(), &"requeued".into()),
        "{shown}"
    );

    let timers = at(&database, &["timers", "ls", "--json"]).report();
    assert_eq!(timers["timers"][0]["name"], "cart-17", "{timers}");
    let cancel = ["timers", "cancel", "--queue", "reminders", "cart-17", "--why", "it was bought"];
    assert_eq!(at(&database, &cancel).code, Some(0));
    assert_eq!(at(&database, &cancel).code, Some(4));
    store.close().await;
}

fn at(database: &TestDatabase, arguments: &[&str]) -> CompletionOutcome {
    run(postrider(arguments).env("POSTRIDER_DB", database.url()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_is_published_dies_and_is_requeued() {
    let database = TestDatabase::empty().await;
    let bare = at(&database, &["migrate", "status", "--json"]);
    assert_eq!((bare.code, &bare.report()["applied"]), (Some(0), &serde_json::Value::Null), "{bare:?}");
    let without = at(&database, &["status"]);
    assert_eq!(without.code, Some(1), "{without:?}");
    assert!(without.err.contains("postrider migrate up"), "{without:?}");
    assert_eq!(at(&database, &["migrate", "validate"]).code, Some(1));
    let up = at(&database, &["migrate", "up", "--json"]).report();
    assert_eq!((&up["up_to_date"], &up["applied"]), (&true.into(), &up["needed"]), "{up}");
    let whole = at(&database, &["migrate", "validate"]);
    assert_eq!((whole.code, whole.err.as_str()), (Some(0), ""), "{whole:?}");

    let published =
        at(&database, &["publish", "orders", "--type", "order.placed", "--json-body", "17", "--json"]);
    let id = published.report()["id"].as_str().unwrap().to_owned();
    let store = PostgresStore::connect(database.url()).await.unwrap();
    let claimed = store.claim(&ClaimRequest::new(QueueName::stored("orders"), 1)).await.unwrap();
    let settlement =
        Settlement::Dead { reason: Reason::Rejected, error: Some("no such address: 7".to_owned()) };
    let lease = claimed[0].lease.clone();
    assert!(store.settle(&[LeaseSettlement { lease, settlement }]).await.unwrap().is_empty());

    let status = at(&database, &["status", "--exit-code", "--json"]);
    assert_eq!(status.code, Some(1), "{status:?}");
    assert_eq!(status.report()["queues"][0]["dead"]["count"], 1, "{status:?}");
    let groups = at(&database, &["dead", "groups", "--json"]).report();
    assert_eq!(
        (&groups["groups"][0]["error"], &groups["groups"][0]["count"]),
        (&"no such address".into(), &1.into())
    );
    let shown = at(&database, &["dead", "show", "--queue", "orders", &id, "--payload", "--json"]).report();
    assert_eq!((&shown["payload"], &shown["reason"]), (&"17".into(), &"rejected".into()), "{shown}");
    let requeue =
        ["dead", "requeue", "--queue", "orders", "--type", "order.placed", "--why", "fixed", "--json"];
    assert_eq!(at(&database, &requeue).code, Some(2));
    let requeued = at(&database, &[&requeue[..], &["--yes"]].concat());
    assert_eq!((requeued.code, &requeued.report()["changed"]), (Some(0), &1.into()), "{requeued:?}");
    let discard = ["messages", "discard", "--queue", "orders", &id, "--why", "only a test"];
    assert_eq!(at(&database, &discard).code, Some(0));
    assert_eq!(at(&database, &discard).code, Some(4));
    let audit = at(&database, &["audit", "ls", "--json"]).report();
    let verbs: Vec<_> =
        audit["actions"].as_array().unwrap().iter().map(|action| action["verb"].clone()).collect();
    assert_eq!(verbs, ["discard", "requeue"], "{audit}");
    assert_eq!(at(&database, &["saga", "counts", "--json"]).code, Some(0));
    assert_eq!(at(&database, &["keys", "blocked", "--queue", "orders"]).code, Some(0));
    let printed = run(&mut postrider(&["migrate", "print", "--kind", "postgres"]));
    assert_eq!(printed.out.trim_end(), store.print().trim_end());
    store.close().await;
}
