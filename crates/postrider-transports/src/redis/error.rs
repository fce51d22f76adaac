//! Classifies Redis's replies as publish results.

use postrider_core::{PublishError, Receipt};
use redis::{ServerError, Value};

/// The publish result of one entry.
pub(super) fn classify_reply(value: Value, stream: &str) -> Result<Receipt, PublishError> {
    match value {
        // The id of the new entry.
        Value::BulkString(id) if is_entry_id(&id) => Ok(Receipt::new()),
        Value::SimpleString(id) if is_entry_id(id.as_bytes()) => Ok(Receipt::new()),
        Value::Nil => Err(PublishError::address_unavailable(format!(
            "stream {stream} does not exist, and `must_exist` is set: XGROUP CREATE {stream} readers $ MKSTREAM"
        ))
        .named("NoStream")),
        Value::ServerError(error) => Err(classify_server_error(&error)),
        other => Err(PublishError::unknown(format!("the reply is not an entry id: {other:?}"))),
    }
}

/// Such as `1784021400123-0`.
fn is_entry_id(text: &[u8]) -> bool {
    let mut parts = text.split(|byte| *byte == b'-');
    let mut is_number =
        || parts.next().is_some_and(|part| !part.is_empty() && part.iter().all(u8::is_ascii_digit));
    is_number() && is_number() && parts.next().is_none()
}

/// The server refused the command: the entry was not added.
pub(super) fn classify_server_error(error: &ServerError) -> PublishError {
    let text = format!("{}: {}", error.code(), error.details().unwrap_or("no details"));
    match error.code() {
        "WRONGTYPE" => {
            PublishError::reject(format!("{text}; choose another stream name, or move the existing key"))
                .named("WrongType")
        }
        "MOVED" | "ASK" => PublishError::address_unavailable(format!(
            "{text}; another node of the cluster has this stream: configure its URL"
        ))
        .named("Moved"),
        // These concern every command at this time.
        "LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "READONLY" | "MISCONF" | "NOREPLICAS" | "NOAUTH" => {
            PublishError::unavailable(text)
        }
        "ERR" if error.details().is_some_and(|details| details.contains("too large")) => {
            PublishError::reject(text).named("TooLarge")
        }
        "OOM" => PublishError::unavailable(format!("{text}; raise maxmemory, or trim streams"))
            .named("OutOfMemory"),
        "NOPERM" => PublishError::address_unavailable(format!(
            "{text}; grant the command and the key: ACL SETUSER … +xadd ~stream"
        ))
        .named("AccessRefused"),
        // Busy, moving, or an error of a later version.
        _ => PublishError::retry(text),
    }
}

/// Compares the number of replicas that have the entries with the required number.
pub(super) fn check_replicas(value: &Value, wanted: u32) -> Result<(), String> {
    match value {
        Value::Int(count) if *count >= i64::from(wanted) => Ok(()),
        Value::Int(count) => Err(format!("{count} replicas have the entry, {wanted} are required")),
        other => Err(format!("the reply to WAIT is not a number of replicas: {other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classified(line: &str) -> &'static str {
        let value = redis::parse_redis_value(format!("{line}\r\n").as_bytes()).unwrap();
        classify_reply(value, "orders").map_or_else(|error| error.kind(), |_| "accepted")
    }

    #[test]
    fn server_errors_have_names() {
        let name = |line: &str| {
            let value = redis::parse_redis_value(format!("{line}\r\n").as_bytes()).unwrap();
            classify_reply(value, "orders").unwrap_err().name()
        };
        let lines = ["$-1", "-OOM full", "-NOPERM no", "-WRONGTYPE a", "-MOVED 1 a:1", "-BUSY a"];
        let names = ["NoStream", "OutOfMemory", "AccessRefused", "WrongType", "Moved", "PublishRefused"];
        assert_eq!(lines.map(name), names);
    }

    /// Replies that a real server can be made to send are covered by the tests with a server.
    #[test]
    fn every_reply_has_its_publish_result() {
        assert_eq!(classified("+1-1"), "accepted");
        assert_eq!(classified("$3\r\n1-1"), "accepted");
        for line in ["$-1", "-MOVED 1 a:1", "-ASK 1 a:1", "-NOPERM no"] {
            assert_eq!(classified(line), "AddressUnavailable", "{line}");
        }
        for line in ["-TRYAGAIN later", "-BUSY a"] {
            assert_eq!(classified(line), "PublishRefused", "{line}");
        }
        for line in [
            "-LOADING a",
            "-MASTERDOWN a",
            "-CLUSTERDOWN a",
            "-READONLY a",
            "-MISCONF a",
            "-NOREPLICAS a",
            "-NOAUTH a",
            "-OOM full",
        ] {
            assert_eq!(classified(line), "DestinationDown", "{line}");
        }
        for line in ["-WRONGTYPE a", "-ERR Elements are too large to be stored"] {
            assert_eq!(classified(line), "PublishRejected", "{line}");
        }
        for line in ["+OK", ":1", "*0"] {
            assert_eq!(classified(line), "PublishUnknown", "{line}");
        }
        assert_eq!(classified("-ERR something new"), "PublishRefused");
    }
}
