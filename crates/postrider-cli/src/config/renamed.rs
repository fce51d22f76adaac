//! Keys that had another name once. A file that still has the old name is rejected with the new one, and with the value to write.

/// A key that was renamed.
#[derive(Debug)]
pub(super) struct RenamedKey {
    old: &'static str,
    pub(super) new: &'static str,
    /// Converts a value as it is written under the old name.
    pub(super) convert: fn(&str) -> String,
}

const RENAMED: [RenamedKey; 8] = [
    RenamedKey::new("first", "initial"),
    RenamedKey::new("factor", "multiplier"),
    RenamedKey::new("longest", "max_delay"),
    RenamedKey::new("give_up_after", "max_total"),
    RenamedKey { old: "max_per_second", new: "rate_limit", convert: per_second },
    RenamedKey::new("redelivered_within", "redelivery_window"),
    RenamedKey::new("timeout", "request_timeout"),
    RenamedKey::new("keep_marks_for", "keep_deduplication_records_for"),
];

impl RenamedKey {
    const fn new(old: &'static str, new: &'static str) -> Self {
        Self { old, new, convert: str::to_owned }
    }

    pub(super) fn find(old: &str) -> Option<&'static Self> {
        RENAMED.iter().find(|renamed| renamed.old == old)
    }
}

fn per_second(number: &str) -> String {
    format!("\"{number}/s\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renamed_key_has_its_new_name_and_value() {
        let renamed = |old, value| RenamedKey::find(old).map(|key| (key.new, (key.convert)(value)));
        assert_eq!(renamed("first", "\"1s\""), Some(("initial", "\"1s\"".to_owned())));
        assert_eq!(renamed("max_per_second", "5"), Some(("rate_limit", "\"5/s\"".to_owned())));
        assert_eq!(renamed("initial", "\"1s\""), None);
    }
}
