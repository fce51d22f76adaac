//! A backlog whose exchange, queue, stream or topic does not exist yet: no attempt is counted, however long that takes, and after somebody
//! has created it every message arrives. On the real brokers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/kafka.rs"]
mod kafka_server;
#[path = "support/nats.rs"]
mod nats_server;
#[path = "support/rabbit.rs"]
mod rabbit;
#[path = "support/redis.rs"]
mod redis_server;
#[path = "support/sqs.rs"]
mod sqs_server;
mod support;

use async_trait::async_trait;
use lapin::{ExchangeKind, types::FieldTable};
use postrider_core::{
    Capacity, Finding, Message, OutboxExt, Outgoing, PublishError, QueueName, Receipt, RetryStrategy,
    Transport,
    inspect::{Inspect, ListRequest, StateFilter},
};
use postrider_engine::relay::{Destination, Relay, Route};
use postrider_stores::memory::MemoryStore;
use postrider_testkit::{Kind, broker::Redis, shared};
use postrider_transports::{
    kafka::KafkaTransport, nats::NatsTransport, rabbitmq::RabbitMqTransport, redis::RedisTransport,
    sns::SnsTransport, sqs::SqsTransport,
};
use rabbit::{Rabbit, durable, durable_exchange, table, text, unique};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use support::{client, soon};

const MESSAGES: usize = 50;
/// More publish calls than a message has attempts.
const CALLS: usize = 10;

/// Records the results of a transport.
#[derive(Debug)]
struct RecordingTransport<T> {
    transport: T,
    /// The number of accepted messages of each call, or the error of its first message.
    calls: Mutex<Vec<Result<usize, String>>>,
}

impl<T> RecordingTransport<T> {
    fn errors(&self) -> Vec<String> {
        self.calls.lock().unwrap().iter().filter_map(|call| call.clone().err()).collect()
    }

    fn accepted(&self) -> usize {
        self.calls.lock().unwrap().iter().flatten().sum()
    }
}

#[async_trait]
impl<T: Transport> Transport for RecordingTransport<T> {
    fn kind(&self) -> &'static str {
        self.transport.kind()
    }

    fn capacity(&self) -> Capacity {
        self.transport.capacity()
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Result<Receipt, PublishError>> {
        let results = self.transport.publish(batch).await;
        self.calls.lock().unwrap().push(match &results[0] {
            Err(error) => Err(error.to_string()),
            Ok(_) => Ok(results.iter().flatten().count()),
        });
        results
    }

    async fn check(&self, destinations: &[&str]) -> Result<Vec<Finding>, PublishError> {
        self.transport.check(destinations).await
    }

    async fn close(&self) {
        self.transport.close().await;
    }
}

