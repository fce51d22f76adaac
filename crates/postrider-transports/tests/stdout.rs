//! The line transport passes the suite, and reports a broken pipe.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use async_trait::async_trait;
use base64::{Engine, engine::general_purpose::STANDARD};
use postrider_core::{Format, Message, MessageId, Outgoing, PublishError, Transport};
use postrider_testkit::{
    proxy::FaultProxy,
    transport::{Received, TransportFeatures, TransportFixture},
};
use postrider_transports::stdout::LineTransport;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    io::{self, Write},
    sync::{Arc, Mutex},
    time::SystemTime,
};

/// A pipe whose reader stops after a number of bytes.
#[derive(Debug, Clone, Default)]
struct Pipe {
    written: Arc<Mutex<Vec<u8>>>,
    breaks_after: Option<usize>,
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut written = self.written.lock().unwrap();
        let room = self.breaks_after.map_or(usize::MAX, |most| most - written.len());
        if room == 0 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let bytes = &bytes[..bytes.len().min(room)];
        written.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug, Default)]
struct LineFixture(Pipe);

async fn fixture() -> LineFixture {
    LineFixture::default()
}

#[async_trait]
impl TransportFixture for LineFixture {
    fn features(&self) -> TransportFeatures {
        TransportFeatures {
            knows_destinations: false,
            keeps_order: true,
            survives_restarts: false,
            too_large: None,
            carries_key: true,
        }
    }

    async fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(LineTransport::new(self.0.clone()))
    }

    async fn nobody_there(&self) -> Arc<dyn Transport> {
        Arc::new(LineTransport::new(Pipe { breaks_after: Some(0), ..Pipe::default() }))
    }

    async fn through_proxy(&self) -> Option<(FaultProxy, Arc<dyn Transport>)> {
        None
    }

    async fn destination(&self) -> String {
        "orders".to_owned()
    }

    fn missing_destination(&self) -> String {
        "anywhere".to_owned()
    }

    async fn received(&self, destination: &str, _: usize) -> Vec<Received> {
        let written = self.0.written.lock().unwrap().clone();
        let lines = written.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let read = lines.map(|line| serde_json::from_slice::<Value>(line).unwrap());
        read.filter(|line| line["destination"] == destination).map(|line| undo(&line)).collect()
    }

    async fn kill_and_restart(&self) {
        unreachable!("a pipe does not come back");
    }
}

fn undo(line: &Value) -> Received {
    let text = |name: &str| line[name].as_str().map(str::to_owned);
    let texts = |name: &str| -> BTreeMap<String, String> {
        let pairs = line[name].as_object().into_iter().flatten();
        pairs.map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned())).collect()
    };
    let body = text("body").map(String::into_bytes);
    let body = body.unwrap_or_else(|| STANDARD.decode(line["body_base64"].as_str().unwrap()).unwrap());
    Received {
        id: text("id"),
        key: text("key"),
        content_type: text("contenttype"),
        body: body.into(),
        attributes: texts("attributes"),
        headers: texts("headers"),
    }
}

postrider_testkit::transport_suite!(fixture);

fn order(number: usize) -> Outgoing {
    let message = Message::builder("orders").json(&number).build().unwrap();
    let now = SystemTime::now();
    Outgoing::write(&message, MessageId::at(now), now, "/shop", "orders".to_owned(), Format::Binary).unwrap()
}

/// Complete lines may have been read; incomplete ones were not.
#[tokio::test]
async fn broken_pipe_separates_unknown_from_unsent_messages() {
    let pipe = Pipe::default();
    let batch = [order(1), order(2), order(3)];
    LineTransport::new(pipe.clone()).publish(&batch).await;
    let line = pipe.written.lock().unwrap().len() / 3;

    let broken = Pipe { breaks_after: Some(line + line / 2), ..Pipe::default() };
    let answers = LineTransport::new(broken).publish(&batch).await;
    assert!(matches!(answers[0], Err(PublishError::Unknown { .. })), "{answers:?}");
    assert!(matches!(answers[1], Err(PublishError::Unavailable { .. })), "{answers:?}");
    assert!(matches!(answers[2], Err(PublishError::Unavailable { .. })), "{answers:?}");
}
