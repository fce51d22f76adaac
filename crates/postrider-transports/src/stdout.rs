//! A transport that writes lines of JSON, for pipes.

use async_trait::async_trait;
use base64::{Engine, engine::general_purpose::STANDARD};
use postrider_core::{Capacity, Finding, Outgoing, PublishError, Receipt, Transport, cloudevents::rfc3339};
use serde_json::{Map, Value, json};
use std::{
    fmt,
    io::{self, Write},
    sync::{Arc, Mutex, PoisonError},
};

/// Writes each message as one line of JSON, to standard output or another writer, and flushes after each batch.
///
/// A line has `id`, `destination`, `key`, `type`, `time`, `contenttype`, `attributes`, `headers`, and the body as `body`
/// if it is text, and as `body_base64` if it is not. Empty fields are left out.
#[derive(Clone)]
pub struct LineTransport {
    out: Arc<Mutex<Option<Out>>>,
}

type Out = Box<dyn Write + Send>;

impl LineTransport {
    /// Writes to standard output.
    pub fn stdout() -> Self {
        Self::new(io::stdout())
    }

    /// Writes to `out`.
    pub fn new(out: impl Write + Send + 'static) -> Self {
        Self { out: Arc::new(Mutex::new(Some(Box::new(out)))) }
    }
}

impl fmt::Debug for LineTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LineTransport").finish_non_exhaustive()
    }
}

#[async_trait]
impl Transport for LineTransport {
    fn kind(&self) -> &'static str {
        "stdout"
    }

    fn capacity(&self) -> Capacity {
        Capacity::of(1_000)
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Result<Receipt, PublishError>> {
        let lines: Vec<Vec<u8>> = batch.iter().map(line).collect();
        let out = Arc::clone(&self.out);
        // On a blocking thread, which writes the batch to its end even if the call is cancelled: half a line would corrupt the next.
        let written = tokio::task::spawn_blocking(move || write(&out, &lines)).await;
        match written {
            Ok(results) => results,
            Err(error) => batch.iter().map(|_| Err(PublishError::unknown(error.to_string()))).collect(),
        }
    }

    async fn check(&self, _: &[&str]) -> Result<Vec<Finding>, PublishError> {
        Ok(vec![
            Finding::warning("pipe", "stdout")
                .because("a pipe has no acks: messages in the pipe are lost when its reader ends")
                .fixed_by("publish to a broker, or write to a file"),
        ])
    }

    async fn close(&self) {
        let out = Arc::clone(&self.out);
        let closing = tokio::task::spawn_blocking(move || {
            if let Some(mut out) = out.lock().unwrap_or_else(PoisonError::into_inner).take() {
                // Each batch was flushed before its messages were accepted.
                out.flush().ok();
            }
        });
        closing.await.ok();
    }
}

fn write(out: &Mutex<Option<Out>>, lines: &[Vec<u8>]) -> Vec<Result<Receipt, PublishError>> {
    let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(out) = out.as_mut() else {
        return lines.iter().map(|_| Err(PublishError::unavailable("the transport is closed"))).collect();
    };
    let written =
        lines.iter().enumerate().find_map(|(index, line)| Some((index, out.write_all(line).err()?)));
    let (whole, error) = match (written, out.flush()) {
        (None, Ok(())) => return lines.iter().map(|_| Ok(Receipt::new())).collect(),
        (Some((index, error)), _) => (index, error),
        (None, Err(error)) => (lines.len(), error),
    };
    // Complete lines may have been read. The line that failed, and those after it, were not.
    let result = |index| match index < whole {
        true => Err(PublishError::unknown(error.to_string())),
        false => Err(PublishError::unavailable(error.to_string())),
    };
    (0..lines.len()).map(result).collect()
}

fn line(outgoing: &Outgoing) -> Vec<u8> {
    let texts = |pairs: Vec<(&str, &str)>| -> Value {
        pairs.into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect::<Map<_, _>>().into()
    };
    let mut line = Map::new();
    let mut put = |name: &str, value: Value| line.insert(name.to_owned(), value);
    put("id", json!(outgoing.id.to_string()));
    put("destination", json!(outgoing.destination));
    put("time", json!(rfc3339::format(outgoing.staged_at)));
    put("contenttype", json!(outgoing.content_type.as_str()));
    if let Some(key) = &outgoing.key {
        put("key", json!(key.as_str()));
    }
    if let Some(event_type) = &outgoing.event_type {
        put("type", json!(event_type.as_str()));
    }
    if !outgoing.attributes.is_empty() {
        put(
            "attributes",
            texts(outgoing.attributes.iter().map(|(name, value)| (*name, value.as_str())).collect()),
        );
    }
    if !outgoing.headers.is_empty() {
        let headers = outgoing.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        put("headers", texts(headers.collect()));
    }
    match std::str::from_utf8(&outgoing.body) {
        Ok(text) => put("body", json!(text)),
        Err(_) => put("body_base64", json!(STANDARD.encode(&outgoing.body))),
    };
    let mut line = Value::Object(line).to_string().into_bytes();
    line.push(b'\n');
    line
}
