//! A Redis client for tests: plain commands.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use postrider_testkit::transport::Received;
use redis::{FromRedisValue, aio::MultiplexedConnection};
use std::time::Duration;

/// A connection with a longer response timeout than the client's default of half a second.
pub(crate) async fn connection(url: &str) -> MultiplexedConnection {
    let timeout = Some(Duration::from_secs(60));
    let config =
        redis::AsyncConnectionConfig::new().set_connection_timeout(timeout).set_response_timeout(timeout);
    let client = redis::Client::open(url).unwrap();
    client.get_multiplexed_async_connection_with_config(&config).await.unwrap()
}

/// Runs a command, written as in redis-cli.
pub(crate) async fn run<T: FromRedisValue>(url: &str, command: &str) -> T {
    let mut words = command.split(' ');
    let mut typed = redis::cmd(words.next().unwrap());
    for word in words {
        typed.arg(if word == "''" { "" } else { word });
    }
    typed.query_async(&mut connection(url).await).await.unwrap_or_else(|error| panic!("{command}: {error}"))
}

pub(crate) fn new_stream() -> String {
    format!("orders-{}", uuid::Uuid::now_v7())
}

/// An entry's fields and their values, in order.
pub(crate) type Fields = Vec<(String, Vec<u8>)>;

/// The entries of a stream.
pub(crate) async fn entries(url: &str, stream: &str) -> Vec<Fields> {
    let entries: Vec<(String, Fields)> = run(url, &format!("XRANGE {stream} - +")).await;
    entries.into_iter().map(|(_, fields)| fields).collect()
}

/// Decodes an entry, independently of the transport.
pub(crate) fn undo(fields: Fields) -> Received {
    let mut received = Received::default();
    for (name, value) in fields {
        if name == "body" {
            received.body = value.into();
            continue;
        }
        let value = String::from_utf8(value).unwrap();
        match name.as_str() {
            "id" => {
                // In the Debezium format it is a header.
                received.headers.insert(name, value.clone());
                assert_eq!(received.id.replace(value), None, "duplicate field");
            }
            "key" => received.key = Some(value),
            "content_type" => received.content_type = Some(value),
            _ => {
                let (map, name) = match name.strip_prefix("ce_") {
                    Some(attribute) => (&mut received.attributes, attribute.to_owned()),
                    None => (&mut received.headers, name),
                };
                assert_eq!(map.insert(name, value), None, "duplicate field");
            }
        }
    }
    received
}
