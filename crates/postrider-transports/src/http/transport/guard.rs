//! Protects against server-side request forgery (SSRF): limits the addresses that connections may go to.
//!
//! Somebody who may choose a URL must not reach servers behind our firewall through us. A check before sending is not enough: a host
//! name can resolve to another address a moment later. So the check is in the resolver, and the addresses that it returns are the ones that
//! are dialled. An address in the URL itself is never resolved; it is checked when the URL is parsed. Redirects are not followed and
//! proxies are not used, so there is no third way.

use ipnet::IpNet;
use postrider_core::{BoxError, Invalid};
use reqwest::{
    Url,
    dns::{Addrs, Name, Resolve, Resolving},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

/// Decides which addresses may be dialled: public ones, and those that were allowed.
#[derive(Debug, Clone, Default)]
pub(super) struct AddressGuard {
    pub(super) hosts: BTreeSet<String>,
    networks: Vec<IpNet>,
    /// The addresses of hosts that are not resolved by DNS.
    pub(super) static_addresses: BTreeMap<String, Vec<IpAddr>>,
}

/// A host has no address that may be dialled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PrivateAddress {
    host: String,
    address: IpAddr,
}

impl fmt::Display for PrivateAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, address } = self;
        write!(
            f,
            "{host} is at {address}, which is not public; allow it with `allow_host` or `allow_network`"
        )
    }
}

impl std::error::Error for PrivateAddress {}

impl AddressGuard {
    /// Allows a network such as `10.0.0.0/8`, or one address.
    pub(super) fn allow_network(&mut self, network: &str) -> Result<(), Invalid> {
        let address = || network.parse::<IpAddr>().map(IpNet::from);
        let allowed = network.parse::<IpNet>().or_else(|_| address()).map_err(|_| {
            Invalid::rule(
                "network",
                format!("{network:?} is not a network; write it like 10.0.0.0/8 or fd00::/8"),
            )
        })?;
        self.networks.push(allowed);
        Ok(())
    }

    /// Refuses a URL whose host is an address that may not be dialled.
    pub(super) fn check_url(&self, url: &Url) -> Result<(), PrivateAddress> {
        let host = bare(url.host_str().unwrap_or_default());
        match host.parse::<IpAddr>() {
            Ok(address) if !self.allows(host, address) => {
                Err(PrivateAddress { host: host.to_owned(), address })
            }
            _ => Ok(()),
        }
    }

    fn allows(&self, host: &str, address: IpAddr) -> bool {
        let unmapped = address.to_canonical();
        is_public(address)
            || self.hosts.contains(host)
            || self.networks.iter().any(|network| network.contains(&unmapped) || network.contains(&address))
    }

    /// The addresses of `host` that may be dialled.
    async fn addresses(&self, host: &str) -> Result<Vec<SocketAddr>, BoxError> {
        let found: Vec<IpAddr> = match self.static_addresses.get(host) {
            Some(addresses) => addresses.clone(),
            None => tokio::net::lookup_host((host, 0)).await?.map(|found| found.ip()).collect(),
        };
        let allowed = found.iter().filter(|address| self.allows(host, **address));
        // The connector fills in the port of the URL.
        let allowed: Vec<_> = allowed.map(|address| SocketAddr::new(*address, 0)).collect();
        match (allowed.is_empty(), found.first()) {
            (true, Some(address)) => Err(PrivateAddress { host: host.to_owned(), address: *address }.into()),
            (true, None) => Err("the host name has no address".into()),
            (false, _) => Ok(allowed),
        }
    }
}

/// A host without the brackets of IPv6.
pub(super) fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

