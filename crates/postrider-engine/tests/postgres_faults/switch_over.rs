//! A switch-over by logical replication, as for an upgrade to another major version. It carries rows, and no sequences.

use crate::{
    orders::{Booking, batch},
    postgres_shop::PostgresShop,
    running_shop::{RunningShop, TIMEOUT},
    shop::{Ending, Shop, until},
};
use postrider_core::{
    ClaimRequest, Event, Message, MessageId, Outbox, Pausable, Settlement, Store,
    inspect::{Action, Operate},
    schema::Schema,
};
use postrider_testkit::server::{PrivatePostgres, Stop};
use rand::{SeedableRng, rngs::StdRng};
use sqlx::{AssertSqlSafe, Executor, PgPool};
use std::time::SystemTime;

/// Removes the rows that a migration writes, because they are replicated, too. The ledger refuses that otherwise.
const EMPTY: &str = "alter table postrider.ledger_head disable trigger all; \
    truncate postrider.migration, postrider.ledger_head; \
    do $$ declare v_trigger name; begin \
      for v_trigger in select tgname from pg_trigger where tgrelid = 'postrider.ledger_head'::regclass loop \
        execute format('alter table postrider.ledger_head enable always trigger %I', v_trigger); \
      end loop; end $$";

/// A server that can publish its changes.
async fn publisher() -> PrivatePostgres {
    let mut server = PrivatePostgres::start().await;
    let admin = PgPool::connect(&server.url()).await.unwrap();
    admin.execute("alter system set wal_level = logical").await.unwrap();
    admin.close().await;
    server.stop(Stop::Fast);
    server.resume().await;
    server
}

/// Copies all rows of one server to another, with the changes up to this moment.
async fn replicate(from: &PrivatePostgres, old: &PgPool, new: &PgPool) {
    let subscribe = format!(
        "create subscription switch_over connection 'host=127.0.0.1 port={} user=postgres dbname=postgres' publication shop",
        from.port()
    );
    new.execute(AssertSqlSafe(subscribe)).await.unwrap();
    let end: String = sqlx::query_scalar("select pg_current_wal_lsn()::text").fetch_one(old).await.unwrap();
    let is_copied = "select coalesce(bool_and(srsubstate = 'r'), false) from pg_subscription_rel";
    let is_sent =
        "select coalesce(bool_and(confirmed_flush_lsn >= $1::pg_lsn), false) from pg_replication_slots";
    until("the rows are not copied", TIMEOUT, async || {
        sqlx::query_scalar::<_, bool>(is_copied).fetch_one(new).await.unwrap()
            && sqlx::query_scalar::<_, bool>(is_sent).bind(&end).fetch_one(old).await.unwrap()
    })
    .await;
    new.execute("drop subscription switch_over").await.unwrap();
}

/// Staging and an operator's action fail loudly; after the printed fixes everything that was committed is delivered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logical_switch_over_is_reported_and_loses_nothing() {
    let (old_server, new_server) = (publisher().await, PrivatePostgres::start().await);
    let old = PostgresShop::open(&old_server.url()).await;
    old.build().await;
    let new = PostgresShop::open(&new_server.url()).await;
    new.build().await;
    new.app.execute(EMPTY).await.unwrap();

    // The old server works on while its changes are published.
    let publication = "create publication shop for all tables with (publish_via_partition_root = true)";
    old.app.execute(publication).await.unwrap();
    let action = Action::new("nell", "a test");
    let bookings = Pausable::Queue(Booking::QUEUE.parse().unwrap());
    old.store.pause(&bookings, &action).await.unwrap();
    old.store.resume(&bookings, &action).await.unwrap();
    let (messages, doomed) = batch(&mut StdRng::seed_from_u64(61), 200);
    old.produce(&messages, &doomed, Ending::Commit).await.unwrap();
    let claimed = old.store.claim(&ClaimRequest::new(Booking::QUEUE.parse().unwrap(), 20)).await.unwrap();
    let released: Vec<_> = claimed.iter().map(|claimed| claimed.lease.settle(Settlement::Release)).collect();
    assert_eq!(old.store.settle(&released).await.unwrap(), []);
    replicate(&old_server, &old.app, &new.app).await;
    old.store.close().await;

    // Among twenty positions is one that a message of the queue has.
    let message = |_| Message::builder(Booking::QUEUE).payload("{}").build().unwrap();
    let plain: Vec<Message> = (0..20).map(message).collect();
    let given = plain.iter().map(|message| message.clone().identified(MessageId::at(SystemTime::now())));
    for messages in [plain.clone(), given.collect()] {
        let mut tx = new.app.begin().await.unwrap();
        let staged = new.store.outbox().stage_all(&mut tx, &messages).await;
        assert!(staged.is_err(), "a taken position is no success: {staged:?}");
    }
    assert!(new.store.pause(&bookings, &action).await.is_err(), "an action without an audit row");
    let drifts = new.store.validate().await.unwrap();
    let objects: Vec<_> = drifts.iter().map(|drift| drift.object.as_str()).collect();
    assert_eq!(objects, ["sequence message_position", "sequence of audit.id"]);
    for drift in drifts {
        new.app.execute(AssertSqlSafe(drift.fix.unwrap())).await.unwrap();
    }
    assert_eq!(new.store.validate().await.unwrap(), []);

    new.store.pause(&bookings, &action).await.unwrap();
    new.store.resume(&bookings, &action).await.unwrap();
    let running_shop = RunningShop::open(&new, 67);
    running_shop.until_committed(100).await;
    let staged = running_shop.finish(&new).await.check("after the switch-over");
    assert!(staged >= 300, "only {staged} messages were staged");
}
