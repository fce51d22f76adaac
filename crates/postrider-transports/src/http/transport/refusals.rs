//! URLs that refuse every message.
//!
//! A status such as 404 or 503 may concern one message, or all messages of its URL: the response does not say. After a number of different
//! messages in a row, none of which the URL accepted, the URL is unavailable. Then its messages use up no attempts, until it accepts one.

use postrider_core::{MessageId, PublishError};
use reqwest::{StatusCode, Url};
use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, PoisonError},
};

/// This many different messages in a row that a URL refused.
const REFUSALS: usize = 10;
/// The number of URLs that are remembered. Others are never taken for unavailable.
const MAX_URLS: usize = 1_000;

/// The messages that each URL refused since it accepted one, up to the limit.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<HashMap<String, BTreeSet<MessageId>>>);

impl Refusals {
    /// Records a response, and returns whether the URL refuses every message.
    pub(super) fn record(&self, url: &Url, id: MessageId, status: StatusCode, is_accepted: bool) -> bool {
        let mut refusals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if is_accepted || !is_of_all_messages(status) {
            refusals.remove(url.as_str());
            return false;
        }
        if !refusals.contains_key(url.as_str()) {
            if refusals.len() >= MAX_URLS {
                return false;
            }
            refusals.insert(url.as_str().to_owned(), BTreeSet::new());
        }
        let Some(ids) = refusals.get_mut(url.as_str()) else { return false };
        if ids.len() < REFUSALS {
            ids.insert(id);
        }
        ids.len() >= REFUSALS
    }
}

/// Whether the status may concern all messages of a URL: authentication, permission, route, load, or the receiver as a whole.
fn is_of_all_messages(status: StatusCode) -> bool {
    matches!(status.as_u16(), 401 | 403 | 404 | 429 | 500..=599)
}

/// The URL, and not the message, is at fault.
pub(super) fn unavailable(error: PublishError) -> PublishError {
    let (name, fix) =
        (error.name(), "the URL refuses every message: fix its address, secret or route, or the receiver");
    match error {
        PublishError::Retry { source, .. } => {
            PublishError::address_unavailable(format!("{source}; {fix}")).named(name)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    fn id() -> MessageId {
        MessageId::at(SystemTime::now())
    }

    fn url(path: &str) -> Url {
        format!("https://shop.example/{path}").parse().unwrap()
    }

    #[test]
    fn ten_different_messages_in_a_row_make_a_url_unavailable() {
        let (refusals, one) = (Refusals::default(), id());
        let refuse = |path: &str, id| refusals.record(&url(path), id, StatusCode::NOT_FOUND, false);
        assert!((0..50).all(|_| !refuse("a", one)), "one message");
        assert!((0..REFUSALS - 2).all(|_| !refuse("a", id())));
        assert!(refuse("a", id()) && refuse("a", one));
        assert!(!refuse("b", id()), "another URL");
        assert!(!refusals.record(&url("a"), id(), StatusCode::OK, true));
        assert!(!refuse("a", id()), "it accepted a message in between");
    }

    #[test]
    fn status_of_a_single_message_is_no_sign_of_an_outage() {
        let refusals = Refusals::default();
        for status in [400, 409, 422, 413, 302] {
            let status = StatusCode::from_u16(status).unwrap();
            assert!((0..50).all(|_| !refusals.record(&url("a"), id(), status, false)), "{status}");
        }
        for status in [401, 403, 404, 429, 500, 503] {
            let status = StatusCode::from_u16(status).unwrap();
            let url = url(status.as_str());
            assert!((0..REFUSALS).fold(false, |_, _| refusals.record(&url, id(), status, false)), "{status}");
        }
    }

    #[test]
    fn unavailable_url_keeps_the_name_of_its_status() {
        let error =
            unavailable(PublishError::retry("https://shop.example responded with 404").named("Http404"));
        assert_eq!((error.kind(), error.name()), ("AddressUnavailable", "Http404"));
        assert!(error.to_string().contains("responded with 404; the URL refuses every message"), "{error}");
        assert_eq!(unavailable(PublishError::reject("gone")).kind(), "PublishRejected");
    }
}
