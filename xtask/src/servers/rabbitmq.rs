//! RabbitMQ.

use crate::servers::packaged::Packaged;

pub(crate) const PACKAGED: Packaged = Packaged {
    program: "rabbitmq-server",
    // What is on the PATH is a wrapper that changes to the user of the machine's own server.
    folder: Some("/usr/lib/rabbitmq/bin"),
    package: "rabbitmq-server",
};
