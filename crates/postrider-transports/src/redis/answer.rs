//! What the answers of Redis mean for a message.

use postrider_core::{PublishError, Receipt};
use redis::{ServerError, Value};

/// The answer to one entry.
pub(super) fn of(value: Value, stream: &str) -> Result<Receipt, PublishError> {
    match value {
        // The entry's place in the stream.
        Value::BulkString(place) if is_place(&place) => Ok(Receipt::new()),
        Value::SimpleString(place) if is_place(place.as_bytes()) => Ok(Receipt::new()),
        Value::Nil => Err(PublishError::retry(format!(
            "there is no stream {stream}, and it must exist: XGROUP CREATE {stream} readers $ MKSTREAM"
        ))
        .named("NoStream")),
        Value::ServerError(error) => Err(refused(&error)),
        other => Err(PublishError::unknown(format!("the answer is not a place in a stream: {other:?}"))),
    }
}

/// Such as `1784021400123-0`.
fn is_place(text: &[u8]) -> bool {
    let mut parts = text.split(|byte| *byte == b'-');
    let mut is_number =
        || parts.next().is_some_and(|part| !part.is_empty() && part.iter().all(u8::is_ascii_digit));
    is_number() && is_number() && parts.next().is_none()
}

/// The server read it and said no: it is not there.
pub(super) fn refused(error: &ServerError) -> PublishError {
    let said = format!("{}: {}", error.code(), error.details().unwrap_or("no details"));
    match error.code() {
        "WRONGTYPE" => PublishError::reject(format!("{said}; choose another name, or move what is there"))
            .named("WrongType"),
        "MOVED" | "ASK" => PublishError::retry(format!(
            "{said}; the server is one of a cluster, and another one has this stream: give its URL"
        ))
        .named("Moved"),
        // Whatever is sent there, now.
        "LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "READONLY" | "MISCONF" | "NOREPLICAS" | "NOAUTH" => {
            PublishError::down(said)
        }
        "ERR" if error.details().is_some_and(|details| details.contains("too large")) => {
            PublishError::reject(said).named("TooLarge")
        }
        "OOM" => PublishError::retry(said).named("OutOfMemory"),
        "NOPERM" => PublishError::retry(said).named("AccessRefused"),
        // Busy, moving, or something that will be known later.
        _ => PublishError::retry(said),
    }
}

/// Compares how many replicas have it with how many should.
pub(super) fn replicated(value: &Value, wanted: u32) -> Result<(), String> {
    match value {
        Value::Int(count) if *count >= i64::from(wanted) => Ok(()),
        Value::Int(count) => Err(format!("{count} replicas have it, and {wanted} should")),
        other => Err(format!("how many replicas have it cannot be told: {other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(line: &str) -> &'static str {
        let value = redis::parse_redis_value(format!("{line}\r\n").as_bytes()).unwrap();
        of(value, "orders").map_or_else(|error| error.kind(), |_| "accepted")
    }

    #[test]
    fn refusals_have_names() {
        let called = |line: &str| {
            let value = redis::parse_redis_value(format!("{line}\r\n").as_bytes()).unwrap();
            of(value, "orders").unwrap_err().name()
        };
        let lines = ["$-1", "-OOM full", "-NOPERM no", "-WRONGTYPE a", "-MOVED 1 a:1", "-BUSY a"];
        let names = ["NoStream", "OutOfMemory", "AccessRefused", "WrongType", "Moved", "PublishRefused"];
        assert_eq!(lines.map(called), names);
    }

    /// Those that a server in the tests can be brought to say are in the tests with one.
    #[test]
    fn every_answer_has_its_meaning() {
        assert_eq!(answered("+1-1"), "accepted");
        assert_eq!(answered("$3\r\n1-1"), "accepted");
        for line in
            ["$-1", "-MOVED 1 a:1", "-ASK 1 a:1", "-TRYAGAIN later", "-OOM full", "-NOPERM no", "-BUSY a"]
        {
            assert_eq!(answered(line), "PublishRefused", "{line}");
        }
        for line in [
            "-LOADING a",
            "-MASTERDOWN a",
            "-CLUSTERDOWN a",
            "-READONLY a",
            "-MISCONF a",
            "-NOREPLICAS a",
            "-NOAUTH a",
        ] {
            assert_eq!(answered(line), "DestinationDown", "{line}");
        }
        for line in ["-WRONGTYPE a", "-ERR Elements are too large to be stored"] {
            assert_eq!(answered(line), "PublishRejected", "{line}");
        }
        for line in ["+OK", ":1", "*0"] {
            assert_eq!(answered(line), "PublishUnknown", "{line}");
        }
        assert_eq!(answered("-ERR something new"), "PublishRefused");
    }
}