async fn until(holds: impl Fn() -> bool) {
    soon(async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Relays a backlog to a missing address, and then `create`s that. The error has to name the `fix`.
async fn backlog_waits(
    transport: impl Transport,
    address: &str,
    fix: &str,
    create: impl Future<Output = ()>,
) {
    let store = MemoryStore::new();
    let mut tx = store.begin();
    for number in 0..MESSAGES {
        let order = Message::builder("orders").event_type("order.placed").json(&number);
        store.stage(&mut tx, order).await.unwrap();
    }
    tx.commit();
    let transport = Arc::new(RecordingTransport { transport, calls: Mutex::default() });
    let shared: Arc<dyn Transport> = transport.clone();
    let (first, longest) = (Duration::from_millis(10), Duration::from_millis(50));
    let running = Relay::builder(store.clone(), "/shop")
        .destination(Destination::shared("broker", shared).circuit_backoff(first, longest))
        .route(
            Route::new("orders")
                .to("broker", address)
                .retry(RetryStrategy::constant(first).with_max_attempts(3)),
        )
        .build()
        .unwrap()
        .start();
    until(|| transport.errors().len() >= CALLS).await;
    let queue = QueueName::new("orders").unwrap();
    for filter in [StateFilter::Ready, StateFilter::Scheduled] {
        let request = ListRequest::new(queue.clone(), filter).with_limit(1_000);
        let rows = store.list(&request).await.unwrap().entries;
        assert!(rows.iter().all(|row| row.attempts == 0), "{rows:?}");
    }
    create.await;
    until(|| transport.accepted() == MESSAGES).await;
    let report = soon(running.stop(Duration::from_secs(30))).await.report;
    assert_eq!((report.delivered, report.retried, report.dead), (MESSAGES as u64, 0, 0), "{report:?}");
    let errors = transport.errors();
    assert!(errors.iter().all(|error| error.contains(fix)), "{fix}: {errors:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rabbitmq_exchange() {
    let url = shared::url(Kind::RabbitMq);
    let (rabbit, exchange) = (Rabbit::at(&url).await, unique("exchange"));
    let alternate = rabbit.exchange(ExchangeKind::Fanout, durable_exchange(), FieldTable::default()).await;
    let queue = rabbit.queue().await;
    rabbit.bind(&queue, &alternate, "").await;
    let create = async {
        let declared = rabbit.channel.exchange_declare(
            exchange.as_str().into(),
            ExchangeKind::Fanout,
            durable_exchange(),
            // Instead of a binding, which would be declared after the exchange, and too late for a probe in between.
            table([("alternate-exchange", text(&alternate))]),
        );
        declared.await.unwrap();
    };
    let transport = RabbitMqTransport::new(url.as_str()).unwrap();
    backlog_waits(transport, &format!("{exchange}/{{type}}"), "does not exist: declare it", create).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rabbitmq_queue() {
    let url = shared::url(Kind::RabbitMq);
    let (rabbit, queue) = (Rabbit::at(&url).await, unique("queue"));
    let create = rabbit.declare(&queue, durable(), FieldTable::default());
    backlog_waits(RabbitMqTransport::new(url.as_str()).unwrap(), &queue, "declare it", create).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nats_stream() {
    let url = shared::url(Kind::Nats);
    let name = format!("T{}", uuid::Uuid::now_v7().simple());
    let create = async {
        let config = async_nats::jetstream::stream::Config {
            subjects: vec![format!("{name}.>")],
            name: name.clone(),
            ..Default::default()
        };
        nats_server::context(&url).await.create_stream(config).await.unwrap();
    };
    let transport = NatsTransport::connect(url.as_str()).unwrap();
    backlog_waits(transport, &format!("{name}.{{type}}"), "nats stream add", create).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_stream() {
    let url = shared::url(Kind::Redis);
    let stream = redis_server::new_stream();
    let create =
        async { redis_server::run::<()>(&url, &format!("XGROUP CREATE {stream} readers $ MKSTREAM")).await };
    let transport = RedisTransport::builder(url.as_str()).must_exist().build().unwrap();
    backlog_waits(transport, &stream, "XGROUP CREATE", create).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_memory() {
    let server = Redis::start_with(&["--maxmemory-policy", "noeviction"]).await;
    let url = server.url();
    redis_server::run::<()>(url, "CONFIG SET maxmemory 1").await;
    let create = async { redis_server::run::<()>(url, "CONFIG SET maxmemory 0").await };
    backlog_waits(RedisTransport::connect(url).unwrap(), "orders", "raise maxmemory", create).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_permission() {
    let url = shared::url(Kind::Redis);
    let user = format!("relay-{}", uuid::Uuid::now_v7().simple());
    redis_server::run::<()>(&url, &format!("ACL SETUSER {user} on >secret ~nothing +@all")).await;
    let create = async { redis_server::run::<()>(&url, &format!("ACL SETUSER {user} ~orders-*")).await };
    let client = client(url.as_str(), Duration::from_secs(10)).with_password(user.as_str(), "secret");
    let stream = redis_server::new_stream();
    backlog_waits(RedisTransport::connect(client).unwrap(), &stream, "ACL SETUSER", create).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kafka_topic() {
    let url = shared::url(Kind::Kafka);
    let topic = format!("t-{}", uuid::Uuid::now_v7().simple());
    let cluster = kafka_server::Cluster::at(&url);
    let create = cluster.create(&topic, 1, 1, &[]);
    backlog_waits(KafkaTransport::connect(url.as_str()).unwrap(), &topic, "kafka-topics.sh", create).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqs_queue() {
    let url = shared::url(Kind::Sqs);
    let (aws, name) = (sqs_server::Aws::at(&url).await, sqs_server::unique("orders"));
    let create = async { drop(aws.queue(&name, &[]).await) };
    let transport = SqsTransport::new(sqs_server::options(&url)).unwrap();
    backlog_waits(transport, &name, "aws sqs create-queue", create).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sns_topic() {
    let url = shared::url(Kind::Sqs);
    let (aws, name) = (sqs_server::Aws::at(&url).await, sqs_server::unique("orders"));
    let create = async { drop(aws.topic(&name).await) };
    let transport = SnsTransport::new(sqs_server::options(&url)).unwrap();
    backlog_waits(transport, &name, "aws sns create-topic", create).await;
}
