//! Private brokers of one test, which can crash and restart them.

use crate::{private_server::PrivateServer, shared};
use postrider_servers::{Kind, ServerSpec};
use std::{marker::PhantomData, path::Path};

/// A private RabbitMQ.
pub type RabbitMq = Broker<postrider_servers::RabbitMq>;
/// A private NATS with JetStream.
pub type Nats = Broker<postrider_servers::Nats>;
/// A private Redis.
pub type Redis = Broker<postrider_servers::Redis>;
/// A private Kafka.
pub type Kafka = Broker<postrider_servers::Kafka>;

/// A broker whose confirmed messages survive a crash.
pub trait Durable {
    /// The kind of broker.
    const KIND: Kind;
}

impl Durable for postrider_servers::RabbitMq {
    const KIND: Kind = Kind::RabbitMq;
}

impl Durable for postrider_servers::Nats {
    const KIND: Kind = Kind::Nats;
}

impl Durable for postrider_servers::Redis {
    const KIND: Kind = Kind::Redis;
}

impl Durable for postrider_servers::Kafka {
    const KIND: Kind = Kind::Kafka;
}

/// A broker with settings: command-line arguments, or lines of the configuration file for RabbitMQ.
pub trait Tunable: Durable {
    /// How to run it with these settings.
    fn spec(programs: &Path, settings: &[&str]) -> Box<dyn ServerSpec>;
}

impl Tunable for postrider_servers::RabbitMq {
    fn spec(programs: &Path, lines: &[&str]) -> Box<dyn ServerSpec> {
        Box::new(Self::new(programs).with_settings(lines))
    }
}

impl Tunable for postrider_servers::Nats {
    fn spec(programs: &Path, arguments: &[&str]) -> Box<dyn ServerSpec> {
        Box::new(Self::new(programs).with_arguments(arguments))
    }
}

impl Tunable for postrider_servers::Redis {
    fn spec(programs: &Path, arguments: &[&str]) -> Box<dyn ServerSpec> {
        Box::new(Self::new(programs).with_arguments(arguments))
    }
}

/// A private broker. Dropping it stops the broker and removes its data.
#[derive(Debug)]
pub struct Broker<K> {
    server: PrivateServer,
    kind: PhantomData<K>,
}

impl<K: Durable> Broker<K> {
    /// Starts a broker of the version that the tests use, and waits until it is ready.
    ///
    /// # Panics
    /// When it cannot be started.
    pub async fn start() -> Self {
        Self { server: PrivateServer::start(K::KIND).await, kind: PhantomData }
    }

    /// The URL for clients.
    pub fn url(&self) -> &str {
        self.server.url()
    }

    /// The port on the loopback interface.
    pub fn port(&self) -> u16 {
        self.server.port()
    }

    /// The folder with its data.
    pub fn folder(&self) -> &Path {
        self.server.folder()
    }

    /// The process ids; empty while it is down.
    pub fn processes(&self) -> Vec<u32> {
        self.server.ids()
    }

    /// Kills it with SIGKILL, as a crash does.
    ///
    /// # Panics
    /// When it cannot be killed.
    pub fn kill(&mut self) {
        self.server.crash();
    }

    /// Restarts it at the same address with its data, and waits until it is ready. Stops it first if it is running.
    ///
    /// # Panics
    /// When it does not become ready.
    pub async fn restart(&mut self) {
        self.server.resume().await;
    }
}

impl<K: Tunable> Broker<K> {
    /// Starts a broker with these settings.
    ///
    /// # Panics
    /// When it cannot be started.
    pub async fn start_with(settings: &[&str]) -> Self {
        let spec = K::spec(&shared::programs(K::KIND), settings);
        Self { server: PrivateServer::start_by(spec).await, kind: PhantomData }
    }
}

impl Tunable for postrider_servers::Kafka {
    fn spec(programs: &Path, arguments: &[&str]) -> Box<dyn ServerSpec> {
        Box::new(Self::new(programs).with_arguments(arguments))
    }
}

impl Kafka {
    /// Starts a broker that advertises this port, where a proxy listens or will listen.
    ///
    /// # Panics
    /// When it cannot be started.
    pub async fn start_behind(port: u16) -> Self {
        let spec = postrider_servers::Kafka::new(&shared::programs(Kind::Kafka)).with_advertised(port);
        Self { server: PrivateServer::start_by(Box::new(spec)).await, kind: PhantomData }
    }
}

/// A private SQS and SNS. All data is in memory, so it cannot be restarted.
#[derive(Debug)]
pub struct Sqs {
    server: PrivateServer,
}

impl Sqs {
    /// Starts it, and waits until it is ready.
    ///
    /// # Panics
    /// When it cannot be started.
    pub async fn start() -> Self {
        Self { server: PrivateServer::start(Kind::Sqs).await }
    }

    /// The URL for clients.
    pub fn url(&self) -> &str {
        self.server.url()
    }

    /// Stops it.
    ///
    /// # Panics
    /// When it cannot be stopped.
    pub fn stop(&mut self) {
        self.server.stop();
    }
}
