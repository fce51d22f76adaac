//! The answer to a request: two lists of ids.
//!
//! An id counts for its own message only. Whoever is in neither list, in both, or in one of them twice, has no answer: the request may
//! have been understood in part. Ids that nobody sent mean nothing.

use super::trouble::{Kind, Trouble, of_entry, told};

/// What the service says about each message.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    /// The ids of those that it has.
    pub(crate) accepted: Vec<String>,
    /// Those that it does not have.
    pub(crate) refused: Vec<Refused>,
}

/// A message that was not accepted.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) id: String,
    pub(crate) code: String,
    pub(crate) message: Option<String>,
    pub(crate) is_senders_fault: bool,
}

impl Listed {
    /// One answer for each of the ids `0` to `count`, as senders need it.
    pub(super) fn answers(&self, count: usize) -> Vec<Result<(), Trouble>> {
        let refuse = |refused: &Refused| {
            Trouble::new(of_entry(&refused.code, refused.is_senders_fault), refused.told())
        };
        self.judged(count, refuse, |said| Trouble::new(Kind::Unknown, said.to_owned()))
    }

    /// One answer for each of the ids `0` to `count`: what a refusal means, and what it means that nobody knows, is for the caller to say.
    pub(crate) fn judged<E>(
        &self,
        count: usize,
        refuse: impl Fn(&Refused) -> E,
        unknown: impl Fn(&str) -> E,
    ) -> Vec<Result<(), E>> {
        let mut named: Vec<Vec<Result<(), E>>> = (0..count).map(|_| Vec::new()).collect();
        let mut note = |id: &str, answer| {
            // As it was written: "01" is nobody.
            if let Some(own) = (0..count).find(|number| number.to_string() == id) {
                named[own].push(answer);
            }
        };
        for id in &self.accepted {
            note(id, Ok(()));
        }
        for refused in &self.refused {
            note(&refused.id, Err(refuse(refused)));
        }
        let judge = |mut own: Vec<_>| match (own.pop(), own.is_empty()) {
            (Some(answer), true) => answer,
            (Some(_), false) => Err(unknown("the answer names it more than once")),
            (None, _) => Err(unknown("the answer does not name it")),
        };
        named.into_iter().map(judge).collect()
    }
}

impl Refused {
    /// Its code, and what the service says.
    pub(crate) fn told(&self) -> String {
        told(&self.code, self.message.as_deref(), 200)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(accepted: &[&str], refused: &[(&str, &str, bool)]) -> Vec<&'static str> {
        let accepted = accepted.iter().map(ToString::to_string).collect();
        let refuse = |(id, code, is_senders_fault): &(&str, &str, bool)| Refused {
            id: (*id).to_owned(),
            code: (*code).to_owned(),
            message: None,
            is_senders_fault: *is_senders_fault,
        };
        let listed = Listed { accepted, refused: refused.iter().map(refuse).collect() };
        let name = |answer: Result<(), Trouble>| match answer {
            Ok(()) => "accepted",
            Err(trouble) => postrider_core::PublishError::from(trouble).kind(),
        };
        listed.answers(3).into_iter().map(name).collect()
    }

    #[test]
    fn an_id_counts_for_its_own_message_only() {
        assert_eq!(judged(&["2", "0", "1"], &[]), ["accepted"; 3]);
        assert_eq!(
            judged(&["0", "2"], &[("1", "InternalError", false)]),
            ["accepted", "PublishRefused", "accepted"]
        );
        assert_eq!(
            judged(&["0"], &[("1", "InvalidMessageContents", true)]),
            ["accepted", "PublishRejected", "PublishUnknown"],
            "in neither list"
        );
        assert_eq!(judged(&[], &[]), ["PublishUnknown"; 3]);
        assert_eq!(judged(&["0", "0", "1"], &[]), ["PublishUnknown", "accepted", "PublishUnknown"], "twice");
        assert_eq!(
            judged(&["0", "1", "2"], &[("1", "InternalError", false)]),
            ["accepted", "PublishUnknown", "accepted"],
            "in both"
        );
        assert_eq!(
            judged(&["3", "-1", "x", "", "00", " 1"], &[("7", "InternalError", false)]),
            ["PublishUnknown"; 3],
            "ids that nobody sent"
        );
    }
}
