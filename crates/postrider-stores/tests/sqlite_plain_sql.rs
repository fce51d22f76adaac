//! Staging in SQLite through plain SQL, as any tool and language does it. Every case runs with the SQLite of the system, through
//! Python, and with the built-in one: their versions are years apart.

#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/clients.rs"]
mod clients;
#[path = "support/polyglot.rs"]
mod polyglot;
#[path = "support/sqlite.rs"]
mod support;

use clients::{CLIENTS, Client};
use postrider_core::{
    ClaimRequest, ClaimedMessage, FollowUp, Message, MessageId, OnFailure, OutboxExt, QueueName, QueuePolicy,
    Reason, Reference, StageOutcome, Store, TimerName, follow_up,
    notifier::{IdleWorker, Notifier},
    schema::Schema,
};
use postrider_stores::sqlite::{SqliteNames, SqliteOptions, SqliteStore};
use postrider_testkit::Fixture;
use sqlx::Row;
use std::time::{Duration, SystemTime};
use support::SqliteFixture;
use uuid::Uuid;

fn orders() -> QueueName {
    QueueName::new("orders").unwrap()
}

async fn claim(store: &SqliteStore) -> Vec<ClaimedMessage> {
    store.claim(&ClaimRequest::new(orders(), 100)).await.unwrap()
}

async fn payloads(store: &SqliteStore) -> Vec<String> {
    let claimed = claim(store).await;
    claimed.iter().map(|one| String::from_utf8(one.message.payload().to_vec()).unwrap()).collect()
}

/// The rows that staging has written: messages, queues, timers.
async fn total(fixture: &SqliteFixture) -> i64 {
    let sql = "select (select count(*) from postrider_ready) + (select count(*) from postrider_scheduled) \
               + (select count(*) from postrider_queue) + (select count(*) from postrider_timer)";
    sqlx::query(sql).fetch_one(&fixture.app).await.unwrap().get(0)
}

#[tokio::test]
async fn outbox_insert_stages_only_committed_messages() {
    for client in CLIENTS {
        let fixture = SqliteFixture::new().await;
        client
            .run(
                &fixture.path(),
                &[
                    "create table placed (id integer)",
                    "begin",
                    "insert into placed values (1)",
                    "insert into postrider_outbox (queue, payload) values ('orders', 'rolled back')",
                    "rollback",
                    "begin immediate",
                    "insert into placed values (2)",
                    "insert into postrider_outbox (queue, payload) values ('orders', 'first')",
                    "savepoint here",
                    "insert into postrider_outbox (queue, payload) values ('orders', 'taken back')",
                    "rollback to here",
                    "insert into postrider_outbox (queue, payload) values ('orders', 'second'), ('orders', 'third')",
                    "commit",
                    "insert into postrider_outbox (queue, payload) select 'orders', 'order ' || id from placed",
                ],
            )
            .await;
        assert_eq!(payloads(&fixture.store).await, ["first", "second", "third", "order 2"], "{client:?}");
        let rows = sqlx::query("select * from postrider_outbox").fetch_all(&fixture.app).await.unwrap();
        assert!(rows.is_empty(), "the view has no rows");
    }
}

/// A refused insert changes nothing, and the transaction stays usable.
#[tokio::test]
async fn refused_insert_leaves_the_transaction_usable() {
    for client in CLIENTS {
        let fixture = SqliteFixture::new().await;
        let results = client
            .all(
                &fixture.path(),
                &[
                    "begin",
                    "insert into postrider_outbox (queue, payload) values ('orders', 'first')",
                    "insert into postrider_outbox (queue, payload) values ('orders', 'second'), ('my orders', 'third')",
                    "insert into postrider_outbox (queue, payload) values ('orders', 'fourth')",
                    "commit",
                ]
                .map(clients::asked),
            )
            .await;
        let refused = "queue: neither white space nor control characters are allowed".to_owned();
        assert_eq!(results, [Ok(()), Ok(()), Err(refused), Ok(()), Ok(())], "{client:?}");
        assert_eq!(payloads(&fixture.store).await, ["first", "fourth"]);
    }
}

