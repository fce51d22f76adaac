//! One daemon, one file: messages that Python and SQL stage in PostgreSQL arrive in RabbitMQ, NATS, Redis, Kafka and as webhooks, across
//! reloads of the file.

#![cfg(all(unix, feature = "rabbitmq", feature = "nats", feature = "redis", feature = "kafka"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../../postrider-stores/tests/support/polyglot.rs"]
mod polyglot;
mod support;

use nix::sys::signal::Signal;
use postrider::{
    Ack, Source,
    transports::{kafka::KafkaSource, nats::NatsSource, rabbitmq::RabbitMqSource, redis::RedisSource},
};
use postrider_testkit::{Kind, postgres::TestDatabase, shared};
use sqlx::{Connection, PgConnection};
use std::{
    collections::BTreeSet,
    fs,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};
use support::{
    places,
    program::{AtWork, postrider, run},
    webhooks::Webhooks,
};
use tempfile::{TempDir, tempdir};
use tokio::{sync::watch, task::JoinHandle, time::MissedTickBehavior};
use uuid::Uuid;

/// The number of orders before and after each reload, in addition to those during it.
const ORDERS: usize = 100;
/// The interval between orders: Tansu has to keep up with them.
const ORDER_INTERVAL: Duration = Duration::from_millis(5);

const VARIABLES: [(&str, Kind); 4] = [
    ("AMQP_URL", Kind::RabbitMq),
    ("NATS_URL", Kind::Nats),
    ("REDIS_URL", Kind::Redis),
    ("KAFKA_URL", Kind::Kafka),
];

/// A database, an endpoint of this name at every broker, and the folder with the file.
struct Shop {
    database: TestDatabase,
    folder: TempDir,
    name: String,
    webhooks: Webhooks,
}

impl Shop {
    async fn open() -> Self {
        let name = format!("T{}", Uuid::now_v7().simple());
        places::rabbitmq_queue(&name).await;
        let nats = async_nats::connect(shared::url(Kind::Nats)).await.unwrap();
        places::nats_stream(nats, &name, Duration::from_secs(120)).await;
        places::kafka_topic(&name);
        let (database, folder) = (TestDatabase::empty().await, tempdir().unwrap());
        let shop = Self { database, folder, name, webhooks: Webhooks::listen().await };
        shop.write_config(&["orders"]);
        shop
    }

    /// Writes the file with routes from these queues to every destination.
    fn write_config(&self, queues: &[&str]) {
        let Self { name, webhooks, .. } = self;
        let mut text = format!(
            "source = \"/shop\"\n[databases.shop]\nurl_env = \"SHOP_DB\"\n[http]\nlisten = \"off\"\n\
             [destinations.rabbitmq]\nkind = \"rabbitmq\"\nurl_env = \"AMQP_URL\"\n\
             [destinations.nats]\nkind = \"nats\"\nurl_env = \"NATS_URL\"\n\
             [destinations.redis]\nkind = \"redis\"\nurl_env = \"REDIS_URL\"\n\
             [destinations.kafka]\nkind = \"kafka\"\nurl_env = \"KAFKA_URL\"\n\
             [destinations.hooks]\nkind = \"webhook\"\nurl = \"http://{}/hooks\"\nallow_http = true\n\
             allow_networks = [\"127.0.0.0/8\"]\n",
            webhooks.address
        );
        for queue in queues {
            let to = [("rabbitmq", ""), ("nats", ".placed"), ("redis", ""), ("kafka", ""), ("hooks", "")]
                .map(|(to, rest)| format!("{{ destination = \"{to}\", address = \"{name}{rest}\" }}"));
            text += &format!("[[routes]]\nqueue = \"{queue}\"\nto = [{}]\n", to.join(", "));
        }
        fs::write(self.folder.path().join("postrider.toml"), text).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = postrider(arguments);
        command.current_dir(self.folder.path()).env("SHOP_DB", self.database.url());
        command.env_remove("NOTIFY_SOCKET").env_remove("POSTRIDER_CONFIG").env_remove("POSTRIDER_LOG_FORMAT");
        for (variable, kind) in VARIABLES {
            command.env(variable, shared::url(kind));
        }
        command
    }

    /// The URL without parameters, for drivers of other languages.
    fn url(&self) -> &str {
        self.database.url().split('?').next().unwrap()
    }

    /// Runs a script with psql.
    fn psql(&self, script: &str) {
        let mut psql = Command::new("psql");
        psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", script, self.url()]);
        let ended = run(&mut psql);
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }

    /// A source for each broker.
    fn sources(&self) -> Vec<Arc<dyn Source>> {
        let name = self.name.as_str();
        let nats = NatsSource::builder(shared::url(Kind::Nats), name, "billing");
        let nats = nats.with_created_consumer(format!("{name}.>"), Duration::from_secs(60));
        let redis = RedisSource::builder(shared::url(Kind::Redis), name).with_group("billing").create_group();
        let kafka = KafkaSource::builder(shared::url(Kind::Kafka), name).with_group(name);
        // Tansu looks for each record's headers among those of all records of its answer, so answers are small.
        let kafka =
            kafka.with_property("message.max.bytes", "65536").with_property("fetch.max.bytes", "65536");
        vec![
            Arc::new(RabbitMqSource::connect(shared::url(Kind::RabbitMq), name).unwrap()),
            Arc::new(nats.build().unwrap()),
            Arc::new(redis.build().unwrap()),
            Arc::new(kafka.build().unwrap()),
        ]
    }
}

/// A producer that stages one order after the other, each in a transaction of its own, until it is stopped.
struct Producer {
    staged: Arc<AtomicUsize>,
    is_stopping: watch::Sender<bool>,
    staging: JoinHandle<()>,
}

