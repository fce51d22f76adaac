//! Redis Streams.

use super::client;
use crate::config::EndpointSection;
use postrider::{
    Invalid,
    transports::redis::{RedisSource, RedisTransport},
};
use std::time::Duration;

/// How long to wait for the replicas to confirm a message.
const REPLICATION_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) fn transport(section: &EndpointSection) -> Result<RedisTransport, Invalid> {
    let mut builder = RedisTransport::builder(client(section)?);
    if let Some(replicas) = section.number("replicas") {
        builder = builder.with_replicas(replicas, REPLICATION_TIMEOUT);
    }
    if section.flag("must_exist") {
        builder = builder.must_exist();
    }
    builder.build()
}

pub(crate) fn source(section: &EndpointSection) -> Result<RedisSource, Invalid> {
    let mut builder = RedisSource::builder(client(section)?, section.required("stream")?);
    if let Some(group) = section.string("group") {
        builder = builder.with_group(group);
    }
    if section.flag("create_group") {
        builder = builder.create_group();
    }
    builder.build()
}
