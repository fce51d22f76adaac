//! Fixtures for receiving from SQS: standard and FIFO queues of a test's own.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use super::{
    server::{Aws, options, unique},
    support::unused_port,
};
use async_trait::async_trait;
use aws_sdk_sqs::types::QueueAttributeName;
use postrider_core::{Outgoing, Source, Transport};
use postrider_testkit::{
    Kind,
    proxy::FaultProxy,
    shared,
    source::{SourceFeatures, SourceFixture},
};
use postrider_transports::sqs::{SqsSource, SqsSourceBuilder, SqsTransport};
use std::{sync::Arc, time::Duration};

/// Queues whose names end in this.
pub(crate) struct SqsFixture {
    ending: &'static str,
    url: String,
    aws: Aws,
}

pub(crate) async fn fixture(ending: &'static str) -> SqsFixture {
    let url = shared::url(Kind::Sqs);
    SqsFixture { ending, aws: Aws::at(&url).await, url }
}

pub(crate) fn builder(url: &str, queue: &str) -> SqsSourceBuilder {
    SqsSource::builder(options(url), queue)
        .with_wait(Duration::from_secs(1))
        // Short enough to redeliver a dead consumer's messages, long enough for a slow machine.
        .with_visibility_timeout(Duration::from_secs(15))
}

impl SqsFixture {
    fn is_fifo(&self) -> bool {
        self.ending == ".fifo"
    }

    fn at(&self, url: &str, address: &str) -> Arc<dyn Source> {
        Arc::new(builder(url, address).build().unwrap())
    }
}

#[async_trait]
impl SourceFixture for SqsFixture {
    fn features(&self) -> SourceFeatures {
        let is_fifo = self.is_fifo();
        SourceFeatures { keeps_order: is_fifo, shares: true, carries_id: is_fifo, survives_restarts: false }
    }

    async fn address(&self) -> String {
        let name = unique("orders") + self.ending;
        // Messages without an id are deduplicated by their contents.
        let by_contents = [(QueueAttributeName::ContentBasedDeduplication, "true")];
        self.aws.queue(&name, if self.is_fifo() { &by_contents } else { &[] }).await;
        name
    }

    async fn send(&self, _: &str, batch: Vec<Outgoing>) {
        let transport = SqsTransport::new(options(&self.url)).unwrap();
        for answer in transport.publish(&batch).await {
            answer.unwrap();
        }
    }

    async fn send_bare(&self, address: &str, id: Option<&str>, body: &str) {
        let url = self.aws.sqs.get_queue_url().queue_name(address).send().await.unwrap().queue_url.unwrap();
        let request = self.aws.sqs.send_message().queue_url(url).message_body(body);
        let group = self.is_fifo().then(|| "key".to_owned());
        let request = request.set_message_group_id(group).set_message_deduplication_id(id.map(str::to_owned));
        request.send().await.unwrap();
    }

    async fn source(&self, address: &str) -> Arc<dyn Source> {
        self.at(&self.url, address)
    }

    async fn nobody_there(&self) -> Option<Arc<dyn Source>> {
        Some(self.at(&format!("http://127.0.0.1:{}", unused_port()), "orders"))
    }

    async fn through_proxy(&self, address: &str) -> Option<(FaultProxy, Arc<dyn Source>)> {
        let (proxy, url) = FaultProxy::before_url(&self.url).await;
        let source = self.at(&url, address);
        Some((proxy, source))
    }

    async fn kill_and_restart(&self) {
        unreachable!("it holds everything in memory")
    }
}
