//! What becomes of a request.
//!
//! Whoever sends it has to be believed first, and nothing is told to those who are not but that. The signature is over the whole body, so that
//! is read before, up to a limit.

use super::{builder::Settings, desk::Desk, reply::Reply, wire};
use crate::http::signature::{ID, SIGNATURE, Signed, TIMESTAMP};
use axum::{
    body::{Body, HttpBody},
    extract::Request,
    http::{
        HeaderMap,
        header::{CONTENT_ENCODING, CONTENT_TYPE},
    },
};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use std::{sync::Arc, time::SystemTime};
use tokio::time::timeout;

const BATCH: &str = "application/cloudevents-batch";

/// Waits until the message was answered.
pub(super) async fn answer(
    origin: Arc<str>,
    settings: Arc<Settings>,
    desk: Arc<Desk>,
    request: Request,
) -> Reply {
    let (head, body) = request.into_parts();
    let told = async {
        let body = believed(&settings, &desk, &head.headers, body).await?;
        readable(&head.headers)?;
        desk.enter(wire::incoming(&origin, &head.headers, body)).map_err(Reply::TurnedAway)
    };
    match told.await {
        Ok(visit) => visit.answer().await.into(),
        Err(reply) => reply,
    }
}

/// The body, once it is certain who sent it.
async fn believed(settings: &Settings, desk: &Desk, headers: &HeaderMap, body: Body) -> Result<Bytes, Reply> {
    if desk.is_closed() {
        return Err(Reply::from(None));
    }
    if settings.secrets.is_empty() {
        return read(settings, body).await;
    }
    let header =
        |name| headers.get(name).and_then(|value| value.to_str().ok()).filter(|text| !text.is_empty());
    let (Some(id), Some(timestamp), Some(signature)) = (header(ID), header(TIMESTAMP), header(SIGNATURE))
    else {
        return Err(Reply::Unsigned);
    };
    let body = read(settings, body).await?;
    let signed = Signed { id, timestamp, signature, body: &body };
    let verified = signed.verify_within(settings.tolerance, &settings.secrets, SystemTime::now());
    verified.map(|()| body).map_err(Reply::Disbelieved)
}

/// The whole body, if it keeps to the limit. What says to be longer is not read at all.
async fn read(settings: &Settings, body: Body) -> Result<Bytes, Reply> {
    let most = settings.most_bytes;
    if body.size_hint().lower() > most as u64 {
        return Err(Reply::TooLarge);
    }
    let reading = async {
        let (mut chunks, mut whole) = (body.into_data_stream(), BytesMut::new());
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|_| Reply::BrokenOff)?;
            if whole.len() + chunk.len() > most {
                return Err(Reply::TooLarge);
            }
            whole.extend_from_slice(&chunk);
        }
        Ok(whole.freeze())
    };
    timeout(settings.read_timeout, reading).await.unwrap_or(Err(Reply::Slow))
}

/// Whether it is one message, in bytes of its own.
fn readable(headers: &HeaderMap) -> Result<(), Reply> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if text(CONTENT_TYPE).trim_start().to_ascii_lowercase().starts_with(BATCH) {
        return Err(Reply::Batch);
    }
    match text(CONTENT_ENCODING) {
        "" => Ok(()),
        encoding if encoding.eq_ignore_ascii_case("identity") => Ok(()),
        _ => Err(Reply::Encoded),
    }
}
