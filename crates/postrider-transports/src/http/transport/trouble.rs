//! What went wrong when there is no answer, and whether the request had been sent.

use super::guard::Forbidden;
use std::{error::Error, io};

/// A request without an answer.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The name leads to an address that must not be dialled. Nothing was sent.
    Private(String),
    /// The name has no address. Nothing was sent.
    Name(String),
    /// The other side did not prove who it is. Nothing was sent.
    Certificate(String),
    /// There is no connection. Nothing was sent.
    Connection(String),
    /// It may have been sent.
    Silence(String),
}

impl From<reqwest::Error> for Trouble {
    fn from(error: reqwest::Error) -> Self {
        // URLs may hold secrets.
        let error = error.without_url();
        let told = told(&error);
        if let Some(forbidden) = find::<Forbidden>(&error) {
            Self::Private(forbidden.to_string())
        } else if !error.is_connect() {
            Self::Silence(told)
        } else if find::<rustls::Error>(&error).is_some() {
            Self::Certificate(told)
        } else if error.is_dns() {
            Self::Name(told)
        } else {
            Self::Connection(told)
        }
    }
}

/// The error and what is behind it.
fn told(error: &(dyn Error + 'static)) -> String {
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

/// An error of I/O keeps what is behind it to itself, unless asked in its own way.
fn chain<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |each| {
        let each: &'e (dyn Error + 'static) = *each;
        let behind = each.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        behind.map(|behind| behind as &(dyn Error + 'static)).or_else(|| each.source())
    })
}
