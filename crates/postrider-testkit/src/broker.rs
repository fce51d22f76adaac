//! Brokers of a test's own, to kill them and start them again.

use crate::{private::Private, shared};
use postrider_servers::{Kind, Recipe};
use std::{marker::PhantomData, path::Path};

/// A RabbitMQ that nobody else uses.
pub type RabbitMq = Broker<postrider_servers::RabbitMq>;
/// A NATS with JetStream that nobody else uses.
pub type Nats = Broker<postrider_servers::Nats>;
/// A Redis that nobody else uses.
pub type Redis = Broker<postrider_servers::Redis>;
/// A Kafka that nobody else uses.
pub type Kafka = Broker<postrider_servers::Kafka>;

/// A broker that keeps over a crash what it has confirmed.
pub trait Durable {
    /// Which one it is.
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

/// A broker that takes settings: as arguments on its command line, RabbitMQ as lines of its configuration file.
pub trait Tunable: Durable {
    /// How to run it with these settings.
    fn recipe(programs: &Path, settings: &[&str]) -> Box<dyn Recipe>;
}

impl Tunable for postrider_servers::RabbitMq {
    fn recipe(programs: &Path, lines: &[&str]) -> Box<dyn Recipe> {
        Box::new(Self::new(programs).with_settings(lines))
    }
}

impl Tunable for postrider_servers::Nats {
    fn recipe(programs: &Path, arguments: &[&str]) -> Box<dyn Recipe> {
        Box::new(Self::new(programs).with_arguments(arguments))
    }
}

impl Tunable for postrider_servers::Redis {
    fn recipe(programs: &Path, arguments: &[&str]) -> Box<dyn Recipe> {
        Box::new(Self::new(programs).with_arguments(arguments))
    }
}

/// A broker that nobody else uses. Dropped, it is stopped, and its data is gone.
#[derive(Debug)]
pub struct Broker<K> {
    server: Private,
    kind: PhantomData<K>,
}

impl<K: Durable> Broker<K> {
    /// Starts one, of the version that the tests run on, and waits until it answers.
    ///
    /// # Panics
    /// When that is not possible.
    pub async fn start() -> Self {
        Self { server: Private::start(K::KIND).await, kind: PhantomData }
    }

    /// Where clients connect.
    pub fn url(&self) -> &str {
        self.server.url()
    }

    /// Its port on the loopback interface.
    pub fn port(&self) -> u16 {
        self.server.port()
    }

    /// The folder with its data.
    pub fn folder(&self) -> &Path {
        self.server.folder()
    }

    /// The ids of its processes; none while it is down.
    pub fn processes(&self) -> Vec<u32> {
        self.server.ids()
    }

    /// Kills it with SIGKILL, as a crash does.
    ///
    /// # Panics
    /// When that is not possible.
    pub fn kill(&mut self) {
        self.server.crash();
    }

    /// Starts it again, at the same address and with its data, and waits until it answers. One that still runs is stopped
    /// first.
    ///
    /// # Panics
    /// When it does not answer.
    pub async fn restart(&mut self) {
        self.server.resume().await;
    }
}

impl<K: Tunable> Broker<K> {
    /// Starts one with these settings.
    ///
    /// # Panics
    /// When that is not possible.
    pub async fn start_with(settings: &[&str]) -> Self {
        let recipe = K::recipe(&shared::programs(K::KIND), settings);
        Self { server: Private::start_by(recipe).await, kind: PhantomData }
    }
}

impl Tunable for postrider_servers::Kafka {
    fn recipe(programs: &Path, arguments: &[&str]) -> Box<dyn Recipe> {
        Box::new(Self::new(programs).with_arguments(arguments))
    }
}

impl Kafka {
    /// Starts one that tells its clients to come to this port, where a proxy is or will be.
    ///
    /// # Panics
    /// When that is not possible.
    pub async fn start_behind(port: u16) -> Self {
        let recipe = postrider_servers::Kafka::new(&shared::programs(Kind::Kafka)).with_advertised(port);
        Self { server: Private::start_by(Box::new(recipe)).await, kind: PhantomData }
    }
}

/// SQS and SNS that nobody else uses. They hold everything in memory, so there is no starting again.
#[derive(Debug)]
pub struct Sqs {
    server: Private,
}

impl Sqs {
    /// Starts them, and waits until they answer.
    ///
    /// # Panics
    /// When that is not possible.
    pub async fn start() -> Self {
        Self { server: Private::start(Kind::Sqs).await }
    }

    /// Where clients connect.
    pub fn url(&self) -> &str {
        self.server.url()
    }

    /// Stops them.
    ///
    /// # Panics
    /// When that is not possible.
    pub fn stop(&mut self) {
        self.server.stop();
    }
}
