//! What a source of Redis Streams needs.

use super::{
    RedisSource,
    group::{Group, Start, UNNAMED, WAITING},
    rounds::BLOCK,
};
use crate::redis::server::ServerOptions;
use postrider_core::{Invalid, MessageId};
use std::{
    fmt,
    path::PathBuf,
    sync::Mutex,
    time::{Duration, SystemTime},
};

const HOLD: Duration = Duration::from_secs(60);
const LEAST_HOLD: Duration = Duration::from_secs(1);
const MOST_HOLD: Duration = Duration::from_secs(24 * 60 * 60);

/// Collects what a source of Redis Streams needs; [`build`](Self::build) checks it all.
#[derive(Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct RedisSourceBuilder {
    server: ServerOptions,
    stream: String,
    group: String,
    consumer: Option<String>,
    created_at: Option<Start>,
    hold: Duration,
    refused_to: Option<String>,
    deletes: bool,
}

impl RedisSourceBuilder {
    pub(super) fn new(url: String, stream: String) -> Self {
        Self {
            server: ServerOptions::new(url),
            stream,
            group: "postrider".to_owned(),
            consumer: None,
            created_at: None,
            hold: HOLD,
            refused_to: None,
            deletes: false,
        }
    }

    /// Reads as one of this group; `postrider` unless said otherwise. Each group gets everything, and its consumers share it.
    pub fn with_group(mut self, name: impl Into<String>) -> Self {
        self.group = name.into();
        self
    }

    /// Makes the group where there is none, and the stream with it. It begins with the first entry that is there: nothing is missed.
    pub fn create_group(mut self) -> Self {
        self.created_at = Some(Start::Beginning);
        self
    }

    /// Makes the group where there is none, and the stream with it. It begins with what comes after that: what is there is **never read** by
    /// this group.
    pub fn create_group_at_end(mut self) -> Self {
        self.created_at = Some(Start::End);
        self
    }

    /// Reads under this name, which no other process may have at the same time. What was in hand under it when a process died comes again at
    /// once with the next one. Unless said otherwise it is a name that nobody had before, and such entries come again after the hold.
    pub fn with_consumer(mut self, name: impl Into<String>) -> Self {
        self.consumer = Some(name.into());
        self
    }

    /// What was in hand for so long without having been extended comes again, here or at another consumer; 60 seconds unless said
    /// otherwise. It is the longest delay for what is to come again, too. Give the same to all consumers of a group.
    pub fn with_hold(mut self, hold: Duration) -> Self {
        self.hold = hold;
        self
    }

    /// Puts what is refused into this stream, in one step with its acknowledgement. Unless said so, it is acknowledged only, and stays
    /// where it is in its own stream.
    pub fn with_refused_to(mut self, stream: impl Into<String>) -> Self {
        self.refused_to = Some(stream.into());
        self
    }

    /// Removes from the stream what is done or refused: otherwise it grows until somebody trims it. Only where this group is the only one:
    /// others would miss what they have not read yet.
    pub fn with_delete_when_done(mut self) -> Self {
        self.deletes = true;
        self
    }

    /// Trusts the certificates in this file of the format PEM, instead of those of the system.
    pub fn with_root_certificates(mut self, file: impl Into<PathBuf>) -> Self {
        self.server.root_certificates = Some(file.into());
        self
    }

    /// Gives the server so long to answer; 10 seconds unless said otherwise. Then the connection is given up.
    pub fn with_answer_timeout(mut self, timeout: Duration) -> Self {
        self.server.answer_timeout = timeout;
        self
    }

    /// Gives the server so long to answer a new connection; 5 seconds unless said otherwise.
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.server.connect_timeout = timeout;
        self
    }

    /// Checks everything and makes the source. It connects when it is asked for messages.
    ///
    /// # Errors
    /// Names the first setting that makes no sense, and says what does. It never shows the URL, which may hold a password.
    pub fn build(self) -> Result<RedisSource, Invalid> {
        let named = [
            ("stream", Some(&self.stream)),
            ("group", Some(&self.group)),
            ("consumer", self.consumer.as_ref()),
            ("refused_to", self.refused_to.as_ref()),
        ];
        for (setting, name) in named {
            if name.is_some_and(String::is_empty) {
                return Err(Invalid::rule(setting, "is empty; give it a name"));
            }
        }
        if self.consumer.as_deref() == Some(WAITING) {
            return Err(Invalid::rule(
                "consumer",
                "is the name under which entries wait; choose another one",
            ));
        }
        if self.refused_to.as_ref() == Some(&self.stream) {
            return Err(Invalid::rule(
                "refused_to",
                "is the stream itself; what is refused would come again",
            ));
        }
        if !(LEAST_HOLD..=MOST_HOLD).contains(&self.hold) {
            return Err(Invalid::rule("hold", "give at least a second, and at most a day"));
        }
        let server = self.server.server(BLOCK)?;
        let is_named = self.consumer.is_some();
        let unnamed = || format!("{UNNAMED}{}", MessageId::at(SystemTime::now()));
        let consumer = self.consumer.unwrap_or_else(unnamed).into();
        let group = Group {
            stream: self.stream,
            name: self.group,
            consumer,
            is_named,
            created_at: self.created_at,
            hold: self.hold,
            refused_to: self.refused_to,
            deletes: self.deletes,
            due: Mutex::default(),
        };
        Ok(RedisSource::with(server, group))
    }
}

impl fmt::Debug for RedisSourceBuilder {
    /// Shows no URL: it may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSourceBuilder")
            .field("stream", &self.stream)
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}
