//! Out of the outbox to a broker by a route, and into a queue by a consumer: one program, one file, and everything is staged once.

use super::{
    health::{metric, told_in},
    program::{AtWork, postrider},
};
use nix::sys::signal::Signal;
use postrider::{
    Format, Message, MessageId, Outgoing, Reason, Transport,
    inspect::{Entry, Inspect, ListRequest, Room},
    postgres::PostgresStore,
};
use postrider_testkit::postgres::TestDatabase;
use sqlx::{Connection, PgConnection};
use std::{fs, net::SocketAddr, sync::Arc, time::SystemTime};
use tempfile::{TempDir, tempdir};
use uuid::Uuid;

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Where the messages of a test go, and come from again.
pub(crate) struct Broker {
    /// What stands below `[destinations.events]`.
    pub(crate) destination: String,
    /// The place there, as a route names it.
    pub(crate) address: String,
    /// What stands in `source = { … }`.
    pub(crate) source: String,
    pub(crate) environment: Vec<(&'static str, String)>,
    /// For what the program would never send.
    pub(crate) transport: Arc<dyn Transport>,
}

struct Trip {
    broker: Broker,
    database: TestDatabase,
    folder: TempDir,
}

impl Trip {
    async fn plan(broker: Broker) -> Self {
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

    /// The program, once it receives, and where it tells how it is.
    fn start(&self) -> (AtWork, SocketAddr) {
        let mut command = postrider(&["run", "--migrate"]);
        command.current_dir(self.folder.path()).env("SHOP_DB", self.database.url());
        command.envs(self.broker.environment.iter().map(|(name, value)| (name, value)));
        for variable in ["POSTRIDER_CONFIG", "POSTRIDER_HTTP_LISTEN", "POSTRIDER_LOG_FORMAT", "NOTIFY_SOCKET"]
        {
            command.env_remove(variable);
        }
        let mut daemon = AtWork::start(&mut command);
        let health = told_in(&daemon.until("listening at http://"));
        daemon.until("receiving consumer");
        (daemon, health)
    }

    /// As any program does it. What waits already is not staged again.
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

fn is_as_staged(entry: &Entry) {
    let message = &entry.message;
    assert_eq!(message.event_type().unwrap().as_str(), "order.placed");
    assert_eq!(message.key().unwrap().as_str(), "order-17");
    assert_eq!(message.tenant().unwrap().as_str(), "acme");
    assert_eq!(message.headers().get("colour"), Some("red"));
    assert_eq!(message.trail().traceparent.as_deref(), Some(TRACE));
}

/// A message goes out and comes in; it is sent again and has come before; the program is killed and goes on; what cannot be read is kept.
pub(crate) async fn round_trip(broker: Broker) {
    let trip = Trip::plan(broker).await;
    let (daemon, health) = trip.start();
    let store = PostgresStore::connect(trip.database.url()).await.unwrap();
    let list = async |queue: &str, room| {
        store.list(&ListRequest::new(queue.parse().unwrap(), room)).await.unwrap().entries
    };
    let incoming = async || list("incoming", Room::Ready).await;
    // Nothing is on its way. What a killed process has in its hands comes back only when its lease has lapsed.
    let at_rest = async |health| {
        while !list("orders", Room::Ready).await.is_empty()
            || metric(health, "postrider_receive_in_hand{consumer=\"billing\"}").await > 0
        {
            tokio::task::yield_now().await;
        }
    };
    trip.stage(1).await;
    while incoming().await.is_empty() {
        tokio::task::yield_now().await;
    }
    // Some brokers keep a duplicate to themselves for a moment, so it is sent until one has come.
    while metric(health, "postrider_received_total{consumer=\"billing\",outcome=\"duplicate\"}").await == 0 {
        trip.stage(1).await;
    }
    at_rest(health).await;
    daemon.signal(Signal::SIGKILL);
    daemon.end();

    let (mut daemon, health) = trip.start();
    trip.stage(1).await;
    trip.stage(2).await;
    while incoming().await.len() < 2 {
        tokio::task::yield_now().await;
    }
    at_rest(health).await;
    let message = Message::builder("orders").payload("no event").build().unwrap();
    let place = trip.broker.address.clone();
    let mut unreadable =
        Outgoing::write(&message, id(3), SystemTime::now(), "/elsewhere", place, Format::Binary).unwrap();
    unreadable.attributes = vec![("specversion", "1.0".into())];
    trip.broker.transport.publish(&[unreadable]).await.pop().unwrap().unwrap();
    trip.broker.transport.close().await;
    daemon.until("kept as a dead letter");
    daemon.signal(Signal::SIGTERM);
    let ended = daemon.end();
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), ""), "{ended:?}");
    assert!(ended.err.contains("processed=1 is_clean=true"), "{ended:?}");

    let mut arrived = incoming().await;
    arrived.iter().for_each(is_as_staged);
    arrived.sort_by_key(|entry| entry.message.id());
    let arrived: Vec<_> =
        arrived.iter().map(|entry| (entry.message.id().unwrap(), &entry.message.payload()[..])).collect();
    assert_eq!(arrived, [(id(1), &b"1"[..]), (id(2), b"2")]);
    let kept = list("inbox.billing", Room::Dead).await;
    let [kept] = &kept[..] else { panic!("{kept:?}") };
    assert_eq!((kept.reason, &kept.message.payload()[..]), (Some(Reason::Undecodable), &b"no event"[..]));
    assert!(kept.message.headers().get("postrider-origin").is_some(), "{kept:?}");
}
