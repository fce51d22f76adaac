//! A connection to Redis.

use super::{answer, entry, server::Server};
use crate::{line::Link, tls::choose_crypto};
use postrider_core::{Outgoing, PublishError, Receipt};
use redis::{Cmd, Pipeline, Value, aio::MultiplexedConnection};
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

/// What a server takes unless told otherwise.
const LARGEST: usize = 512 * 1024 * 1024;

pub(super) struct RedisLink {
    connection: MultiplexedConnection,
    /// The most bytes of one value.
    largest: usize,
    is_doubtful: AtomicBool,
}

impl RedisLink {
    pub(super) async fn connect(server: &Server) -> Result<Self, PublishError> {
        choose_crypto();
        let connected = server.client.get_multiplexed_async_connection_with_config(&server.config).await;
        let connection = connected.map_err(|error| {
            PublishError::down(format!("no connection to Redis at {}: {error}", server.address))
        })?;
        let mut link = Self { connection, largest: LARGEST, is_doubtful: AtomicBool::new(false) };
        // Who may not ask has to hope for the usual.
        let limit = link.settings(&["proto-max-bulk-len"]).await.ok();
        let limit = limit.and_then(|mut settings| settings.remove("proto-max-bulk-len")?.parse().ok());
        link.largest = limit.unwrap_or(LARGEST);
        Ok(link)
    }

    /// Adds them all in one go, not as a transaction: each has its own answer.
    pub(super) async fn add(
        &self,
        batch: &[Outgoing],
        must_exist: bool,
        replicas: Option<(u32, Duration)>,
    ) -> Vec<Result<Receipt, PublishError>> {
        let mut pipeline = Pipeline::with_capacity(batch.len() + 1);
        let written: Vec<_> = batch
            .iter()
            .map(|outgoing| {
                let command = entry::add(outgoing, must_exist, self.largest)?;
                pipeline.add_command(command);
                Ok::<(), String>(())
            })
            .collect();
        let sent = pipeline.len();
        let mut answers = Vec::new();
        if sent > 0 {
            if let Some((count, timeout)) = replicas {
                pipeline.cmd("WAIT").arg(count).arg(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
            }
            answers = match self.send_all(&pipeline).await {
                Ok(answers) => answers,
                Err(why) => return unknown(written, &why),
            };
        }
        let replicated = replicas.filter(|_| sent > 0).and_then(|(count, _)| {
            let answer = answers.pop().unwrap_or_default();
            answer::replicated(&answer, count).err()
        });
        let mut answers = answers.into_iter();
        let answer = |(written, outgoing): (Result<(), String>, &Outgoing)| {
            written.map_err(PublishError::reject)?;
            let receipt = answer::of(answers.next().unwrap_or(Value::Okay), &outgoing.destination)?;
            match &replicated {
                Some(missing) => Err(PublishError::unknown(missing.clone())),
                None => Ok(receipt),
            }
        };
        written.into_iter().zip(batch).map(answer).collect()
    }

    /// One answer for each command, be it a refusal; an error when nobody knows what became of them.
    pub(super) async fn send_all(&self, pipeline: &Pipeline) -> Result<Vec<Value>, String> {
        match self.connection.clone().send_packed_commands(pipeline, 0, pipeline.len()).await {
            Ok(answers) if answers.len() == pipeline.len() => Ok(answers),
            Ok(answers) => Err(format!("{} answers came", answers.len())),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The answer to a command, be it a refusal.
    pub(super) async fn send(&self, command: &Cmd) -> Result<Value, String> {
        self.connection.clone().send_packed_command(command).await.map_err(|error| error.to_string())
    }

    /// One command that only asks.
    pub(super) async fn ask(&self, command: &Cmd) -> Result<Value, PublishError> {
        match self.send(command).await {
            Ok(Value::ServerError(error)) => Err(answer::refused(&error)),
            Ok(value) => Ok(value),
            Err(why) => Err(PublishError::down(why)),
        }
    }

    /// Settings of the server, as far as they may be seen.
    pub(super) async fn settings(&self, names: &[&str]) -> Result<BTreeMap<String, String>, PublishError> {
        let mut settings = BTreeMap::new();
        for name in names {
            let value = self.ask(redis::cmd("CONFIG").arg("GET").arg(name)).await?;
            settings.extend(redis::from_redis_value::<BTreeMap<String, String>>(value).unwrap_or_default());
        }
        Ok(settings)
    }
}

impl Link for RedisLink {
    fn is_good(&self) -> bool {
        !self.is_doubtful.load(Ordering::Relaxed)
    }

    fn doubt(&self) {
        self.is_doubtful.store(true, Ordering::Relaxed);
    }
}

/// What was sent may have arrived; what was not written cannot have.
fn unknown(written: Vec<Result<(), String>>, why: &str) -> Vec<Result<Receipt, PublishError>> {
    let answer = |written: Result<(), String>| match written {
        Ok(()) => Err(PublishError::unknown(why)),
        Err(wrong) => Err(PublishError::reject(wrong)),
    };
    written.into_iter().map(answer).collect()
}
