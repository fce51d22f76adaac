//! Webhooks: sent to a receiver, and received at an address of our own.

use crate::config::{Place, Secret};
use axum::Router;
use postrider::{
    Invalid,
    transports::http::{HttpOptions, HttpSource, HttpSourceBuilder, HttpTransport, signature},
};
use std::{fs, net::SocketAddr};

pub(crate) fn transport(place: &Place) -> Result<HttpTransport, Invalid> {
    HttpTransport::new(options(place)?)
}

/// How a receiver is reached.
pub(crate) fn options(place: &Place) -> Result<HttpOptions, Invalid> {
    let mut options = match place.secret("url") {
        Some(url) => HttpOptions::below(url.reveal())?,
        None => HttpOptions::new(),
    };
    for secret in secrets(place)? {
        options = options.with_secret(secret);
    }
    if let Some(authorization) = place.secret("authorization") {
        options = options.with_header("authorization", authorization.reveal())?;
    }
    if let Some(file) = place.text("ca_file") {
        let pem = fs::read_to_string(file)
            .map_err(|error| Invalid::rule("ca_file", format!("{file} cannot be read: {error}")))?;
        options = options.trust(&pem)?;
    }
    if place.flag("allow_http") {
        options = options.allow_http();
    }
    for network in place.texts("allow_networks") {
        options = options.allow_network(network)?;
    }
    Ok(match place.duration("timeout") {
        Some(timeout) => options.with_timeout(timeout),
        None => options,
    })
}

/// Where webhooks are received, and what takes them in there.
pub(crate) fn source(place: &Place) -> Result<(HttpSource, SocketAddr, Router), Invalid> {
    let builder = HttpSource::builder(place.needed("path")?);
    let secrets = secrets(place)?;
    let builder = if secrets.is_empty() {
        builder.without_signatures()
    } else {
        secrets.into_iter().fold(builder, HttpSourceBuilder::with_secret)
    };
    let source = builder.build()?;
    let listen = place.needed("listen")?;
    let address = listen
        .parse()
        .map_err(|_| Invalid::rule("listen", format!("{listen:?} is no address such as 127.0.0.1:8080")))?;
    let router = source.router();
    Ok((source, address, router))
}

/// Several with spaces in between: a new one is known to everybody before the old one goes.
fn secrets(place: &Place) -> Result<Vec<signature::Secret>, Invalid> {
    let text = place.secret("secret").map(Secret::reveal).unwrap_or_default();
    text.split_whitespace().map(signature::Secret::parse).collect()
}
