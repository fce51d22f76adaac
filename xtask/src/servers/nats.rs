//! NATS.

use crate::servers::packaged::Packaged;

pub(crate) const PACKAGED: Packaged =
    Packaged { program: "nats-server", folder: Some("/usr/sbin"), package: "nats-server" };
