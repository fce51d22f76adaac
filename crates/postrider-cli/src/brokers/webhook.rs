//! Webhooks, sent and received.

use super::client;
use crate::config::{EndpointSection, Secret, Section};
use axum::Router;
use postrider::{
    Invalid,
    transports::http::{HttpOptions, HttpSource, HttpSourceBuilder, HttpTransport, signature},
};
use std::net::SocketAddr;

pub(crate) fn transport(section: &EndpointSection) -> Result<HttpTransport, Invalid> {
    HttpTransport::new(options(section)?)
}

/// The options of a webhook receiver.
pub(crate) fn options(section: &Section) -> Result<HttpOptions, Invalid> {
    let client = client(section)?;
    let mut options = match client.url() {
        Some(_) => HttpOptions::below(client)?,
        None => HttpOptions::new().with_client(client),
    };
    for secret in secrets(section)? {
        options = options.with_secret(secret);
    }
    if let Some(authorization) = section.secret("authorization") {
        options = options.with_header("authorization", authorization.reveal())?;
    }
    if section.flag("allow_http") {
        options = options.allow_http();
    }
    for network in section.strings("allow_networks") {
        options = options.allow_network(network)?;
    }
    Ok(options)
}

/// The source, the address to listen on, and the router to serve there.
pub(crate) fn source(section: &EndpointSection) -> Result<(HttpSource, SocketAddr, Router), Invalid> {
    let builder = HttpSource::builder(section.required("path")?);
    let secrets = secrets(section)?;
    let builder = if secrets.is_empty() {
        builder.without_signatures()
    } else {
        secrets.into_iter().fold(builder, HttpSourceBuilder::with_secret)
    };
    let source = builder.build()?;
    let listen = section.required("listen")?;
    let address = listen.parse().map_err(|_| {
        Invalid::rule("listen", format!("{listen:?} is not an address; write one such as 127.0.0.1:8080"))
    })?;
    let router = source.router();
    Ok((source, address, router))
}

/// Signing secrets, separated by spaces: several are valid while a secret is rotated.
fn secrets(section: &Section) -> Result<Vec<signature::Secret>, Invalid> {
    let text = section.secret("secret").map(Secret::reveal).unwrap_or_default();
    text.split_whitespace().map(signature::Secret::parse).collect()
}
