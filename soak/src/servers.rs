//! The servers of a run: a primary with its synchronous standby, a pooler, and a broker.

use crate::{
    database::Address,
    role::{CONSUMER, LEASE, STREAM, SUBJECT},
};
use anyhow::{Context as _, Result};
use async_nats::jetstream::{
    self, Context,
    consumer::{AckPolicy, PullConsumer, pull},
    stream,
};
use postrider_testkit::{
    broker::Nats,
    failover::{FailoverPair, Replication},
    pooler::Pooler,
};
use std::path::PathBuf;

/// More than there are connections of pooled processes, which frozen ones keep.
const POOLER_SESSIONS: u32 = 30;

pub(crate) struct Servers {
    pub(crate) pair: FailoverPair,
    pub(crate) pooler: Pooler,
    pub(crate) broker: Nats,
    stream: stream::Stream,
    consumer: PullConsumer,
}

impl Servers {
    pub(crate) async fn start() -> Result<Self> {
        let (pair, broker) = tokio::join!(FailoverPair::start(Replication::Synchronous), Nats::start());
        let pooler = Pooler::before(&pair.url(), POOLER_SESSIONS).await;
        let context: Context = jetstream::new(async_nats::connect(broker.url()).await?);
        let stream = stream::Config {
            name: STREAM.into(),
            subjects: vec![SUBJECT.into()],
            ..stream::Config::default()
        };
        let stream = context.create_stream(stream).await?;
        let consumer = pull::Config {
            durable_name: Some(CONSUMER.into()),
            filter_subject: SUBJECT.into(),
            ack_policy: AckPolicy::Explicit,
            ack_wait: LEASE,
            ..pull::Config::default()
        };
        let consumer = stream.create_consumer(consumer).await?;
        Ok(Self { pair, pooler, broker, stream, consumer })
    }

    /// The address of a process: every second one connects through the pooler.
    pub(crate) fn address(&self, is_pooled: bool) -> Address {
        let direct = self.pair.url();
        match is_pooled {
            true => Address { url: self.pooler.url().to_owned(), direct: Some(direct) },
            false => Address { url: direct, direct: None },
        }
    }

    /// The number of messages of the stream that are not acked.
    pub(crate) async fn not_acked(&mut self) -> Result<u64> {
        let info = self.consumer.info().await.context("cannot ask the broker for its backlog")?;
        Ok(info.num_pending + info.num_ack_pending as u64)
    }

    /// Removes the messages of a checked round.
    pub(crate) async fn purge(&self) -> Result<()> {
        self.stream.purge().await.context("cannot purge the stream")?;
        Ok(())
    }

    /// Keeps the database when the servers stop, and returns its folder.
    pub(crate) fn keep(&mut self) -> PathBuf {
        self.pair.keep().to_owned()
    }
}