impl Producer {
    async fn start(url: &str) -> Self {
        let mut connection = PgConnection::connect(url).await.unwrap();
        let (staged, is_stopping) = (Arc::<AtomicUsize>::default(), watch::Sender::new(false));
        let (count, stopping) = (Arc::clone(&staged), is_stopping.subscribe());
        let mut interval = tokio::time::interval(ORDER_INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let staging = tokio::spawn(async move {
            while !*stopping.borrow() {
                interval.tick().await;
                let order = count.load(SeqCst);
                sqlx::query("insert into postrider.outbox (queue, payload) values ('orders', $1)")
                    .bind(format!("till {order}").into_bytes())
                    .execute(&mut connection)
                    .await
                    .unwrap();
                count.fetch_add(1, SeqCst);
            }
        });
        Self { staged, is_stopping, staging }
    }

    /// Waits until this many more orders are staged.
    async fn wait_for(&self, more: usize) {
        let goal = self.staged.load(SeqCst) + more;
        while self.staged.load(SeqCst) < goal {
            assert!(!self.staging.is_finished(), "the producer has ended");
            tokio::task::yield_now().await;
        }
    }

    async fn stop(self) -> usize {
        self.is_stopping.send_replace(true);
        self.staging.await.unwrap();
        self.staged.load(SeqCst)
    }
}

/// Receives and acks until every expected message has arrived, and asserts that no other does.
async fn receive_all(source: Arc<dyn Source>, expected: Arc<BTreeSet<String>>) {
    let mut missing = (*expected).clone();
    while !missing.is_empty() {
        let received =
            source.receive(1000).await.unwrap_or_else(|error| panic!("{}: {error}", source.kind()));
        let mut acks = Vec::new();
        for message in received {
            let body = String::from_utf8(message.incoming.body.to_vec()).unwrap();
            assert!(expected.contains(&body), "{} delivers {body:?}, which was not staged", source.kind());
            missing.remove(&body);
            acks.push((message.ack_handle, Ack::Ack));
        }
        source.ack(&acks).await;
    }
    source.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_from_python_and_sql_reach_every_broker_across_reloads() {
    let mut shop = Shop::open().await;
    let mut daemon = AtWork::start(&mut shop.command(&["run", "--migrate"]));
    daemon.until(": ready");
    shop.psql("create table orders (id int primary key, placed_by text)");

    // In the transaction of an ordinary driver, and with psql.
    let mut expected = BTreeSet::new();
    for order in 1..=3 {
        polyglot::run(polyglot::python().arg(order.to_string()).env("DATABASE_URL", shop.url()));
        expected.insert(format!("{{\"order\": {order}}}"));
    }
    shop.psql(
        "begin; select postrider.stage('orders', 'by hand'); \
         insert into postrider.outbox (queue, payload) values ('orders', 'into the view'); commit;",
    );
    shop.psql("begin; select postrider.stage('orders', 'never'); rollback;");
    expected.extend(["by hand".to_owned(), "into the view".to_owned()]);

    // Adds a route while orders come in. Its queue has messages already.
    let producer = Producer::start(shop.database.url()).await;
    shop.psql("select postrider.stage('bills', 'bill ' || i) from generate_series(1, 100) i");
    expected.extend((1..=100).map(|number| format!("bill {number}")));
    producer.wait_for(ORDERS).await;
    shop.write_config(&["orders", "bills"]);
    daemon.signal(Signal::SIGHUP);
    daemon.until("configuration reloaded");
    producer.wait_for(ORDERS).await;

    // An invalid file changes nothing.
    let file = shop.folder.path().join("postrider.toml");
    let good = fs::read_to_string(&file).unwrap();
    fs::write(&file, good.replace("kind = \"redis\"", "kind = \"reddis\"")).unwrap();
    daemon.signal(Signal::SIGHUP);
    let failed = daemon.until("reload failed: ");
    assert!(failed.contains("postrider.toml:13: destinations.redis.kind cannot be \"reddis\""), "{failed}");
    assert!(failed.contains("did you mean \"redis\"?"), "{failed}");
    daemon.until("the previous configuration stays in effect");
    shop.psql("select postrider.stage('bills', 'after the failed reload')");
    expected.insert("after the failed reload".to_owned());
    producer.wait_for(ORDERS).await;

    let staged = producer.stop().await;
    expected.extend((0..staged).map(|order| format!("till {order}")));
    let hooks = expected.iter().map(|body| format!("/hooks/{} {body}", shop.name)).collect::<BTreeSet<_>>();
    assert_eq!(BTreeSet::from_iter(shop.webhooks.next(expected.len()).await), hooks);
    let expected = Arc::new(expected);
    let receiving = shop.sources().into_iter().map(|source| receive_all(source, Arc::clone(&expected)));
    for received in receiving.map(tokio::spawn).collect::<Vec<_>>() {
        received.await.unwrap();
    }

    daemon.signal(Signal::SIGTERM);
    let ended = daemon.end();
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), ""), "{ended:?}");
    assert!(ended.err.contains("clean=true"), "{ended:?}");
    // Only the reminders of the Python script are left, which are due in an hour.
    let status = run(&mut shop.command(&["status", "--json", "--db", shop.database.url()])).report();
    for queue in status["queues"].as_array().unwrap() {
        let waiting = if queue["queue"] == "reminders" { 3 } else { 0 };
        assert_eq!(queue["scheduled"]["count"], waiting, "{status}");
        for none in ["pending", "leased", "dead"] {
            assert_eq!(queue[none]["count"], 0, "{status}");
        }
    }
}
