//! A NATS client for tests: creates and reads streams.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use async_nats::jetstream::{self, stream::Config};
use percent_encoding::percent_decode_str;
use postrider_testkit::transport::Received;
use std::{collections::BTreeMap, time::Duration};

pub(crate) async fn context(url: &str) -> jetstream::Context {
    jetstream::new(async_nats::connect(url).await.unwrap())
}

/// A stream that keeps every message, and its subject.
pub(crate) async fn stream(
    url: &str,
    change: impl FnOnce(&mut Config),
) -> (jetstream::stream::Stream, String) {
    let name = format!("T{}", uuid::Uuid::now_v7().simple());
    let subject = format!("{name}.placed");
    let mut config = Config {
        name,
        subjects: vec![subject.clone()],
        discard: jetstream::stream::DiscardPolicy::New,
        duplicate_window: Duration::from_secs(120),
        ..Config::default()
    };
    change(&mut config);
    (context(url).await.create_stream(config).await.unwrap(), subject)
}

pub(crate) async fn stored(url: &str, subject: &str) -> Vec<jetstream::message::StreamMessage> {
    let context = context(url).await;
    let name = context.stream_by_subject(subject).await.unwrap();
    let mut stream = context.get_stream(name).await.unwrap();
    let state = stream.info().await.unwrap().state.clone();
    let mut messages = Vec::new();
    for sequence in state.first_sequence..=state.last_sequence {
        messages.push(stream.get_raw_message(sequence).await.unwrap());
    }
    messages
}

/// Decodes a message, independently of the transport.
pub(crate) fn undo(message: jetstream::message::StreamMessage) -> Received {
    let mut received = Received { body: message.payload, ..Received::default() };
    let mut headers = BTreeMap::new();
    for (name, values) in message.headers.iter() {
        assert_eq!(values.len(), 1, "{name:?}");
        headers.insert(name.to_string(), values[0].to_string());
    }
    received.id = headers.remove("Nats-Msg-Id");
    for (name, value) in headers {
        let decoded = || percent_decode_str(&value).decode_utf8().unwrap().into_owned();
        match name.strip_prefix("ce-") {
            Some("datacontenttype") => received.content_type = Some(decoded()),
            Some(attribute) => drop(received.attributes.insert(attribute.to_owned(), decoded())),
            None if name == "Content-Type" => received.content_type = Some(value),
            None => drop(received.headers.insert(name, value)),
        }
    }
    received
}