#[tokio::test]
async fn outbox_insert_requires_only_queue_and_payload() {
    for client in CLIENTS {
        let fixture = SqliteFixture::new().await;
        client
            .run(
                &fixture.path(),
                &["insert into postrider_outbox (queue, payload) values ('orders', '17')"; 50],
            )
            .await;
        let plain = Message::builder("orders").payload("17").build().unwrap();
        let claimed = claim(&fixture.store).await;
        assert_eq!(claimed.len(), 50);
        let mut ids = std::collections::BTreeSet::new();
        for one in claimed {
            let id = one.id();
            assert_eq!(one.message, plain.clone().identified(id));
            assert!(ids.insert(id), "ids are unique");
            let uuid = id.as_uuid();
            assert_eq!((uuid.get_version_num(), uuid.get_variant()), (7, uuid::Variant::RFC4122));
            let (seconds, nanos) = uuid.get_timestamp().unwrap().to_unix();
            let made_at = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos);
            assert_eq!(made_at, one.staged_at, "the id has the time of staging");
        }
    }
}

const EVERYTHING: [(&str, &str); 14] = [
    ("queue", "'orders'"),
    ("payload", "x'00ff'"),
    ("type", "'order.placed'"),
    ("key", "'order-17'"),
    ("tenant", "'acme'"),
    ("subject", "'customer-4'"),
    ("content_type", "'application/octet-stream'"),
    ("headers", r#"'{"Shop": "Köln \"am\" Rhein\\", "empty": "", "a": "1", "A": "2"}'"#),
    ("id", "'01890A5D-ac96-774b-bcce-b302099a8057'"),
    ("due_at", "'2020-01-01 00:00:00Z'"),
    ("on_conflict", "null"),
    ("correlation_id", "'request-9'"),
    ("causation_id", "'01890a5d'"),
    ("traceparent", "'00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'"),
];

#[tokio::test]
async fn outbox_insert_keeps_every_field() {
    let everything = Message::builder("orders")
        .payload(vec![0, 255])
        .event_type("order.placed")
        .key("order-17")
        .tenant("acme")
        .subject("customer-4")
        .content_type("application/octet-stream")
        .header("shop", "Köln \"am\" Rhein\\")
        .header("empty", "")
        .header("a", "2")
        .id("01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap())
        .correlation_id("request-9")
        .causation_id("01890a5d")
        .traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
        .build()
        .unwrap();
    let (names, values): (Vec<_>, Vec<_>) = EVERYTHING.into_iter().unzip();
    let insert =
        format!("insert into postrider_outbox ({}) values ({})", names.join(", "), values.join(", "));
    for client in CLIENTS {
        let fixture = SqliteFixture::new().await;
        client.run(&fixture.path(), &[&insert]).await;
        let claimed = claim(&fixture.store).await;
        assert_eq!(claimed.len(), 1);
        assert_eq!(claimed[0].message, everything, "{client:?}");
    }
}

/// A follow-up is a message with certain headers: an insert can stage one.
#[tokio::test]
async fn follow_up_is_staged_by_plain_sql() {
    let plain =
        FollowUp::new("customer-17", "payments", "erase", Reference::new("customer", "cus_1")).unwrap();
    let reference = Reference::new("folder", "17").with("region", "eu");
    let full = FollowUp::new("customer-17", "archive", "erase", reference).unwrap();
    let full = full.of_tenant("acme".try_into().unwrap()).with_json(&["invoices"]).unwrap();
    let queue = QueueName::new(follow_up::QUEUE).unwrap();
    for client in CLIENTS {
        let fixture = SqliteFixture::new().await;
        client
            .run(
                &fixture.path(),
                &[
                    "insert into postrider_outbox (queue, type, subject, payload, headers) values \
                     ('follow-ups', 'erase', 'customer-17', '', json_object('followup-resolver', 'payments', \
                       'followup-kind', 'customer', 'followup-value', 'cus_1'))",
                    r#"insert into postrider_outbox (queue, type, tenant, subject, payload_json, headers) values
                     ('follow-ups', 'erase', 'acme', 'customer-17', '["invoices"]', json_object('followup-resolver', 'archive',
                       'followup-kind', 'folder', 'followup-value', '17', 'followup-extra', '{"region": "eu"}'))"#,
                ],
            )
            .await;
        let claimed = fixture.store.claim(&ClaimRequest::new(queue.clone(), 10)).await.unwrap();
        let read: Vec<_> = claimed.iter().map(|one| FollowUp::read(&one.message).unwrap()).collect();
        let ids: Vec<_> = claimed.iter().map(ClaimedMessage::id).collect();
        assert_eq!(read, [plain.clone().with_id(ids[0]), full.clone().with_id(ids[1])], "{client:?}");
    }
}

/// Payloads are stored byte for byte, whatever their type; JSON in its own column as SQLite prints it.
#[tokio::test]
async fn payload_is_stored_byte_for_byte() {
    for client in CLIENTS {
        let fixture = SqliteFixture::new().await;
        client
            .run(
                &fixture.path(),
                &[
                    r#"insert into postrider_outbox (queue, payload) values ('orders', '{"b":1,  "a":"\n"}')"#,
                    r#"insert into postrider_outbox (queue, payload_json) values ('orders', '{"b":1,  "a":"\n"}')"#,
                    "insert into postrider_outbox (queue, payload) values ('orders', 'Grüße')",
                    "insert into postrider_outbox (queue, payload) values ('orders', x'4772c3bcc39f65')",
                    "insert into postrider_outbox (queue, payload) values ('orders', x'')",
                    "insert into postrider_outbox (queue, payload) values ('orders', '')",
                    "insert into postrider_outbox (queue, payload) values ('orders', 17)",
                    "insert into postrider_outbox (queue, payload_json) values ('orders', json_object('n', 17))",
                ],
            )
            .await;
        let expected = [
            "{\"b\":1,  \"a\":\"\\n\"}",
            "{\"b\":1,\"a\":\"\\n\"}",
            "Grüße",
            "Grüße",
            "",
            "",
            "17",
            "{\"n\":17}",
        ];
        assert_eq!(payloads(&fixture.store).await, expected, "{client:?}");
    }
}

/// Ids are accepted in every form, and every byte is kept.
#[tokio::test]
async fn id_is_accepted_as_text_or_blob() {
    let every_byte: Vec<Uuid> =
        (0..16_u8).map(|row| Uuid::from_bytes(std::array::from_fn(|at| row * 16 + at as u8))).collect();
    for client in CLIENTS {
        let fixture = SqliteFixture::new().await;
        let mut expected = Vec::new();
        let mut statements = Vec::new();
        for id in &every_byte {
            for form in [
                format!("'{id}'"),
                format!("'{}'", id.to_string().to_uppercase()),
                format!("'{}'", id.simple()),
                format!("x'{}'", id.simple()),
            ] {
                statements.push(format!(
                    "insert into postrider_outbox (queue, payload, id) values ('orders', '{}', {form})",
                    expected.len()
                ));
            }
            expected.push(MessageId::from_uuid(*id));
        }
        client.run(&fixture.path(), &statements.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let claimed = claim(&fixture.store).await;
        assert_eq!(claimed.iter().map(ClaimedMessage::id).collect::<Vec<_>>(), expected, "{client:?}");
    }
}

/// One id is one message, whichever path stages it and whatever the state of the first.
#[tokio::test]
async fn same_id_is_staged_once_by_any_path() {
    for client in CLIENTS {
        let fixture = SqliteFixture::new().await;
        let keeping = QueuePolicy::default().with_keep_for(Duration::from_secs(3600));
        fixture.store.declare(&orders(), &keeping).await.unwrap();
        let id = MessageId::from_uuid(Uuid::now_v7());
        let again =
            format!("insert into postrider_outbox (queue, payload, id) values ('orders', 'again', '{id}')");
        let first = again.replace("'again'", "'first'");
        let elsewhere = again.replace("'orders'", "'elsewhere'");
        client.run(&fixture.path(), &[&first, &again, &elsewhere]).await;
        let mut tx = fixture.begin().await;
        let rust = Message::builder("orders").payload("rust").id(id);
        let staged = fixture.outbox().stage(&mut tx, rust).await.unwrap();
        assert_eq!(staged.outcomes(), [(id, StageOutcome::Duplicate)]);
        fixture.commit(tx).await;

        let claimed = claim(&fixture.store).await;
        assert_eq!((claimed.len(), claimed[0].message.payload().as_ref()), (1, &b"first"[..]));
        client.run(&fixture.path(), &[&again]).await; // leased
        let lease = &claimed[0].lease;
        fixture.store.settle(&[lease.retry(Duration::from_secs(60), "not yet")]).await.unwrap();
        client.run(&fixture.path(), &[&again]).await; // scheduled for its retry
        fixture.advance(Duration::from_secs(61)).await;
        let claimed = claim(&fixture.store).await;
        assert_eq!(claimed.len(), 1);
        fixture.store.settle(&[claimed[0].lease.done()]).await.unwrap();
        client.run(&fixture.path(), &[&again]).await; // archived
        assert_eq!(claim(&fixture.store).await, [], "{client:?}");

        let dead = again.replace(&id.to_string(), &Uuid::now_v7().to_string());
        client.run(&fixture.path(), &[&dead]).await;
        let claimed = claim(&fixture.store).await;
        fixture.store.settle(&[claimed[0].lease.dead(Reason::Rejected, "no")]).await.unwrap();
        client.run(&fixture.path(), &[&dead]).await;
        assert_eq!(claim(&fixture.store).await, [], "{client:?}");
    }
}

#[tokio::test]
async fn timers_can_be_ignored_extended_and_cancelled() {
    for client in CLIENTS {
        let fixture = SqliteFixture::new().await;
        client
            .run(
                &fixture.path(),
                &[
                    "insert into postrider_outbox (queue, payload, timer, due_after) values ('orders', 'first', 't', 3600)",
                    "insert into postrider_outbox (queue, payload, timer, due_after) values ('orders', 'ignored', 't', 7200)",
                    "insert into postrider_outbox (queue, payload, timer, due_after, on_conflict) \
                     values ('orders', 'extended', 't', '7200.0', 'extend')",
                    "insert into postrider_outbox (queue, payload, timer, due_after, on_conflict) \
                     values ('orders', 'sooner', 't', 60, 'extend')",
                    "begin",
                    "insert into postrider_cancel_timer (queue, timer) values ('orders', 't')",
                    "rollback",
                    "insert into postrider_outbox (queue, payload, timer, due_after) values ('orders', 'gone', 'u', 60)",
                    "insert into postrider_cancel_timer (queue, timer) values ('orders', 'u')",
                    "insert into postrider_cancel_timer (queue, timer) values ('orders', 'u'), ('nowhere', 'u')",
                    "insert into postrider_outbox (queue, payload, timer, due_at) \
                     values ('orders', 'due', 'now', '2020-01-01T12:00:00.5+01:00')",
                ],
            )
            .await;
        let due = claim(&fixture.store).await;
        assert_eq!((due.len(), due[0].message.payload().as_ref()), (1, &b"due"[..]), "{client:?}");
        assert_eq!(fixture.store.settle(&[due[0].lease.done()]).await.unwrap(), []);
        fixture.advance(Duration::from_secs(5400)).await;
        assert_eq!(claim(&fixture.store).await.len(), 0, "it was extended to two hours");
        fixture.advance(Duration::from_secs(1801)).await;
        let claimed = claim(&fixture.store).await;
        let timers: Vec<_> =
            claimed.iter().map(|one| (one.message.payload().clone(), one.message.timer())).collect();
        assert_eq!(timers.len(), 1, "{client:?}: {timers:?}");
        assert_eq!(timers[0].0, "extended");
        assert_eq!(timers[0].1.unwrap().name, TimerName::new("t").unwrap());
        // It is in flight, so it cannot be cancelled, and its name is taken.
        client
            .run(
                &fixture.path(),
                &[
                    "insert into postrider_cancel_timer (queue, timer) values ('orders', 't')",
                    "insert into postrider_outbox (queue, payload, timer, due_after, on_conflict) \
                     values ('orders', 'late', 't', 9000, 'extend')",
                ],
            )
            .await;
        assert_eq!(fixture.store.settle(&[claimed[0].lease.done()]).await.unwrap(), []);
        fixture.advance(Duration::from_secs(10_000)).await;
        assert_eq!(claim(&fixture.store).await, [], "{client:?}");
    }
}

/// Times are accepted as text, with or without a zone, and as seconds since 1970.
#[tokio::test]
async fn due_time_is_accepted_as_text_or_seconds() {
    for client in CLIENTS {
        let fixture = SqliteFixture::new().await;
        let forms = [
            "'2100-02-03 04:05:06'",
            "'2100-02-03T04:05:06Z'",
            "'2100-02-03 05:05:06.000000+01:00'",
            "4105310706",
            "4105310706.0",
            "'2100-02-03 04:05:06.000'",
        ];
        let statements: Vec<_> = forms
            .iter()
            .map(|form| {
                format!(
                    "insert into postrider_outbox (queue, payload, due_at) values ('orders', 'x', {form})"
                )
            })
            .collect();
        client.run(&fixture.path(), &statements.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let rows = sqlx::query_as::<_, (i64,)>("select due_at from postrider_scheduled");
        let times = rows.fetch_all(&fixture.app).await.unwrap();
        assert_eq!(times, [(4_105_310_706_000_000,); 6], "{client:?}");
    }
}

#[tokio::test]
async fn ordered_queue_keeps_order_of_plain_sql() {
    for client in CLIENTS {
        let fixture = SqliteFixture::new().await;
        fixture.store.declare(&orders(), &QueuePolicy::by_key(OnFailure::Block)).await.unwrap();
        let keyed: Vec<_> = (1..=20)
            .map(|n| {
                format!("insert into postrider_outbox (queue, payload, key) values ('orders', {n}, 'k')")
            })
            .collect();
        let mut statements: Vec<_> = keyed.iter().map(String::as_str).collect();
        statements.push("insert into postrider_outbox (queue, payload) values ('orders', 'alone')");
        client.run(&fixture.path(), &statements).await;
        let mut seen = Vec::new();
        loop {
            let claimed = claim(&fixture.store).await;
            if claimed.is_empty() {
                break;
            }
            seen.extend(
                claimed.iter().map(|one| (one.message.key().cloned(), one.message.payload().clone())),
            );
            let done: Vec<_> = claimed.iter().map(|one| one.lease.done()).collect();
            fixture.store.settle(&done).await.unwrap();
        }
        let keyed: Vec<_> =
            seen.iter().filter(|(key, _)| key.is_some()).map(|(_, payload)| payload.clone()).collect();
        assert_eq!(keyed, (1..=20).map(|n| n.to_string()).collect::<Vec<_>>(), "{client:?}");
        assert_eq!(seen.len(), 21);
    }
}

#[tokio::test]
async fn staging_by_plain_sql_notifies_only_idle_workers_of_the_queue() {
    for client in CLIENTS {
        let fixture = SqliteFixture::new().await;
        let path = fixture.path();
        let signals = async || -> i64 {
            let sql = "select coalesce(sum(signals), 0) from postrider_queue";
            sqlx::query(sql).fetch_one(&fixture.app).await.unwrap().get(0)
        };
        client.run(&path, &["insert into postrider_outbox (queue, payload) values ('orders', 'x')"]).await;
        assert_eq!(signals().await, 0, "no worker is idle");
        let idle = IdleWorker { worker: Uuid::now_v7(), queues: vec![orders()] };
        let mut listener = fixture.store.listen(&[orders()]).await.unwrap();
        fixture.store.register_idle(&idle, Duration::from_secs(600)).await.unwrap();
        for quiet in [
            "insert into postrider_outbox (queue, payload) values ('elsewhere', 'x')",
            "insert into postrider_outbox (queue, payload, due_after) values ('orders', 'x', 60)",
            "insert into postrider_outbox (queue, payload, timer, due_after) values ('orders', 'x', 't', 60)",
            "insert into postrider_outbox (queue, payload, timer) values ('orders', 'ignored', 't')",
        ] {
            client.run(&path, &[quiet]).await;
            assert_eq!(signals().await, 0, "{client:?}: {quiet}");
        }
        for notifying in [
            "insert into postrider_outbox (queue, payload) values ('orders', 'x')",
            "insert into postrider_outbox (queue, payload, id) values ('orders', 'x', '01890a5d-ac96-774b-bcce-b302099a8057')",
            "insert into postrider_outbox (queue, payload, timer) values ('orders', 'x', 'at once')",
        ] {
            client.run(&path, &[notifying]).await;
            let notified = tokio::time::timeout(Duration::from_secs(60), listener.wait()).await;
            assert_eq!(notified.expect(notifying).unwrap(), orders(), "{client:?}");
        }
        let before = signals().await;
        client
            .run(&path, &["insert into postrider_outbox (queue, payload, id) values ('orders', 'x', '01890a5d-ac96-774b-bcce-b302099a8057')"])
            .await;
        assert_eq!(signals().await, before, "a duplicate notifies no worker");
    }
}

/// The caller's conflict clause applies to the statements of a trigger, too. They must not depend on it.
#[tokio::test]
async fn conflict_clauses_have_no_effect() {
    for client in CLIENTS {
        let fixture = SqliteFixture::new().await;
        fixture.store.declare(&orders(), &QueuePolicy::by_key(OnFailure::Block)).await.unwrap();
        let id = Uuid::now_v7();
        let mut statements = Vec::new();
        for verb in ["insert", "insert or ignore", "insert or replace"] {
            for column in ["id", "timer", "key"] {
                statements.push(clients::asked(format!(
                    "{verb} into postrider_outbox (queue, payload, {column}) values ('orders', '{verb}', '{id}')"
                )));
            }
            statements.push(clients::asked(format!(
                "{verb} into postrider_outbox (queue, payload) values ('my orders', 'x')"
            )));
            statements
                .push(clients::asked(format!("{verb} into postrider_outbox (queue) values ('orders')")));
        }
        let refused = client.all(&fixture.path(), &statements).await.into_iter().filter(Result::is_err);
        assert_eq!(refused.count(), 6, "{client:?}: invalid input is never ignored");
        let mut staged = payloads(&fixture.store).await;
        staged.sort();
        let expected = ["insert", "insert", "insert", "insert or ignore", "insert or replace"];
        assert_eq!(staged, expected, "{client:?}: the id and the timer once, the key three times");
    }
}

/// The settings of a connection, and temporary tables with our names, do not matter.
#[tokio::test]
async fn connection_settings_have_no_effect() {
    for client in CLIENTS {
        for setting in [
            "pragma trusted_schema = off",
            "pragma recursive_triggers = on",
            "pragma reverse_unordered_selects = on",
            "pragma case_sensitive_like = on",
            "pragma foreign_keys = on",
            "pragma cell_size_check = on",
            "create temp table postrider_ready (id integer)",
        ] {
            // The system's SQLite may be older than the declaration of the JSON functions as harmless.
            if setting.contains("trusted_schema") && matches!(client, Client::Python) {
                continue;
            }
            let fixture = SqliteFixture::new().await;
            client
                .run(
                    &fixture.path(),
                    &[
                        setting,
                        r#"insert into postrider_outbox (queue, payload, id, headers)
                           values ('orders', 'x', '01890a5d-ac96-774b-bcce-b302099a8057', '{"b": "1", "a": "2"}')"#,
                        "insert into postrider_outbox (queue, payload, timer, on_conflict) values ('orders', 'y', 't', 'extend')",
                    ],
                )
                .await;
            let claimed = claim(&fixture.store).await;
            assert_eq!(claimed.len(), 2, "{client:?}: {setting}");
            assert_eq!(claimed[0].id().to_string(), "01890a5d-ac96-774b-bcce-b302099a8057", "{setting}");
        }
    }
}

#[tokio::test]
async fn insert_into_attached_database_stages() {
    for client in CLIENTS {
        let fixture = SqliteFixture::new().await;
        let other = fixture.folder.path().join("other.db");
        let attach = format!("attach '{}' as shop", fixture.path().display());
        client
            .run(
                &other,
                &[&attach, "insert into shop.postrider_outbox (queue, payload) values ('orders', 'x')"],
            )
            .await;
        assert_eq!(payloads(&fixture.store).await, ["x"], "{client:?}");
    }
}

#[tokio::test]
async fn plain_sql_works_with_other_prefix() {
    for client in CLIENTS {
        for prefix in ["", "pr_"] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("shop.db");
            let options = SqliteOptions::new(&path).with_names(SqliteNames::new(prefix).unwrap());
            let store = SqliteStore::open_with(options).await.unwrap();
            store.migrate().await.unwrap();
            let insert =
                format!("insert into {prefix}outbox (queue, payload, timer) values ('orders', 'x', 't')");
            let cancel = format!("insert into {prefix}cancel_timer (queue, timer) values ('orders', 't')");
            let again = insert.replace("'x'", "'y'");
            client.run(&path, &[&insert, &cancel, &again]).await;
            assert_eq!(payloads(&store).await, ["y"], "{client:?}");
        }
    }
}

/// Half of a surrogate pair in a header, which JSON can express, does not make the message unreadable.
#[tokio::test]
async fn invalid_unicode_in_a_header_leaves_the_message_readable() {
    for client in CLIENTS {
        let fixture = SqliteFixture::new().await;
        client
            .run(
                &fixture.path(),
                &[
                    r#"insert into postrider_outbox (queue, payload, headers) values ('orders', 'x', '{"a": "\ud800", "b": "c"}')"#,
                    "insert into postrider_outbox (queue, payload) values ('orders', 'y')",
                ],
            )
            .await;
        let claimed = claim(&fixture.store).await;
        assert_eq!(claimed.len(), 2, "{client:?}");
        assert_eq!(claimed[0].message.headers().get("b"), Some("c"));
    }
}

/// In a UTF-16 database, text would have other bytes than expected.
#[tokio::test]
async fn utf_16_database_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    Client::BuiltIn.run(&path, &["pragma encoding = 'UTF-16'", "create table orders (id integer)"]).await;
    let store = SqliteStore::open(&path).await.unwrap();
    store.migrate().await.unwrap();
    for client in CLIENTS {
        let insert = "insert into postrider_outbox (queue, payload) values ('orders', 'x')";
        let refused = "outbox: this file is not in UTF-8; stage through the Rust API".to_owned();
        assert_eq!(client.all(&path, &[clients::asked(insert)]).await, [Err(refused)], "{client:?}");
    }
}

/// The contract matches the guide: the columns of the view, in the order of the guide's table.
#[tokio::test]
async fn contract_1_matches_guide() {
    let fixture = SqliteFixture::new().await;
    let guide = include_str!("../../../docs/guides/plain-sql.md");
    let columns = sqlx::query_as::<_, (String,)>("select name from pragma_table_xinfo('postrider_outbox')");
    let columns: Vec<_> =
        columns.fetch_all(&fixture.app).await.unwrap().into_iter().map(|row| row.0).collect();
    let documented: Vec<_> = guide
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | `"))
        .map(|(name, _)| name.to_owned())
        .collect();
    assert_eq!(columns, documented);
    let (version,): (i64,) =
        sqlx::query_as("select version from postrider_contract").fetch_one(&fixture.app).await.unwrap();
    assert_eq!(version, 1);
    let section = guide.split("\n## SQLite\n").nth(1).expect("a section about SQLite");
    assert!(section.contains("select version from postrider_contract"));
    assert!(section.contains("insert into postrider_cancel_timer (queue, timer)"));
    assert_eq!(total(&fixture).await, 0);
}
