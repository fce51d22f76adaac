//! Fairness between tenants, specific to PostgreSQL: every staging path, and rows whose producers did not know of it.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/postgres.rs"]
mod support;

use postrider_core::{
    ClaimRequest, ClaimedMessage, Message, MessageBuilder, MessageId, Outbox, OutboxExt, QueueName,
    QueuePolicy, Reason, Store,
    inspect::{Action, Operate},
    schema::Schema,
};
use postrider_testkit::Fixture;
use sqlx::{Executor, Row};
use std::time::{Duration, SystemTime};
use support::PostgresFixture;

fn orders() -> QueueName {
    QueueName::new("orders").unwrap()
}

fn of(tenant: &str) -> MessageBuilder {
    Message::builder("orders").tenant(tenant).payload("{}")
}

async fn declare(fixture: &PostgresFixture) {
    fixture.store.declare(&orders(), &QueuePolicy::default().fair_by_tenant()).await.unwrap();
}

async fn stage_all(fixture: &PostgresFixture, messages: &[Message]) {
    let mut tx = fixture.begin().await;
    fixture.outbox().stage_all(&mut tx, messages).await.unwrap();
    fixture.commit(tx).await;
}

async fn claim(fixture: &PostgresFixture, limit: usize) -> Vec<ClaimedMessage> {
    fixture.store.claim(&ClaimRequest::new(orders(), limit)).await.unwrap()
}

async fn done(fixture: &PostgresFixture, claimed: &[ClaimedMessage]) {
    let done: Vec<_> = claimed.iter().map(|each| each.lease.done()).collect();
    assert_eq!(fixture.store.settle(&done).await.unwrap(), []);
}

/// The numbers of rows with and without the mark for the index by tenant.
async fn lined_up(fixture: &PostgresFixture) -> (i64, i64) {
    let count = "select count(*) filter (where fair), count(*) filter (where fair is null) from postrider.ready \
        where queue = (select id from postrider.queue where name = 'orders')";
    let row = sqlx::query(count).fetch_one(&fixture.app).await.unwrap();
    (row.get(0), row.get(1))
}

/// Claimers would find rows without the mark, but late, and at the price of a write.
#[tokio::test]
async fn every_staging_path_marks_rows_of_fair_queue() {
    let fixture = PostgresFixture::new().await;
    declare(&fixture).await;
    stage_all(&fixture, &[of("a").build().unwrap()]).await;
    stage_all(&fixture, &[of("a").build().unwrap(), Message::builder("plain").build().unwrap()]).await;
    stage_all(&fixture, &[of("a").id(MessageId::at(SystemTime::now())).build().unwrap()]).await;
    fixture.run("select postrider.stage('orders', '{}', tenant => 'a')").await;
    fixture.run("select postrider.stage('orders', '{}', tenant => 'a', id => gen_random_uuid())").await;
    fixture.run("insert into postrider.outbox (queue, payload_json) values ('orders', '{}')").await;
    fixture
        .run("select postrider.stage_new('orders', array[gen_random_uuid()], array['{}'::bytea], '{}', '{}', '{}', '{}', '{}', '{}')")
        .await;
    assert_eq!(lined_up(&fixture).await, (7, 0));

    // Rows that return to `ready` are marked, too.
    let claimed = claim(&fixture, 7).await;
    let (again, dead) =
        (claimed[0].lease.retry(Duration::ZERO, ""), claimed[1].lease.dead(Reason::Rejected, ""));
    assert_eq!(fixture.store.settle(&[again, dead]).await.unwrap(), []);
    let action = Action::new("ada", "ticket 17");
    fixture.store.requeue(&orders(), &[claimed[1].id()], &action).await.unwrap();
    assert_eq!(claim(&fixture, 7).await.len(), 2);
    assert_eq!(lined_up(&fixture).await, (7, 0));

    let plain = sqlx::query(
        "select coalesce(bool_or(fair), false) from postrider.ready where tenant is null and queue <> (select id \
        from postrider.queue where name = 'orders')",
    );
    assert!(!plain.fetch_one(&fixture.app).await.unwrap().get::<bool, _>(0), "other queues pay nothing");
}

/// A transaction that read its queue before it was declared stages by the old policy. Claimers mark its messages, although they lie
/// behind a backlog, and although one of them is locked when a claimer passes it.
#[tokio::test]
async fn rows_staged_without_fair_mark_are_claimed() {
    let fixture = PostgresFixture::new().await;
    let noisy: Vec<_> = (0..5_000).map(|_| of("noisy").build().unwrap()).collect();
    stage_all(&fixture, &noisy).await;
    let mut unknowing = fixture.begin().await;
    unknowing.execute("set transaction isolation level repeatable read").await.unwrap();
    unknowing.execute("select 1 from postrider.queue").await.unwrap();
    declare(&fixture).await;
    assert_eq!(lined_up(&fixture).await, (5_000, 0));
    let mut strays = Vec::new();
    for _ in 0..3 {
        let staged = fixture.outbox().stage(&mut unknowing, of("quiet")).await.unwrap();
        strays.extend(staged.id());
    }
    fixture.commit(unknowing).await;
    assert_eq!(lined_up(&fixture).await, (5_000, 3));
    let mut other = fixture.begin().await;
    other
        .execute("select 1 from postrider.ready where id = (select id from postrider.ready where fair is null order by id offset 1 limit 1) for update")
        .await
        .unwrap();

    let mut found = Vec::new();
    let mut handled = 0;
    while found.len() < 2 {
        let claimed = claim(&fixture, 100).await;
        assert!(!claimed.is_empty(), "{found:?} after {handled}");
        found.extend(
            claimed
                .iter()
                .filter(|each| each.message.tenant().unwrap().as_str() == "quiet")
                .map(ClaimedMessage::id),
        );
        handled += claimed.len();
        done(&fixture, &claimed).await;
    }
    assert!(handled < 1_000, "long before the backlog is done: {handled}");
    fixture.rollback(other).await;
    while found.len() < 3 {
        let claimed = claim(&fixture, 100).await;
        assert!(!claimed.is_empty());
        found.extend(
            claimed
                .iter()
                .filter(|each| each.message.tenant().unwrap().as_str() == "quiet")
                .map(ClaimedMessage::id),
        );
        done(&fixture, &claimed).await;
    }
    found.sort_unstable();
    strays.sort_unstable();
    assert_eq!(found, strays);
}

/// Far more tenants than are remembered come and go, and none of their messages is lost.
#[tokio::test]
async fn forgotten_tenants_are_found_again() {
    let fixture = PostgresFixture::new().await;
    declare(&fixture).await;
    for round in 0..3 {
        let batch: Vec<_> =
            (0..3_000).map(|number| of(&format!("tenant-{number}")).build().unwrap()).collect();
        stage_all(&fixture, &batch).await;
        let mut left = batch.len();
        while left > 0 {
            let claimed = claim(&fixture, 1_000).await;
            assert!(!claimed.is_empty(), "round {round}: {left} left");
            left -= claimed.len();
            done(&fixture, &claimed).await;
        }
        // No tenant has messages left, and the sweep after an empty claim finds that out.
        assert_eq!(claim(&fixture, 1_000).await.len(), 0);
        assert!(fixture.store.tenant_low_water_marks(&orders()).await.1.len() <= 1_000, "round {round}");
    }
}
