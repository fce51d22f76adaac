//! Handles one request.
//!
//! The sender is authenticated first, and an unauthenticated sender learns nothing else. The signature covers the whole body, so the body is
//! read before, up to a limit.

use super::{builder::Settings, pending_requests::PendingRequests, response::WebhookResponse, wire};
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

const BATCH_TYPE: &str = "application/cloudevents-batch";

/// Registers the message of a request, and waits for its ack.
pub(super) async fn handle(
    origin: Arc<str>,
    settings: Arc<Settings>,
    pending: Arc<PendingRequests>,
    request: Request,
) -> WebhookResponse {
    let (head, body) = request.into_parts();
    let registration = async {
        let body = authenticate(&settings, &pending, &head.headers, body).await?;
        check_format(&head.headers)?;
        pending.register(wire::incoming(&origin, &head.headers, body)).map_err(WebhookResponse::NotAccepted)
    };
    match registration.await {
        Ok(request) => request.ack().await.into(),
        Err(response) => response,
    }
}

/// Reads the body, and verifies its signature.
async fn authenticate(
    settings: &Settings,
    pending: &PendingRequests,
    headers: &HeaderMap,
    body: Body,
) -> Result<Bytes, WebhookResponse> {
    if pending.is_closed() {
        return Err(WebhookResponse::from(None));
    }
    if settings.secrets.is_empty() {
        return read(settings, body).await;
    }
    let header =
        |name| headers.get(name).and_then(|value| value.to_str().ok()).filter(|text| !text.is_empty());
    let (Some(id), Some(timestamp), Some(signature)) = (header(ID), header(TIMESTAMP), header(SIGNATURE))
    else {
        return Err(WebhookResponse::SignatureMissing);
    };
    let body = read(settings, body).await?;
    let signed = Signed { id, timestamp, signature, body: &body };
    let verified = signed.verify_within(settings.tolerance, &settings.secrets, SystemTime::now());
    verified.map(|()| body).map_err(WebhookResponse::BadSignature)
}

/// Reads the whole body, up to the limit. A body with a longer declared length is not read at all.
async fn read(settings: &Settings, body: Body) -> Result<Bytes, WebhookResponse> {
    let most = settings.max_bytes;
    if body.size_hint().lower() > most as u64 {
        return Err(WebhookResponse::TooLarge);
    }
    let reading = async {
        let (mut chunks, mut whole) = (body.into_data_stream(), BytesMut::new());
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|_| WebhookResponse::Incomplete)?;
            if whole.len() + chunk.len() > most {
                return Err(WebhookResponse::TooLarge);
            }
            whole.extend_from_slice(&chunk);
        }
        Ok(whole.freeze())
    };
    timeout(settings.read_timeout, reading).await.unwrap_or(Err(WebhookResponse::TooSlow))
}

/// Refuses batches and compressed bodies.
fn check_format(headers: &HeaderMap) -> Result<(), WebhookResponse> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if text(CONTENT_TYPE).trim_start().to_ascii_lowercase().starts_with(BATCH_TYPE) {
        return Err(WebhookResponse::Batch);
    }
    match text(CONTENT_ENCODING) {
        "" => Ok(()),
        encoding if encoding.eq_ignore_ascii_case("identity") => Ok(()),
        _ => Err(WebhookResponse::ContentEncoded),
    }
}
