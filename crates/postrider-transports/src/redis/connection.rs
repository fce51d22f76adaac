//! A connection to a Redis server.

use super::{
    error,
    server::{Driver, Server},
    wire,
};
use crate::session::ReusableConnection;
use postrider_core::{Outgoing, PublishError, Receipt};
use redis::{Cmd, Pipeline, Value, aio::MultiplexedConnection};
use std::{collections::BTreeMap, time::Duration};

/// The server's default of `proto-max-bulk-len`.
const DEFAULT_MAX_VALUE_BYTES: usize = 512 * 1024 * 1024;

pub(super) struct RedisConnection {
    connection: MultiplexedConnection,
    _driver: Driver,
    /// Maximum size of one value.
    max_value_bytes: usize,
}

impl RedisConnection {
    pub(super) async fn connect(server: &Server) -> Result<Self, PublishError> {
        let (connection, driver) = server.connect().await?;
        let mut connection = Self { connection, _driver: driver, max_value_bytes: DEFAULT_MAX_VALUE_BYTES };
        // Without permission for CONFIG the default is assumed.
        let limit = connection.config_get(&["proto-max-bulk-len"]).await.ok();
        let limit = limit.and_then(|mut settings| settings.remove("proto-max-bulk-len")?.parse().ok());
        connection.max_value_bytes = limit.unwrap_or(DEFAULT_MAX_VALUE_BYTES);
        Ok(connection)
    }

    /// Adds the entries in one pipeline, not as a transaction: each has its own result.
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
                let command = wire::encode(outgoing, must_exist, self.max_value_bytes)?;
                pipeline.add_command(command);
                Ok::<(), String>(())
            })
            .collect();
        let sent = pipeline.len();
        let mut replies = Vec::new();
        if sent > 0 {
            if let Some((count, timeout)) = replicas {
                pipeline.cmd("WAIT").arg(count).arg(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
            }
            replies = match self.send_all(&pipeline).await {
                Ok(replies) => replies,
                Err(why) => return unknown(written, &why),
            };
        }
        let under_replicated = replicas.filter(|_| sent > 0).and_then(|(count, _)| {
            let reply = replies.pop().unwrap_or_default();
            error::check_replicas(&reply, count).err()
        });
        let mut replies = replies.into_iter();
        let result = |(written, outgoing): (Result<(), String>, &Outgoing)| {
            written.map_err(PublishError::reject)?;
            let receipt =
                error::classify_reply(replies.next().unwrap_or(Value::Okay), &outgoing.destination)?;
            match &under_replicated {
                Some(missing) => Err(PublishError::unknown(missing.clone())),
                None => Ok(receipt),
            }
        };
        written.into_iter().zip(batch).map(result).collect()
    }

    /// One reply per command, including server errors; an error when the effect of the commands is unknown.
    pub(super) async fn send_all(&self, pipeline: &Pipeline) -> Result<Vec<Value>, String> {
        match self.connection.clone().send_packed_commands(pipeline, 0, pipeline.len()).await {
            Ok(replies) if replies.len() == pipeline.len() => Ok(replies),
            Ok(replies) => Err(format!("{} replies to {} commands", replies.len(), pipeline.len())),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The reply to a command, including server errors.
    pub(super) async fn send(&self, command: &Cmd) -> Result<Value, String> {
        self.connection.clone().send_packed_command(command).await.map_err(|error| error.to_string())
    }

    /// The reply to a read-only command.
    pub(super) async fn query(&self, command: &Cmd) -> Result<Value, PublishError> {
        match self.send(command).await {
            Ok(Value::ServerError(error)) => Err(error::classify_server_error(&error)),
            Ok(value) => Ok(value),
            Err(why) => Err(PublishError::unavailable(why)),
        }
    }

    /// Configuration parameters of the server (`CONFIG GET`).
    pub(super) async fn config_get(&self, names: &[&str]) -> Result<BTreeMap<String, String>, PublishError> {
        let mut settings = BTreeMap::new();
        for name in names {
            let value = self.query(redis::cmd("CONFIG").arg("GET").arg(name)).await?;
            settings.extend(redis::from_redis_value::<BTreeMap<String, String>>(value).unwrap_or_default());
        }
        Ok(settings)
    }
}

impl ReusableConnection for RedisConnection {}

/// Entries that were sent may have arrived; entries that could not be encoded were not sent.
fn unknown(written: Vec<Result<(), String>>, why: &str) -> Vec<Result<Receipt, PublishError>> {
    let result = |written: Result<(), String>| match written {
        Ok(()) => Err(PublishError::unknown(why)),
        Err(why) => Err(PublishError::reject(why)),
    };
    written.into_iter().map(result).collect()
}
