//! How entries are written down.

use super::*;

#[test]
fn log_entry_round_trips_through_json() {
    let all: Vec<_> = std::iter::once(plan("CPR").begun()).chain(about(1)).collect();
    let mut lines = Vec::new();
    for entry in &all {
        let line = serde_json::to_string(entry).unwrap();
        assert_eq!(serde_json::from_str::<LogEntry>(&line).unwrap(), *entry);
        lines.push(line);
    }
    insta::assert_snapshot!(lines.join("\n"), @r#"
    {"entry":"begun","plan":"plan-CPR","fingerprint":"076cf3ee-8114-5d7d-9e18-2eeb64abf101"}
    {"entry":"done","step":1}
    {"entry":"failed","step":1,"error":"timeout"}
    {"entry":"unknown","step":1,"error":"timeout"}
    {"entry":"resolved","step":1,"happened":true}
    {"entry":"resolved","step":1,"happened":false}
    {"entry":"undone","step":1}
    {"entry":"stuck","step":1,"error":"timeout"}
    {"entry":"unstuck","step":1}
    "#);
}

#[test]
fn log_entry_of_unknown_kind_is_rejected() {
    for entry in std::iter::once(plan("CPR").begun()).chain(about(1)) {
        let mut more = serde_json::to_value(&entry).unwrap();
        more["text"] = "personal data".into();
        assert!(serde_json::from_value::<LogEntry>(more).is_err(), "{entry:?}");
        let mut fewer = serde_json::to_value(&entry).unwrap();
        fewer.as_object_mut().unwrap().retain(|field, _| field == "entry");
        assert!(serde_json::from_value::<LogEntry>(fewer).is_err(), "{entry:?}");
    }
    assert!(serde_json::from_str::<LogEntry>(r#"{"entry":"paused","step":1}"#).is_err());
    assert!(serde_json::from_str::<LogEntry>(r#"{"entry":"done","step":-1}"#).is_err());
}
