//! Free ports of the loopback interface.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// The timeout of connect, read and write when a server is identified.
const PATIENCE: Duration = Duration::from_secs(5);
const LOWEST: u16 = 10_000;
const ATTEMPTS: usize = 1000;

/// Returns `count` different ports that are free now.
///
/// They are below the system's range of ephemeral ports. A server that is down for a moment would otherwise lose its port to a
/// client connection, in the worst case to one of its own client: a client that keeps connecting to a port of the ephemeral range
/// can eventually connect to itself.
pub fn free_ports(count: usize) -> io::Result<Vec<u16>> {
    let highest = first_ephemeral_port().unwrap_or(32_768).max(LOWEST + 1000) - 1;
    // Held until all are found, so that no port is returned twice.
    let mut held: Vec<TcpListener> = Vec::new();
    for _ in 0..ATTEMPTS {
        if held.len() == count {
            break;
        }
        // The keys of a hash map are random, which is enough here.
        let random = RandomState::new().hash_one(held.len());
        let port = LOWEST + u16::try_from(random % u64::from(highest - LOWEST)).unwrap_or_default();
        held.extend(TcpListener::bind((Ipv4Addr::LOCALHOST, port)));
    }
    if held.len() < count {
        return Err(io::Error::other(format!("no free port from {LOWEST} to {highest}")));
    }
    held.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

/// Whether all of these ports are free.
pub(crate) fn are_free(ports: &[u16]) -> bool {
    ports.iter().all(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
}

/// Connects, with timeouts for every operation.
pub(crate) fn connect(port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn first_ephemeral_port() -> Option<u16> {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    range.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_different_and_free() {
        let mut ports = free_ports(20).unwrap();
        assert!(are_free(&ports));
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, ports[7])).unwrap();
        assert!(!are_free(&ports));
        drop(taken);
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 20);
    }
}
