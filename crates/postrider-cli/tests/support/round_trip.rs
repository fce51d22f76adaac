//! From the outbox to a broker by a route, and into a queue by a consumer, in one daemon: each message is staged once.

use super::{
    health::{address_in, metric},
    program::{AtWork, postrider},
};
use nix::sys::signal::Signal;
use postrider::{
    Format, Message, MessageId, Outgoing, Reason, Transport,
    inspect::{Inspect, ListRequest, MessageRow, StateFilter},
    postgres::PostgresStore,
};
use postrider_testkit::postgres::TestDatabase;
use sqlx::{Connection, PgConnection};
use std::{fs, net::SocketAddr, sync::Arc, time::SystemTime};
use tempfile::{TempDir, tempdir};
use uuid::Uuid;

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// The broker of a round trip.
pub(crate) struct Broker {
    /// The keys of `[destinations.events]`.
    pub(crate) destination: String,
    /// The address of the route.
    pub(crate) address: String,
    /// The keys of `source = { … }`.
    pub(crate) source: String,
    pub(crate) environment: Vec<(&'static str, String)>,
    /// For messages that the daemon would never send.
    pub(crate) transport: Arc<dyn Transport>,
}

struct RoundTrip {
    broker: Broker,
    database: TestDatabase,
    folder: TempDir,
}

impl RoundTrip {
    async fn new(broker: Broker) -> Self {
        let trip = Self { database: TestDatabase::empty().await, folder: tempdir().unwrap(), broker };
        let Broker { destination, address, source, .. } = &trip.broker;
        let text = format!(
            "source = \"/shop\"\n[databases.shop]\nurl_env = \"SHOP_DB\"\n[http]\nlisten = \"127.0.0.1:0\"\n\
             [destinations.events]\n{destination}\n\
             [[routes]]\nqueue = \"orders\"\nto = [{{ destination = \"events\", address = \"{address}\" }}]\n\
             [[consumers]]\nname = \"billing\"\nto = \"incoming\"\nsource = {{ {source} }}\n"
        );
        fs::write(trip.folder.path().join("postrider.toml"), text).unwrap();
        trip
    }

    /// Starts the daemon, waits until it receives, and returns the address of its endpoints.
    fn start(&self) -> (AtWork, SocketAddr) {
        let mut command = postrider(&["run", "--migrate"]);
        command.current_dir(self.folder.path()).env("SHOP_DB", self.database.url());
        command.envs(self.broker.environment.iter().map(|(name, value)| (name, value)));
        for variable in ["POSTRIDER_CONFIG", "POSTRIDER_HTTP_LISTEN", "POSTRIDER_LOG_FORMAT", "NOTIFY_SOCKET"]
        {
            command.env_remove(variable);
        }
        let mut daemon = AtWork::start(&mut command);
        let health = address_in(&daemon.until("endpoints listening on http://"));
        daemon.until("started, receiving from");
        (daemon, health)
    }

    /// Stages with plain SQL. A message that is still pending is not staged again.
    async fn stage(&self, number: u32) {
        let mut connection = PgConnection::connect(self.database.url()).await.unwrap();
        let stage = "select postrider.stage('orders', $1, type => 'order.placed', key => 'order-17', tenant => 'acme', \
                     headers => '{\"colour\": \"red\"}', id => $2, traceparent => $3)";
        let staging = sqlx::query(stage).bind(number.to_string()).bind(id(number).as_uuid()).bind(TRACE);
        staging.execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    }
}

fn id(number: u32) -> MessageId {
    MessageId::from_uuid(Uuid::from_u128(number.into()))
}

fn is_as_staged(entry: &MessageRow) {
    let message = &entry.message;
    assert_eq!(message.event_type().unwrap().as_str(), "order.placed");
    assert_eq!(message.key().unwrap().as_str(), "order-17");
    assert_eq!(message.tenant().unwrap().as_str(), "acme");
    assert_eq!(message.headers().get("colour"), Some("red"));
    assert_eq!(message.trail().traceparent.as_deref(), Some(TRACE));
}

/// A message goes out and comes in; its duplicate is dropped; the daemon is killed and restarted; an undecodable message is dead-lettered.
pub(crate) async fn round_trip(broker: Broker) {
    let trip = RoundTrip::new(broker).await;
    let (daemon, health) = trip.start();
    let store = PostgresStore::connect(trip.database.url()).await.unwrap();
    let list = async |queue: &str, room| {
        store.list(&ListRequest::new(queue.parse().unwrap(), room)).await.unwrap().entries
    };
    let incoming = async || list("incoming", StateFilter::Ready).await;
    // Waits until no message is in flight: those of a killed process are redelivered only when their lease has expired.
    let until_idle = async |health| {
        while !list("orders", StateFilter::Ready).await.is_empty()
            || metric(health, "postrider_consumer_in_flight{consumer=\"billing\"}").await > 0
        {
            tokio::task::yield_now().await;
        }
    };
    trip.stage(1).await;
    while incoming().await.is_empty() {
        tokio::task::yield_now().await;
    }
    // Some brokers drop duplicates for a while, so the message is sent until a duplicate has arrived.
    while metric(health, "postrider_received_total{consumer=\"billing\",outcome=\"duplicate\"}").await == 0 {
        trip.stage(1).await;
    }
    until_idle(health).await;
    daemon.signal(Signal::SIGKILL);
    daemon.end();

    let (mut daemon, health) = trip.start();
    trip.stage(1).await;
    trip.stage(2).await;
    while incoming().await.len() < 2 {
        tokio::task::yield_now().await;
    }
    until_idle(health).await;
    let message = Message::builder("orders").payload("no event").build().unwrap();
    let address = trip.broker.address.clone();
    let mut unreadable =
        Outgoing::write(&message, id(3), SystemTime::now(), "/elsewhere", address, Format::Binary).unwrap();
    unreadable.attributes = vec![("specversion", "1.0".into())];
    trip.broker.transport.publish(&[unreadable]).await.pop().unwrap().unwrap();
    trip.broker.transport.close().await;
    daemon.until("dead-lettered in queue");
    daemon.signal(Signal::SIGTERM);
    let ended = daemon.end();
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), ""), "{ended:?}");
    assert!(ended.err.contains("delivered=1 clean=true"), "{ended:?}");

    let mut arrived = incoming().await;
    arrived.iter().for_each(is_as_staged);
    arrived.sort_by_key(|entry| entry.message.id());
    let arrived: Vec<_> =
        arrived.iter().map(|entry| (entry.message.id().unwrap(), &entry.message.payload()[..])).collect();
    assert_eq!(arrived, [(id(1), &b"1"[..]), (id(2), b"2")]);
    let kept = list("inbox.billing", StateFilter::Dead).await;
    let [kept] = &kept[..] else { panic!("{kept:?}") };
    assert_eq!((kept.reason, &kept.message.payload()[..]), (Some(Reason::Undecodable), &b"no event"[..]));
    assert!(kept.message.headers().get("postrider-origin").is_some(), "{kept:?}");
}
