//! `postrider run` sends to RabbitMQ and receives from it: a message that is delivered twice is staged once.

#![cfg(all(unix, feature = "rabbitmq"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use nix::sys::signal::Signal;
use postrider::{
    Format, Message, MessageId, Outgoing, QueueName, Transport,
    inspect::{Inspect, ListRequest, StateFilter},
    postgres::PostgresStore,
    transports::rabbitmq::RabbitMqTransport,
};
use postrider_testkit::{Kind, postgres::TestDatabase, shared};
use std::{fs, sync::Arc, time::SystemTime};
use support::{
    places,
    program::{AtWork, postrider},
    round_trip::{Broker, round_trip},
    webhooks::Webhooks,
};
use tempfile::tempdir;
use uuid::Uuid;

fn order(id: MessageId, number: u32, address: &str) -> Outgoing {
    let message = Message::builder("orders")
        .event_type("order.placed")
        .key("order-17")
        .tenant("acme")
        .header("colour", "red")
        .traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        .json(&number)
        .build()
        .unwrap();
    Outgoing::write(&message, id, SystemTime::now(), "/elsewhere", address.to_owned(), Format::Binary)
        .unwrap()
}

/// From the broker into the database, once, with all its attributes; and from there to a webhook, by a route of the same file.
#[tokio::test(flavor = "multi_thread")]
async fn consumer_stages_redelivered_messages_once() {
    let (database, folder) = (TestDatabase::empty().await, tempdir().unwrap());
    let address = format!("orders-{}", Uuid::now_v7());
    places::rabbitmq_queue(&address).await;
    let mut webhooks = Webhooks::listen().await;
    let text = format!(
        "source = \"/shop\"\n[databases.shop]\nurl_env = \"SHOP_DB\"\n[http]\nlisten = \"off\"\n\
         [destinations.hooks]\nkind = \"webhook\"\nurl = \"http://{}/hooks\"\nallow_http = true\n\
         allow_networks = [\"127.0.0.0/8\"]\n\
         [[consumers]]\nname = \"billing\"\nto = \"incoming\"\n\
         source = {{ kind = \"rabbitmq\", url_env = \"AMQP_URL\", queue = \"{address}\", quorum = true }}\n\
         [[routes]]\nqueue = \"bills\"\nto = [{{ destination = \"hooks\", address = \"bills\" }}]\n",
        webhooks.address
    );
    let file = folder.path().join("postrider.toml");
    fs::write(&file, &text).unwrap();
    let url = shared::url(Kind::RabbitMq);
    let mut command = postrider(&["run", "--migrate"]);
    command.current_dir(folder.path()).env("SHOP_DB", database.url()).env("AMQP_URL", &url);
    let mut daemon = AtWork::start(command.env_remove("NOTIFY_SOCKET"));
    daemon.until("started, receiving from");

    let transport = RabbitMqTransport::new(url.as_str()).unwrap();
    let ids = [1, 2].map(|number| MessageId::from_uuid(Uuid::from_u128(number)));
    // The same messages several times, as a sender does that gets no confirmation.
    for batch in [[1, 1], [2, 1], [2, 2]] {
        let batch = batch.map(|number: u32| order(ids[number as usize - 1], number, &address));
        for result in transport.publish(&batch).await {
            result.unwrap();
        }
    }
    let store = PostgresStore::connect(database.url()).await.unwrap();
    let list = async |state| {
        let request = ListRequest::new(QueueName::new("incoming").unwrap(), state);
        store.list(&request).await.unwrap().entries
    };
    while list(StateFilter::Ready).await.len() < 2 {
        tokio::task::yield_now().await;
    }
    // A message that cannot be decoded becomes a dead letter of the consumer.
    let mut unreadable = order(ids[0], 3, &address);
    unreadable.attributes = vec![("specversion", "1.0".into())];
    transport.publish(&[unreadable]).await.pop().unwrap().unwrap();
    transport.close().await;
    daemon.until("dead-lettered in queue");

    // The reload changes the route to the queue of the consumer.
    fs::write(&file, text.replace("queue = \"bills\"", "queue = \"incoming\"") + "format = \"plain\"\n")
        .unwrap();
    let staged = list(StateFilter::Ready).await;
    assert_eq!(staged.len(), 2, "{staged:?}");
    for entry in staged {
        let message = entry.message;
        assert!(message.id().is_some_and(|id| ids.contains(&id)), "{message:?}");
        assert_eq!(message.event_type().unwrap().as_str(), "order.placed");
        assert_eq!(message.key().unwrap().as_str(), "order-17");
        assert_eq!(message.tenant().unwrap().as_str(), "acme");
        assert_eq!(message.headers().get("colour"), Some("red"));
        let traceparent = message.trail().traceparent.as_deref();
        assert_eq!(traceparent, Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"));
    }
    daemon.signal(Signal::SIGHUP);
    daemon.until("configuration reloaded");
    assert_eq!(webhooks.next(2).await, ["/hooks/bills 1", "/hooks/bills 2"]);
    daemon.signal(Signal::SIGTERM);
    let ended = daemon.end();
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), ""), "{ended:?}");
    assert!(ended.err.contains("delivered=2 clean=true"), "{ended:?}");
}

/// Out by a route, and in by a consumer, of the same file.
#[tokio::test(flavor = "multi_thread")]
async fn round_trip_with_duplicates_and_a_kill_stages_each_message_once() {
    let (queue, url) = (format!("orders-{}", Uuid::now_v7()), shared::url(Kind::RabbitMq));
    places::rabbitmq_queue(&queue).await;
    let broker = Broker {
        destination: "kind = \"rabbitmq\"\nurl_env = \"AMQP_URL\"".to_owned(),
        address: queue.clone(),
        source: format!("kind = \"rabbitmq\", url_env = \"AMQP_URL\", queue = \"{queue}\", quorum = true"),
        transport: Arc::new(RabbitMqTransport::new(url.as_str()).unwrap()),
        environment: vec![("AMQP_URL", url)],
    };
    round_trip(broker).await;
}
