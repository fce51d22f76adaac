//! Messages as a failing assertion prints them, without ids, which differ from run to run.

use postrider_core::{Message, inspect::MessageRow};
use std::time::Duration;

/// The longest payload that is printed in full.
const MAX_BYTES: usize = 1_000;

/// A heading and one line per message.
pub(crate) fn list(heading: &str, entries: &[MessageRow]) -> String {
    if entries.is_empty() {
        return format!("{heading}: nothing\n");
    }
    let lines: String = entries.iter().map(|entry| format!("  {}\n", line(entry))).collect();
    format!("{heading}:\n{lines}")
}

fn line(entry: &MessageRow) -> String {
    let message = &entry.message;
    let event_type = message.event_type().map_or("(no type)", postrider_core::EventType::as_str);
    let line = format!("{}: {event_type} {}", message.queue(), payload(message));
    let notes = notes(entry);
    if notes.is_empty() { line } else { format!("{line} ({})", notes.join(", ")) }
}

fn notes(entry: &MessageRow) -> Vec<String> {
    let message = &entry.message;
    let mut notes = Vec::new();
    notes.extend(message.key().map(|key| format!("key {key}")));
    notes.extend(message.timer().map(|timer| format!("timer {}", timer.name)));
    match entry.reason {
        Some(reason) => notes.push(reason.to_string()),
        None => {
            let wait = entry.at.duration_since(entry.staged_at).unwrap_or(Duration::ZERO);
            notes.extend((!wait.is_zero()).then(|| format!("due {wait:?} after it was staged")));
        }
    }
    match entry.attempts {
        0 => {}
        1 => notes.push("failed once".to_owned()),
        times => notes.push(format!("failed {times} times")),
    }
    notes.extend(entry.error.clone());
    notes
}

fn payload(message: &Message) -> String {
    let payload = message.payload();
    let Ok(text) = std::str::from_utf8(payload) else { return format!("{} bytes", payload.len()) };
    // JSON is printed as it is; other text is quoted.
    let is_json = serde_json::from_slice::<serde_json::Value>(payload).is_ok();
    let mut text = if is_json { text.to_owned() } else { format!("{text:?}") };
    if text.len() > MAX_BYTES {
        text.truncate(text.floor_char_boundary(MAX_BYTES));
        text.push('…');
    }
    text
}
