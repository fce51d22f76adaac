//! Staging through plain SQL, as any tool and language does it: psql, as a role without a privilege on any table.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/bad_texts.rs"]
mod bad_texts;
#[path = "support/postgres.rs"]
mod postgres;
#[path = "support/roles.rs"]
mod roles;

use bad_texts::{bad_texts, order, random_text};
use postgres::PostgresFixture;
use postrider_core::{
    ClaimRequest, ClaimedMessage, FollowUp, Message, MessageBuilder, MessageId, OnFailure, OutboxExt,
    QueueName, QueuePolicy, Reference, StageOutcome, Store, TimerName, follow_up,
    inspect::Inspect,
    notifier::{IdleWorker, Notifier},
    schema::Schema,
};
use postrider_stores::postgres::{PostgresNames, PostgresOptions, PostgresStore, Role};
use postrider_testkit::{Fixture, postgres::TestDatabase};
use roles::Login;
use sqlx::{Connection, PgConnection};
use std::time::{Duration, SystemTime};

fn orders() -> QueueName {
    QueueName::new("orders").unwrap()
}

async fn producer() -> (PostgresFixture, Login) {
    let fixture = PostgresFixture::new().await;
    let login = Login::new(fixture.database.url(), &fixture.store, Role::Producer).await;
    (fixture, login)
}

async fn claim(store: &PostgresStore) -> Vec<ClaimedMessage> {
    store.claim(&ClaimRequest::new(orders(), 100)).await.unwrap()
}

async fn payloads(store: &PostgresStore) -> Vec<String> {
    let claimed = claim(store).await;
    claimed.iter().map(|one| String::from_utf8(one.message.payload().to_vec()).unwrap()).collect()
}

#[tokio::test]
async fn stage_function_stages_only_committed_messages() {
    let (fixture, login) = producer().await;
    login
        .psql(
            "begin; select postrider.stage('orders', 'rolled back'); rollback;
             begin; select postrider.stage('orders', 'first'); savepoint here;
             select postrider.stage('orders', 'taken back'); rollback to here;
             select postrider.stage(queue => 'orders', payload => 'second'); commit;
             select postrider.stage('orders', 'third')",
        )
        .unwrap();
    assert_eq!(payloads(&fixture.store).await, ["first", "second", "third"]);
}

#[tokio::test]
async fn outbox_insert_stages_only_committed_messages() {
    let (fixture, login) = producer().await;
    login
        .psql(
            r#"begin; insert into postrider.outbox (queue, payload) values ('orders', 'rolled back'); rollback;
               begin;
               insert into postrider.outbox (queue, payload) values ('orders', convert_to('a\b', 'UTF8')), ('orders', 'b');
               commit;
               insert into postrider.outbox (queue, payload_json) values ('orders', '{"c": 3}');
               copy postrider.outbox (queue, payload) from stdin;
orders	d
\.
"#,
        )
        .unwrap();
    assert_eq!(payloads(&fixture.store).await, ["a\\b", "b", "{\"c\": 3}", "d"]);
    assert_eq!(login.psql("select count(*) from postrider.outbox").unwrap(), "0", "the view has no rows");
}

/// INSERT on the view is enough: the role needs no privilege to call the function.
#[tokio::test]
async fn role_with_only_outbox_view_can_stage() {
    let fixture = PostgresFixture::new().await;
    let login = Login::without_grants(fixture.database.url()).await;
    let name = &login.name;
    let grant =
        format!("grant usage on schema postrider to {name}; grant insert on postrider.outbox to {name}");
    login.admin(&grant).await;
    login.psql("insert into postrider.outbox (queue, payload) values ('orders', 'x')").unwrap();
    assert_eq!(login.psql_error("select postrider.stage('orders', 'x')").0, "42501");
    assert_eq!(payloads(&fixture.store).await, ["x"]);
}

