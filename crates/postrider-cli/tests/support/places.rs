//! Queues, streams and topics at the brokers that all tests share, created with the broker's own tools.

use async_nats::jetstream::{
    self,
    stream::{Config, DiscardPolicy},
};
use lapin::{
    Connection, ConnectionProperties,
    options::{QueueBindOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable},
};
use postrider_testkit::{Kind, shared};
use std::{
    io::{Read, Write},
    net::TcpStream,
    process::Command,
    time::Duration,
};

/// A quorum queue of this name.
pub(crate) async fn rabbitmq_queue(name: &str) {
    let url = shared::url(Kind::RabbitMq);
    let connection = Connection::connect(&url, ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    let mut quorum = FieldTable::default();
    quorum.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    channel.queue_declare(name.into(), durable, quorum).await.unwrap();
}

/// Binds a queue to this exchange, with its name as routing key.
pub(crate) async fn rabbitmq_binding(exchange: &str, queue: &str) {
    let url = shared::url(Kind::RabbitMq);
    let connection = Connection::connect(&url, ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    let (options, none) = (QueueBindOptions::default(), FieldTable::default());
    channel.queue_bind(queue.into(), exchange.into(), queue.into(), options, none).await.unwrap();
}

/// A stream of this name for all subjects below it, with this duplicate window.
pub(crate) async fn nats_stream(client: async_nats::Client, name: &str, duplicate_window: Duration) {
    let context = jetstream::new(client);
    let config = Config {
        name: name.to_owned(),
        subjects: vec![format!("{name}.>")],
        discard: DiscardPolicy::New,
        duplicate_window,
        ..Config::default()
    };
    context.create_stream(config).await.unwrap();
}

/// A topic of this name.
pub(crate) fn kafka_topic(name: &str) {
    let broker = shared::url(Kind::Kafka).replace("kafka://", "tcp://");
    let made = Command::new(shared::programs(Kind::Kafka).join("tansu"))
        .args(["topic", "create", "--broker", &broker, "--partitions", "1", name])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
}

/// A standard queue of this name, in this region.
pub(crate) fn sqs_queue(name: &str, region: &str) {
    let headers = "x-amz-target: AmazonSQS.CreateQueue\r\ncontent-type: application/x-amz-json-1.0";
    let response = aws("sqs", region, headers, &format!("{{\"QueueName\":\"{name}\"}}"));
    assert!(response.contains("QueueUrl"), "{response}");
}

/// A topic and a queue of this name, in this region; the topic forwards raw messages to the queue.
pub(crate) fn sns_topic(name: &str, region: &str) {
    sqs_queue(name, region);
    let form = "content-type: application/x-www-form-urlencoded";
    let made = aws("sns", region, form, &format!("Action=CreateTopic&Version=2010-03-31&Name={name}"));
    assert!(made.contains("TopicArn"), "{made}");
    let arn = |service: &str| format!("arn:aws:{service}:{region}:123456789012:{name}");
    let subscribe = format!(
        "Action=Subscribe&Version=2010-03-31&TopicArn={}&Protocol=sqs&Endpoint={}\
         &Attributes.entry.1.key=RawMessageDelivery&Attributes.entry.1.value=true",
        arn("sns"),
        arn("sqs")
    );
    let subscribed = aws("sns", region, form, &subscribe);
    assert!(subscribed.contains("SubscriptionArn"), "{subscribed}");
}

/// Posts a request to an AWS service, and returns the response.
fn aws(service: &str, region: &str, headers: &str, body: &str) -> String {
    let url = shared::url(Kind::Sqs);
    let host = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    // The signature is not checked; the credential scope selects the region and the service.
    let request = format!(
        "POST / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{headers}\r\ncontent-length: {}\r\n\
         authorization: AWS4-HMAC-SHA256 Credential=test/20260101/{region}/{service}/aws4_request, \
         SignedHeaders=host, Signature=0\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}
