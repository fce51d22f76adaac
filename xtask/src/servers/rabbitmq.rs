//! RabbitMQ.

use crate::servers::packaged::Packaged;

pub(crate) const PACKAGED: Packaged = Packaged {
    program: "rabbitmq-server",
    // The program on the PATH is a wrapper that switches to the user of the machine's own server.
    folder: Some("/usr/lib/rabbitmq/bin"),
    package: "rabbitmq-server",
};