const EVERYTHING: [(&str, &str); 14] = [
    ("queue", "'orders'"),
    ("payload", "'\\x00ff'::bytea"),
    ("type", "'order.placed'"),
    ("key", "'order-17'"),
    ("tenant", "'acme'"),
    ("subject", "'customer-4'"),
    ("content_type", "'application/octet-stream'"),
    ("headers", r#"'{"Shop": "Köln", "empty": ""}'"#),
    ("id", "'01890a5d-ac96-774b-bcce-b302099a8057'"),
    ("due_at", "'2020-01-01 00:00:00Z'"),
    ("on_conflict", "null"),
    ("correlation_id", "'request-9'"),
    ("causation_id", "'01890a5d'"),
    ("traceparent", "'00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'"),
];

fn everything() -> Message {
    Message::builder("orders")
        .payload(vec![0, 255])
        .event_type("order.placed")
        .key("order-17")
        .tenant("acme")
        .subject("customer-4")
        .content_type("application/octet-stream")
        .header("shop", "Köln")
        .header("empty", "")
        .id("01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap())
        .correlation_id("request-9")
        .causation_id("01890a5d")
        .traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
        .build()
        .unwrap()
}

#[tokio::test]
async fn stage_function_keeps_every_field() {
    let (fixture, login) = producer().await;
    let named: Vec<_> = EVERYTHING.iter().map(|(name, value)| format!("{name} => {value}")).collect();
    let id = login.psql(&format!("select postrider.stage({})", named.join(", "))).unwrap();
    let claimed = claim(&fixture.store).await;
    assert_eq!(claimed.len(), 1);
    assert_eq!(claimed[0].message, everything());
    assert_eq!(claimed[0].id().to_string(), id);
    assert_eq!(claimed[0].due_at, SystemTime::UNIX_EPOCH + Duration::from_secs(1_577_836_800));
}

#[tokio::test]
async fn outbox_insert_keeps_every_field() {
    let (fixture, login) = producer().await;
    let (names, values): (Vec<_>, Vec<_>) = EVERYTHING.into_iter().unzip();
    let id = login
        .psql(&format!(
            "insert into postrider.outbox ({}) values ({}) returning id",
            names.join(", "),
            values.join(", ")
        ))
        .unwrap();
    let claimed = claim(&fixture.store).await;
    assert_eq!(claimed[0].message, everything());
    assert_eq!(claimed[0].id().to_string(), id);
}

/// A follow-up is a message with certain headers: every role that can stage can stage one.
#[tokio::test]
async fn follow_up_staged_by_plain_sql_is_processed() {
    let (fixture, login) = producer().await;
    login
        .psql(
            r#"begin;
               select postrider.stage('follow-ups', '', type => 'erase', subject => 'customer-17',
                 headers => jsonb_build_object('followup-resolver', 'payments', 'followup-kind', 'customer',
                   'followup-value', 'cus_1'));
               insert into postrider.outbox (queue, type, tenant, subject, payload_json, headers) values
                 ('follow-ups', 'erase', 'acme', 'customer-17', '["invoices"]', jsonb_build_object(
                   'followup-resolver', 'archive', 'followup-kind', 'folder', 'followup-value', '17',
                   'followup-extra', '{"region": "eu"}'));
               commit"#,
        )
        .unwrap();
    let queue = QueueName::new(follow_up::QUEUE).unwrap();
    let claimed = fixture.store.claim(&ClaimRequest::new(queue, 10)).await.unwrap();
    let read: Vec<_> = claimed.iter().map(|one| FollowUp::read(&one.message).unwrap()).collect();
    let plain =
        FollowUp::new("customer-17", "payments", "erase", Reference::new("customer", "cus_1")).unwrap();
    let reference = Reference::new("folder", "17").with("region", "eu");
    let full = FollowUp::new("customer-17", "archive", "erase", reference).unwrap();
    let full = full.of_tenant("acme".try_into().unwrap()).with_json(&["invoices"]).unwrap();
    assert_eq!(read, [plain.with_id(claimed[0].id()), full.with_id(claimed[1].id())]);
}

#[tokio::test]
async fn only_queue_and_payload_are_required() {
    let (fixture, login) = producer().await;
    let id = login.psql("select postrider.stage('orders', '17')").unwrap();
    let claimed = claim(&fixture.store).await;
    let plain = Message::builder("orders").payload("17").build().unwrap();
    let id: MessageId = id.parse().unwrap();
    assert_eq!(claimed[0].message, plain.identified(id));
    assert_eq!(id.as_uuid().get_version_num(), 7, "made as the Rust API makes it");
}

#[tokio::test]
async fn text_payload_keeps_bytes_and_jsonb_becomes_text() {
    let (fixture, login) = producer().await;
    login
        .psql(
            r#"select postrider.stage('orders', '{"b":1,  "a":"\n"}');
               select postrider.stage('orders', '{"b":1,  "a":"\n"}'::jsonb);
               select postrider.stage('orders', 'Grüße'::text, content_type => 'text/plain');
               select postrider.stage('orders', ''::bytea)"#,
        )
        .unwrap();
    let expected = ["{\"b\":1,  \"a\":\"\\n\"}", "{\"a\": \"\\n\", \"b\": 1}", "Grüße", ""];
    assert_eq!(payloads(&fixture.store).await, expected);
}

/// One id is one message, by whichever path it is staged.
#[tokio::test]
async fn same_id_is_staged_once_by_any_path() {
    let (fixture, login) = producer().await;
    let id = MessageId::from_uuid(uuid::Uuid::now_v7());
    let printed = login
        .psql(&format!(
            "select postrider.stage('orders', 'function', id => '{id}');
             select postrider.stage('orders', 'again', id => '{id}');
             insert into postrider.outbox (queue, payload, id) values ('orders', 'insert', '{id}') returning id;
             select postrider.stage('elsewhere', 'another queue', id => '{id}')"
        ))
        .unwrap();
    assert!(printed.lines().all(|line| line == id.to_string()), "{printed}");
    let mut tx = fixture.begin().await;
    let staged =
        fixture.outbox().stage(&mut tx, Message::builder("orders").payload("rust").id(id)).await.unwrap();
    assert_eq!(staged.outcomes(), [(id, StageOutcome::Duplicate)]);
    fixture.commit(tx).await;
    assert_eq!(payloads(&fixture.store).await, ["function"]);
}

#[tokio::test]
async fn timers_are_ignored_extended_and_cancelled() {
    let (fixture, login) = producer().await;
    let printed = login
        .psql(
            "select postrider.stage('orders', 'first', timer => 't', due_after => '1 hour') as first \\gset
             select postrider.stage('orders', 'ignored', timer => 't', due_after => '2 hours') is null;
             select postrider.stage('orders', 'extended', timer => 't', due_after => '2 hours', on_conflict => 'extend')
                    = :'first';
             insert into postrider.outbox (queue, payload, timer, due_at)
             values ('orders', 'ignored', 't', now() + interval '3 hours') returning id is null;
             begin; select postrider.cancel_timer('orders', 't'); rollback;
             select postrider.stage('orders', 'gone', timer => 'u', due_after => '1 hour') is not null;
             select postrider.cancel_timer(queue => 'orders', timer => 'u');
             select postrider.cancel_timer('orders', 'u');
             select postrider.cancel_timer('nowhere', 'u')",
        )
        .unwrap();
    assert_eq!(printed.lines().collect::<Vec<_>>(), ["t", "t", "t", "t", "t", "t", "f", "f"]);
    fixture.advance(Duration::from_secs(5400)).await;
    assert_eq!(claim(&fixture.store).await.len(), 0, "it was extended to two hours");
    fixture.advance(Duration::from_secs(1801)).await;
    let claimed = claim(&fixture.store).await;
    assert_eq!(claimed.len(), 1);
    assert_eq!(claimed[0].message.payload(), "extended");
    assert_eq!(claimed[0].message.timer().unwrap().name, TimerName::new("t").unwrap());
}

#[tokio::test]
async fn ordered_queue_keeps_order_of_plain_sql() {
    let (fixture, login) = producer().await;
    fixture.store.declare(&orders(), &QueuePolicy::by_key(OnFailure::Block)).await.unwrap();
    login
        .psql(
            "select postrider.stage('orders', n::text, key => 'k') from generate_series(1, 20) n order by n;
             select postrider.stage('orders', 'alone')",
        )
        .unwrap();
    let mut seen = Vec::new();
    loop {
        let claimed = claim(&fixture.store).await;
        if claimed.is_empty() {
            break;
        }
        seen.extend(claimed.iter().map(|one| (one.message.key().cloned(), one.message.payload().clone())));
        let done: Vec<_> = claimed.iter().map(|one| one.lease.done()).collect();
        fixture.store.settle(&done).await.unwrap();
    }
    let keyed: Vec<_> =
        seen.iter().filter(|(key, _)| key.is_some()).map(|(_, payload)| payload.clone()).collect();
    assert_eq!(keyed, (1..=20).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(seen.len(), 21);
}

#[tokio::test]
async fn staging_by_plain_sql_notifies_idle_worker() {
    let (fixture, login) = producer().await;
    let idle = IdleWorker { worker: uuid::Uuid::now_v7(), queues: vec![orders()] };
    let mut listener = fixture.store.listen(&[orders()]).await.unwrap();
    fixture.store.register_idle(&idle, Duration::from_secs(60)).await.unwrap();
    for statement in [
        "select postrider.stage('orders', 'x')",
        "select postrider.stage('orders', 'x', id => gen_random_uuid())",
        "insert into postrider.outbox (queue, payload) values ('orders', 'x')",
    ] {
        login.psql(statement).unwrap();
        let received = tokio::time::timeout(Duration::from_secs(10), listener.wait()).await;
        assert_eq!(received.expect(statement).unwrap(), orders());
    }
}

/// An SQL string literal.
fn literal(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('\'', "\\'");
    let escaped: String = escaped
        .chars()
        .map(|c| if c.is_control() { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() })
        .collect();
    format!("E'{escaped}'")
}

/// Invalid messages, and the same as SQL arguments.
fn bad_messages() -> Vec<(MessageBuilder, String)> {
    let texts = bad_texts().into_iter().map(|(message, name, value)| {
        let argument = format!("{name} => {}", literal(&value));
        (message, argument)
    });
    let times = [
        (
            order().due_after(Duration::from_secs(1)).due_at(SystemTime::now()),
            "due_after => '1 s', due_at => now()".to_owned(),
        ),
        (order().due_after(Duration::from_secs(200 * 366 * 86_400)), "due_after => '200 years'".to_owned()),
        (
            order().due_at(SystemTime::UNIX_EPOCH - Duration::from_secs(1)),
            "due_at => '1969-12-31 23:59:59Z'".to_owned(),
        ),
        (
            order().due_at(SystemTime::UNIX_EPOCH + Duration::from_secs(32_503_680_000)),
            "due_at => '3000-01-01 00:00:00Z'".to_owned(),
        ),
    ];
    texts.chain(times).collect()
}

#[tokio::test]
async fn invalid_arguments_have_same_errors_as_rust_api() {
    let (fixture, login) = producer().await;
    let cases = bad_messages();
    for (message, argument) in cases {
        let expected = message.build().unwrap_err().to_string();
        let queue =
            if argument.starts_with("queue") { String::new() } else { "queue => 'orders', ".to_owned() };
        let script = format!("select postrider.stage({queue}payload => '1', {argument})");
        assert_eq!(login.psql_error(&script), ("22023".to_owned(), expected), "{argument}");
    }
    // An insert and a cancellation have the same errors.
    let long = "x".repeat(256);
    let expected = ("22023".to_owned(), order().key(long.clone()).build().unwrap_err().to_string());
    let insert =
        format!("insert into postrider.outbox (queue, payload, key) values ('orders', '1', '{long}')");
    assert_eq!(login.psql_error(&insert), expected);
    for (queue, timer) in [("my orders", "t"), ("orders", ""), ("", "t"), ("orders", long.as_str())] {
        let rust = QueueName::new(queue).err().or_else(|| TimerName::new(timer).err()).unwrap();
        let script = format!("select postrider.cancel_timer('{queue}', '{timer}')");
        assert_eq!(login.psql_error(&script), ("22023".to_owned(), rust.to_string()));
    }
    assert!(fixture.store.counts().await.unwrap().is_empty(), "no queue was made, nothing was staged");
}

/// Names with all sorts of characters are accepted and refused alike, with the same errors.
#[tokio::test]
async fn random_names_are_checked_alike_in_sql_and_rust() {
    let (_fixture, login) = producer().await;
    let mut connection = PgConnection::connect(&login.url).await.unwrap();
    let mut random = rand::rng();
    let (mut taken, mut refused) = (0, 0);
    for round in 0..600 {
        let text = random_text(&mut random);
        let (message, sql) = match round % 3 {
            0 => (Message::builder(text.clone()), "select postrider.stage($1, '1'::text)"),
            1 => (order().key(text.clone()), "select postrider.stage('orders', '1'::text, key => $1)"),
            _ => (
                order().header(text.clone(), "v"),
                "select postrider.stage('orders', '1'::text, headers => jsonb_build_object($1::text, 'v'))",
            ),
        };
        let rust = message.build().map(|_| ()).map_err(|error| error.to_string());
        if round % 3 == 2 && text.contains('\u{ad}') {
            continue; // Inside quotes, invisible characters are spelled out by Rust alone.
        }
        let staged = sqlx::query(sql).bind(&text).execute(&mut connection).await;
        let sql = staged.map(|_| ()).map_err(|error| error.as_database_error().unwrap().message().to_owned());
        assert_eq!(sql, rust, "{text:?}");
        *if rust.is_ok() { &mut taken } else { &mut refused } += 1;
    }
    assert!(taken > 50 && refused > 50, "{taken} taken, {refused} refused");
}

/// Errors that the Rust types make impossible have texts of their own.
#[tokio::test]
async fn invalid_sql_only_arguments_are_refused_with_their_name() {
    let (fixture, login) = producer().await;
    for (script, expected) in [
        ("select postrider.stage(null, 'x')", "queue: must not be empty"),
        ("select postrider.stage('orders', null::text)", "payload: is missing"),
        ("insert into postrider.outbox (queue) values ('orders')", "payload: is missing"),
        (
            "insert into postrider.outbox (queue, payload, payload_json) values ('orders', '1', '2')",
            "payload: cannot be combined with payload_json: give one of the two",
        ),
        (
            "select postrider.stage('orders', repeat('x', 16777217))",
            "payload: is 16777217 bytes long; at most 16777216 bytes are allowed",
        ),
        (
            "select postrider.stage('orders', 'x', headers => '[]')",
            "headers: must be a JSON object of strings",
        ),
        ("select postrider.stage('orders', 'x', headers => '{\"a\": 1}')", "header \"a\": must be a string"),
        (
            "select postrider.stage('orders', 'x', on_conflict => 'replace')",
            "on_conflict: must be ignore or extend",
        ),
        ("select postrider.stage('orders', 'x', due_after => '-1 s')", "due_after: must not be negative"),
        ("select postrider.stage('orders', 'x', due_at => 'infinity')", "due_at: lies after the year 2170"),
    ] {
        assert_eq!(login.psql_error(script), ("22023".to_owned(), expected.to_owned()), "{script}");
    }
    assert!(fixture.store.counts().await.unwrap().is_empty());
}

#[tokio::test]
async fn stage_changes_trigger_stages_row_changes() {
    let (fixture, login) = producer().await;
    login
        .admin(&format!(
            "create table public.orders (id int primary key, shop text, buyer text);
             create trigger staged after insert or update or delete on public.orders
               for each row execute function postrider.stage_changes('orders', 'id', 'shop', 'buyer');
             grant select, insert, update, delete on public.orders to {}",
            login.name
        ))
        .await;
    login
        .psql(
            "begin; insert into orders values (1, 'acme', 'ada'); rollback;
             insert into orders values (17, 'acme', null);
             update orders set buyer = 'ada'; delete from orders",
        )
        .unwrap();
    let claimed = claim(&fixture.store).await;
    let seen: Vec<_> = claimed
        .iter()
        .map(|one| {
            let message = &one.message;
            let payload: serde_json::Value = serde_json::from_slice(message.payload()).unwrap();
            let subject = message.subject().map(|subject| subject.as_str().to_owned());
            assert_eq!(message.key().unwrap().as_str(), "17");
            assert_eq!(message.tenant().unwrap().as_str(), "acme");
            (message.event_type().unwrap().as_str().to_owned(), subject, payload)
        })
        .collect();
    let row = |buyer: Option<&str>| serde_json::json!({ "id": 17, "shop": "acme", "buyer": buyer });
    let change =
        |op: &str, old, new| serde_json::json!({ "op": op, "table": "orders", "old": old, "new": new });
    let ada = Some("ada".to_owned());
    assert_eq!(
        seen,
        [
            ("orders.insert".to_owned(), None, change("insert", serde_json::Value::Null, row(None))),
            ("orders.update".to_owned(), ada.clone(), change("update", row(None), row(Some("ada")))),
            ("orders.delete".to_owned(), ada, change("delete", row(Some("ada")), serde_json::Value::Null)),
        ]
    );
}

#[tokio::test]
async fn invalid_stage_changes_trigger_is_refused() {
    let (fixture, login) = producer().await;
    login.admin(&format!("create schema authorization {}", login.name)).await;
    login.psql("create table orders (id int)").unwrap();
    for (trigger, expected) in [
        (
            "after insert on orders for each row execute function postrider.stage_changes('orders', 'nope')",
            "stage_changes: table orders has no column nope",
        ),
        (
            "before insert on orders for each row execute function postrider.stage_changes('orders')",
            "stage_changes: write it as",
        ),
        (
            "after insert on orders execute function postrider.stage_changes('orders')",
            "stage_changes: write it as",
        ),
        (
            "after insert on orders for each row execute function postrider.stage_changes()",
            "stage_changes: write it as",
        ),
        (
            "after insert on orders for each row execute function postrider.stage_changes('my orders')",
            "queue: contains ' ' at byte 2; neither white space nor control characters are allowed",
        ),
    ] {
        let script = format!("begin; create trigger staged {trigger}; insert into orders values (1)");
        let (code, message) = login.psql_error(&script);
        assert_eq!(code, "22023", "{message}");
        assert!(message.starts_with(expected), "{trigger}: {message}");
    }
    assert!(fixture.store.counts().await.unwrap().is_empty());
}

/// A row change commits with its message or not at all, for every role.
#[tokio::test]
async fn row_change_by_role_without_grant_is_refused() {
    let fixture = PostgresFixture::new().await;
    let login = Login::without_grants(fixture.database.url()).await;
    login
        .admin(&format!(
            "create table public.orders (id int);
             create trigger staged after insert on public.orders
               for each row execute function postrider.stage_changes('orders', 'id');
             grant select, insert on public.orders to {}",
            login.name
        ))
        .await;
    assert_eq!(login.psql_error("insert into orders values (1)").0, "42501");
    assert_eq!(login.psql("select count(*) from orders").unwrap(), "0");
}

/// Making JSON of a row calls casts that the owner of the table wrote. They must not run with the privileges of our owner.
#[tokio::test]
async fn json_cast_in_trigger_runs_with_privileges_of_caller() {
    let (fixture, login) = producer().await;
    login.admin(&format!("create schema authorization {}", login.name)).await;
    login
        .psql(
            "create type mood as enum ('fine');
             create function shown(mood) returns json language sql as 'select to_json(current_user::text)';
             create cast (mood as json) with function shown(mood);
             create table moods (mood mood);
             create trigger staged after insert on moods for each row execute function postrider.stage_changes('orders');
             insert into moods values ('fine')",
        )
        .unwrap();
    let claimed = claim(&fixture.store).await;
    let payload: serde_json::Value = serde_json::from_slice(claimed[0].message.payload()).unwrap();
    assert_eq!(payload["new"]["mood"], login.name);
}

/// Functions with the owner's privileges ignore the caller's search path.
#[tokio::test]
async fn hostile_search_path_has_no_effect() {
    let (fixture, login) = producer().await;
    login.admin(&format!("create schema authorization {}", login.name)).await;
    login
        .psql(
            "create function octet_length(bytea) returns integer language plpgsql as 'begin raise ''mine''; end';
             create function convert_to(text, name) returns bytea language plpgsql as 'begin raise ''mine''; end';
             create function clock_timestamp() returns timestamptz language plpgsql as 'begin raise ''mine''; end';
             create temp table queue (id smallint, name text, ordered boolean);
             create temp table ready (id bigint);
             set search_path = pg_temp, \"$user\", pg_catalog;
             set standard_conforming_strings = off;
             select postrider.stage('orders', 'x'::text);
             select postrider.stage('orders', 'y'::text, timer => 't', due_after => '0 s');
             insert into postrider.outbox (queue, payload) values ('orders', 'z')",
        )
        .unwrap();
    let mut seen = payloads(&fixture.store).await;
    seen.sort();
    assert_eq!(seen, ["x", "y", "z"]);
    let refused = login.psql_error(
        "set search_path = pg_temp, pg_catalog; set standard_conforming_strings = off; select postrider.stage('a b', 'x'::text)",
    );
    assert_eq!(
        refused.1,
        "queue: contains ' ' at byte 1; neither white space nor control characters are allowed"
    );
}

#[tokio::test]
async fn plain_sql_works_with_other_schema_and_prefix() {
    let database = TestDatabase::empty().await;
    let options = PostgresOptions::new(database.url()).unwrap();
    let store =
        PostgresStore::open(options.with_names(PostgresNames::new("shop", "pr_").unwrap())).await.unwrap();
    store.migrate().await.unwrap();
    let login = Login::new(database.url(), &store, Role::Producer).await;
    login.admin(&format!("create schema authorization {}", login.name)).await;
    login
        .psql(
            "select shop.pr_stage('orders', 'a', headers => '{\"x\": \"y\"}');
             insert into shop.pr_outbox (queue, payload) values ('orders', 'b');
             create table t (id int);
             create trigger t after insert on t for each row execute function shop.pr_stage_changes('orders', 'id');
             insert into t values (1);
             select shop.pr_stage('orders', 'd', timer => 't', due_after => '1 h');
             select shop.pr_cancel_timer('orders', 't')",
        )
        .unwrap();
    assert_eq!(claim(&store).await.len(), 3);
    assert_eq!(login.psql("select shop.pr_contract()").unwrap(), "1");
    store.close().await;
}

/// The contract matches the guide: the columns of the view and the arguments of the function, in this order.
#[tokio::test]
async fn contract_1_matches_guide() {
    let (_fixture, login) = producer().await;
    let guide = include_str!("../../../docs/guides/plain-sql.md");
    let columns = login
        .psql("select attname || ' ' || format_type(atttypid, null) from pg_attribute where attrelid = 'postrider.outbox'::regclass order by attnum")
        .unwrap();
    let documented: Vec<_> = guide
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | `"))
        .map(|(name, rest)| format!("{name} {}", rest.split('`').next().unwrap()))
        .collect();
    assert_eq!(columns.lines().collect::<Vec<_>>(), documented);
    let arguments = login
        .psql("select array_to_string(proargnames, ' ') from pg_proc where pronamespace = 'postrider'::regnamespace and proname = 'stage' group by 1")
        .unwrap();
    let names: Vec<_> = documented
        .iter()
        .map(|line| line.split(' ').next().unwrap())
        .filter(|name| *name != "payload_json")
        .collect();
    assert_eq!(arguments, names.join(" "));
    assert_eq!(login.psql("select postrider.contract()").unwrap(), "1");
    assert!(guide.contains("contract 1"));
}
