//! What operators do, on PostgreSQL, run as somebody runs it.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/program.rs"]
#[allow(dead_code, reason = "not every test program needs all of it")]
mod program;

use postrider::{
    ClaimRequest, QueueName, Reason, Settle, Settlement, Store, postgres::PostgresStore, schema::Schema,
};
use postrider_testkit::postgres::TestDatabase;
use program::{Ended, postrider, run};

fn at(database: &TestDatabase, arguments: &[&str]) -> Ended {
    run(postrider(arguments).env("POSTRIDER_DB", database.url()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_published_dies_and_is_put_back() {
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
    assert!(store.settle(&[Settle { lease, settlement }]).await.unwrap().is_empty());

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
        ["dead", "requeue", "--queue", "orders", "--type", "order.placed", "--why", "mended", "--json"];
    assert_eq!(at(&database, &requeue).code, Some(2));
    let requeued = at(&database, &[&requeue[..], &["--yes"]].concat());
    assert_eq!((requeued.code, &requeued.report()["changed"]), (Some(0), &1.into()), "{requeued:?}");
    let discard = ["messages", "discard", "--queue", "orders", &id, "--why", "only a test"];
    assert_eq!(at(&database, &discard).code, Some(0));
    assert_eq!(at(&database, &discard).code, Some(4));
    let deeds = at(&database, &["audit", "ls", "--json"]).report();
    let verbs: Vec<_> = deeds["deeds"].as_array().unwrap().iter().map(|deed| deed["verb"].clone()).collect();
    assert_eq!(verbs, ["discard", "requeue"], "{deeds}");
    assert_eq!(at(&database, &["saga", "counts", "--json"]).code, Some(0));
    assert_eq!(at(&database, &["keys", "blocked", "--queue", "orders"]).code, Some(0));
    let printed = run(&mut postrider(&["migrate", "print", "--kind", "postgres"]));
    assert_eq!(printed.out.trim_end(), store.print().trim_end());
    store.close().await;
}
