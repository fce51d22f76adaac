//! The column `headers`: the headers of a message and its trail, as one flat JSON object.

use postrider_core::{Headers, Hlc, Message, message::Trail};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

const CORRELATION_ID: &str = "correlation-id";
const CAUSATION_ID: &str = "causation-id";
const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";
const HLC: &str = "hlc";

/// The JSON text of the column, or `None` when there is nothing to store.
pub(crate) fn encode(message: &Message) -> Option<String> {
    let (trail, headers) = (message.trail(), message.headers());
    if trail.is_empty() && headers.is_empty() {
        return None;
    }
    let mut map = Map::new();
    for (name, value) in headers.iter() {
        map.insert(name.to_owned(), value.into());
    }
    let own = [
        (CORRELATION_ID, trail.correlation_id.clone()),
        (CAUSATION_ID, trail.causation_id.clone()),
        (TRACEPARENT, trail.traceparent.clone()),
        (TRACESTATE, trail.tracestate.clone()),
        (HLC, trail.hlc.map(|hlc| hlc.to_string())),
    ];
    for (name, value) in own {
        if let Some(value) = value {
            map.insert(name.to_owned(), value.into());
        }
    }
    Some(Value::Object(map).to_string())
}

/// Reads the column. Values that plain SQL wrote are read as far as possible: a stored message must be readable.
pub(crate) fn decode(text: Option<&str>) -> (Trail, Headers) {
    let Some(Ok(Value::Object(map))) = text.map(serde_json::from_str) else {
        return (Trail::default(), Headers::new());
    };
    let mut map: BTreeMap<String, String> =
        map.into_iter().map(|(name, value)| (name, plain(value))).collect();
    let trail = Trail {
        correlation_id: map.remove(CORRELATION_ID),
        causation_id: map.remove(CAUSATION_ID),
        traceparent: map.remove(TRACEPARENT),
        tracestate: map.remove(TRACESTATE),
        hlc: map.remove(HLC).and_then(|text| text.parse::<Hlc>().ok()),
    };
    (trail, Headers::stored(map))
}

fn plain(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}