/// The guard as the resolver of a client.
#[derive(Debug)]
pub(super) struct Resolver(pub(super) Arc<AddressGuard>);

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = Arc::clone(&self.0);
        Box::pin(async move {
            let addresses = guard.addresses(name.as_str()).await?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// Whether the address is public: a host on the internet could have it.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    /// Azure's metadata service, at an address that looks public.
    const AZURE: Ipv4Addr = Ipv4Addr::new(168, 63, 129, 16);
    let [a, b, c, _] = address.octets();
    let is_special = address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        || a == 0
        || (a == 100 && (64..128).contains(&b)) // shared by the customers of a provider
        || (a, b, c) == (192, 0, 0) // protocol assignments
        || (a, b, c) == (192, 88, 99) // 6to4 relays
        || (a == 198 && (18..20).contains(&b)) // benchmarks
        || a >= 224; // multicast, reserved, broadcast
    !is_special && address != AZURE
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let [.., high, low] = segments;
    let embedded = Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match segments {
        // An IPv4 address, mapped or behind NAT64.
        [0, 0, 0, 0, 0, 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => is_public_v4(embedded),
        // Protocol assignments with Teredo, documentation, 6to4, documentation.
        [0x2001, 0..0x200 | 0xdb8, ..] | [0x2002, ..] | [0x3fff, 0..0x1000, ..] => false,
        // All else that is assigned to the internet. Local, multicast and unspecified addresses are outside.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every class of address that must not be dialled.
    const PRIVATE: &[&str] = &[
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "100.64.0.1",
        "100.100.100.200", // Alibaba's metadata
        "127.0.0.1",
        "127.255.255.254",
        "168.63.129.16",
        "169.254.169.254", // the metadata of most clouds
        "169.254.170.2",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.192", // Oracle's metadata
        "192.0.2.1",
        "192.88.99.1",
        "192.168.0.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::7f00:1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::127.0.0.1",
        "64:ff9b::169.254.169.254",
        "64:ff9b:1::1",
        "100::1",
        "2001::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "3fff::1",
        "fc00::1",
        "fd00:ec2::254", // Amazon's metadata
        "fe80::1",
        "fec0::1",
        "ff02::1",
    ];

    const PUBLIC: &[&str] = &[
        "1.1.1.1",
        "8.8.8.8",
        "93.184.215.14",
        "100.63.255.255",
        "100.128.0.1",
        "172.15.0.1",
        "172.32.0.1",
        "198.17.0.1",
        "223.255.255.255",
        "2606:4700:4700::1111",
        "2a00:1450:4001:80b::200e",
        "::ffff:8.8.8.8",
        "64:ff9b::8.8.8.8",
    ];

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap_or_else(|_| panic!("{text} is no address"))
    }

    fn url(address: IpAddr) -> Url {
        let host = if address.is_ipv6() { format!("[{address}]") } else { address.to_string() };
        format!("https://{host}/").parse().unwrap()
    }

    #[test]
    fn only_public_addresses_pass() {
        for text in PRIVATE {
            assert!(!is_public(address(text)), "{text} is not public");
        }
        for text in PUBLIC {
            assert!(is_public(address(text)), "{text} is public");
        }
    }

    #[test]
    fn check_url_refuses_private_address_in_any_notation() {
        let guard = AddressGuard::default();
        for text in PRIVATE {
            assert!(guard.check_url(&url(address(text))).is_err(), "{text}");
        }
        for text in PUBLIC {
            assert_eq!(guard.check_url(&url(address(text))), Ok(()), "{text}");
        }
        for host in ["2130706433", "0x7f.1", "0177.0.0.1", "127.1", "127。0。0。1", "[::ffff:7f00:1]"] {
            let url: Url = format!("https://{host}/").parse().unwrap();
            assert!(guard.check_url(&url).is_err(), "{host} is 127.0.0.1");
        }
    }

    #[test]
    fn allowed_networks_and_hosts_pass_and_no_others() {
        let mut guard = AddressGuard::default();
        guard.allow_network("10.1.0.0/16").unwrap();
        guard.allow_network("fd00::1").unwrap();
        guard.hosts.insert("192.168.0.7".to_owned());
        for allowed in ["10.1.2.3", "::ffff:10.1.2.3", "fd00::1", "192.168.0.7"] {
            assert_eq!(guard.check_url(&url(address(allowed))), Ok(()), "{allowed}");
        }
        for refused in ["10.2.0.1", "fd00::2", "192.168.0.8", "127.0.0.1"] {
            assert!(guard.check_url(&url(address(refused))).is_err(), "{refused}");
        }
        let error = guard.allow_network("10.0.0.0/33").unwrap_err().to_string();
        assert_eq!(error, r#"network: "10.0.0.0/33" is not a network; write it like 10.0.0.0/8 or fd00::/8"#);
    }

    #[tokio::test]
    async fn resolver_returns_only_allowed_addresses() {
        let resolving_to = |addresses: &[&str]| {
            let addresses = addresses.iter().map(|text| address(text)).collect();
            AddressGuard {
                static_addresses: [("shop.example".to_owned(), addresses)].into(),
                ..AddressGuard::default()
            }
        };
        for text in PRIVATE {
            let error = resolving_to(&[text]).addresses("shop.example").await.unwrap_err();
            assert!(error.is::<PrivateAddress>(), "{text}: {error}");
        }
        let mixed = resolving_to(&["10.0.0.1", "8.8.8.8", "::1"]).addresses("shop.example").await.unwrap();
        assert_eq!(mixed, [SocketAddr::new(address("8.8.8.8"), 0)]);
        let mut allowing = resolving_to(&["10.0.0.1"]);
        allowing.hosts.insert("shop.example".to_owned());
        assert_eq!(allowing.addresses("shop.example").await.unwrap().len(), 1);
    }
}
