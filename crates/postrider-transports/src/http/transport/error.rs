//! Classifies requests without a response: whether the request may have been sent.

use super::guard::PrivateAddress;
use std::{error::Error, io};

/// A request that got no response.
#[derive(Debug)]
pub(super) enum RequestError {
    /// The host name resolves to an address that is not allowed. Nothing was sent.
    PrivateAddress(String),
    /// The host name cannot be resolved. Nothing was sent.
    Dns(String),
    /// TLS failed: the receiver's certificate is not trusted. Nothing was sent.
    Certificate(String),
    /// No connection could be opened. Nothing was sent.
    Connect(String),
    /// The request may have been sent.
    NoResponse(String),
}

impl From<reqwest::Error> for RequestError {
    fn from(error: reqwest::Error) -> Self {
        // URLs may contain secrets.
        let error = error.without_url();
        let tls = postrider_tls::describe(&error);
        let is_tls = tls.is_some();
        let reason = tls.unwrap_or_else(|| describe(&error));
        if let Some(address) = find::<PrivateAddress>(&error) {
            Self::PrivateAddress(address.to_string())
        } else if !error.is_connect() {
            Self::NoResponse(reason)
        } else if is_tls {
            Self::Certificate(reason)
        } else if error.is_dns() {
            Self::Dns(reason)
        } else {
            Self::Connect(reason)
        }
    }
}

/// The error and its sources in one line.
fn describe(error: &(dyn Error + 'static)) -> String {
    let mut parts: Vec<String> = Vec::new();
    for each in chain(error) {
        let part = each.to_string();
        if parts.last().is_none_or(|last| !last.contains(&part)) {
            parts.push(part);
        }
    }
    parts.join(": ")
}

fn find<'e, T: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e T> {
    chain(error).find_map(|each| each.downcast_ref())
}

/// The sources of an error. `io::Error::source` skips the wrapped error, so that one is read with `get_ref`.
fn chain<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |each| {
        let each: &'e (dyn Error + 'static) = *each;
        let behind = each.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        behind.map(|behind| behind as &(dyn Error + 'static)).or_else(|| each.source())
    })
}
