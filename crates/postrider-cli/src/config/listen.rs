//! The address that serves /healthz, /readyz and /metrics.

use std::{fmt, net::SocketAddr, str::FromStr};

/// The address to listen on; none is off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listen(pub(crate) Option<SocketAddr>);

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self(None)),
            text => text
                .parse()
                .map(|address| Self(Some(address)))
                .map_err(|_| "write an address and a port such as 127.0.0.1:9464, or off".to_owned()),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(address) => address.fmt(f),
            None => f.write_str("off"),
        }
    }
}
