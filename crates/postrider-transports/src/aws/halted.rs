//! Groups of FIFO in which something failed: what is behind it must not overtake it.

use super::{Kind, Trouble};
use std::collections::BTreeMap;

/// Who waits for what. Whatever has no group waits for nobody.
#[derive(Debug, Default)]
pub(super) struct Halted(BTreeMap<String, Trouble>);

impl Halted {
    /// This one failed.
    pub(super) fn at(&mut self, group: Option<&str>, trouble: &Trouble) {
        if let Some(group) = group {
            self.0.insert(group.to_owned(), trouble.clone());
        }
    }

    /// Why the next one of a group is not sent. It did not fail itself: it is tried again, and while nothing gets through, that is what is
    /// said of it, too.
    pub(super) fn before(&self, group: Option<&str>) -> Option<Trouble> {
        let first = self.0.get(group?)?;
        let kind = match first.kind {
            Kind::Down | Kind::Retry(_) => first.kind,
            Kind::Missing | Kind::Unknown | Kind::Reject => Kind::Retry(None),
        };
        let said = format!("not sent: an earlier message of its group was not accepted: {}", first.said);
        Some(Trouble::new(kind, said))
    }
}
