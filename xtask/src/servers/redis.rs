//! Redis.

use crate::servers::packaged::Packaged;

pub(crate) const PACKAGED: Packaged =
    Packaged { program: "redis-server", folder: None, package: "redis-server" };
