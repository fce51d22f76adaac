//! The connection settings of a cluster, shared by the transport and the source.

use super::error;
use crate::{file::contents, timeout::check_timeout};
use postrider_core::Invalid;
use rdkafka::{ClientConfig, error::KafkaError};
use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Properties of librdkafka, each with a value or a remark.
pub(super) type Properties = &'static [(&'static str, &'static str)];

/// The SASL mechanism that authenticates the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SaslMechanism {
    /// PLAIN: the password goes over the wire. Use it with TLS only.
    Plain,
    /// SCRAM-SHA-256.
    ScramSha256,
    /// SCRAM-SHA-512.
    ScramSha512,
}

/// Addresses, credentials and client properties of a cluster.
#[derive(Clone)]
pub(super) struct ClusterOptions {
    url: String,
    pub(super) servers: String,
    is_tls: bool,
    pub(super) sasl: Option<(SaslMechanism, String, String)>,
    pub(super) root_certificates: Option<PathBuf>,
    pub(super) client_certificate: Option<(PathBuf, PathBuf)>,
    pub(super) connect_timeout: Duration,
    pub(super) properties: BTreeMap<String, String>,
}

impl ClusterOptions {
    pub(super) fn new(url: String) -> Self {
        Self {
            url,
            servers: String::new(),
            is_tls: false,
            sasl: None,
            root_certificates: None,
            client_certificate: None,
            connect_timeout: CONNECT_TIMEOUT,
            properties: BTreeMap::new(),
        }
    }

    /// Checks all settings: a `fixed` property keeps its value, and a `reserved` one names the method to use instead.
    pub(super) fn validate(&mut self, fixed: Properties, reserved: Properties) -> Result<(), Invalid> {
        (self.servers, self.is_tls) = servers(&self.url)?;
        self.url = String::new();
        check_timeout("connect_timeout", self.connect_timeout)?;
        if !self.is_tls && (self.root_certificates.is_some() || self.client_certificate.is_some()) {
            return Err(Invalid::rule(
                "url",
                "certificates are set but the URL has no TLS; begin it with kafka+ssl://",
            ));
        }
        let certificates = self.client_certificate.iter().flat_map(|(certificate, key)| [certificate, key]);
        for file in certificates.chain(&self.root_certificates) {
            contents("certificate", file)?;
        }
        for (name, value) in &self.properties {
            check_property(name, value, fixed, reserved)?;
        }
        Ok(())
    }

    /// The configuration of the client: `defaults`, overridden by the properties, overridden by what is `fixed`.
    pub(super) fn config(&self, defaults: Properties, fixed: Properties) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("client.id", "postrider").set("reconnect.backoff.max.ms", "1000");
        for (name, value) in defaults {
            config.set(*name, *value);
        }
        for (name, value) in &self.properties {
            config.set(name, value);
        }
        for (name, value) in fixed {
            config.set(*name, *value);
        }
        config.set("bootstrap.servers", &self.servers).set(
            "socket.connection.setup.timeout.ms",
            self.connect_timeout.max(Duration::from_secs(1)).as_millis().to_string(),
        );
        // Mechanisms that have no method here are set by a property.
        let is_sasl =
            self.sasl.is_some() || self.properties.keys().any(|name| name.starts_with("sasl.mechanism"));
        let protocol = match (self.is_tls, is_sasl) {
            (false, false) => "plaintext",
            (false, true) => "sasl_plaintext",
            (true, false) => "ssl",
            (true, true) => "sasl_ssl",
        };
        config.set("security.protocol", protocol);
        if let Some((mechanism, user, password)) = &self.sasl {
            config.set(
                "sasl.mechanism",
                match mechanism {
                    SaslMechanism::Plain => "PLAIN",
                    SaslMechanism::ScramSha256 => "SCRAM-SHA-256",
                    SaslMechanism::ScramSha512 => "SCRAM-SHA-512",
                },
            );
            config.set("sasl.username", user).set("sasl.password", password);
        }
        let text = |file: &PathBuf| file.to_string_lossy().into_owned();
        if let Some(file) = &self.root_certificates {
            config.set("ssl.ca.location", text(file));
        }
        if let Some((certificate, key)) = &self.client_certificate {
            config.set("ssl.certificate.location", text(certificate)).set("ssl.key.location", text(key));
        }
        config
    }
}

/// The servers without their scheme, and whether they use TLS.
fn servers(url: &str) -> Result<(String, bool), Invalid> {
    let wrong = |rule: &'static str| Err(Invalid::rule("url", rule));
    let (mut servers, mut is_tls) = (Vec::new(), None);
    for part in url.split(',') {
        let part = part.trim();
        let (scheme, server) =
            part.split_once("://").map_or((None, part), |(scheme, server)| (Some(scheme), server));
        let wants_tls = match scheme {
            Some("kafka") => Some(false),
            Some("kafka+ssl") => Some(true),
            None => None,
            Some(_) => return wrong("write kafka://host:9092, or kafka+ssl://host:9093 with TLS"),
        };
        if wants_tls.is_some() && is_tls.is_some() && wants_tls != is_tls {
            return wrong(
                "mixes kafka:// and kafka+ssl://; use the same scheme for all servers of a cluster",
            );
        }
        is_tls = is_tls.or(wants_tls);
        if server.contains('@') {
            return wrong("contains a user; set user and password with `with_sasl`");
        }
        let server = server.trim_end_matches('/');
        let is_port = |port: &str| port.parse::<u16>().is_ok();
        if !server
            .rsplit_once(':')
            .is_some_and(|(host, port)| !host.is_empty() && !host.contains('/') && is_port(port))
        {
            return wrong("has no host and port; write kafka://host:9092, and separate several with commas");
        }
        servers.push(server);
    }
    Ok((servers.join(","), is_tls.unwrap_or(false)))
}

fn check_property(name: &str, value: &str, fixed: Properties, reserved: Properties) -> Result<(), Invalid> {
    let refused = |why: &str| Err(Invalid::rule("properties", format!("{name}: {why}")));
    if let Some((_, fixed)) = fixed.iter().find(|(fixed, _)| *fixed == name) {
        let is_same = value == *fixed || (name == "acks" && value == "-1");
        return if is_same {
            Ok(())
        } else {
            refused(&format!("is always {fixed}; any other value would lose messages"))
        };
    }
    if let Some((_, instead)) = reserved.iter().find(|(reserved, _)| *reserved == name) {
        return refused(instead);
    }
    Ok(())
}

/// The client's own description of an invalid setting, without values that may be secret.
pub(super) fn wrong_setting(error: &KafkaError) -> Invalid {
    let rule = match error {
        KafkaError::ClientConfig(_, described, name, _) => {
            let is_secret = ["password", "secret", "key", "token"].iter().any(|word| name.contains(word));
            format!("{name}: {}", if is_secret { "invalid value" } else { described })
        }
        KafkaError::ClientCreation(why) => why.clone(),
        KafkaError::Nul(_) => "a value contains a NUL character; remove it".to_owned(),
        error => error::describe(error),
    };
    Invalid::rule("properties", rule)
}

impl fmt::Debug for ClusterOptions {
    /// Shows no user and no password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterOptions")
            .field("servers", &self.servers)
            .field("is_tls", &self.is_tls)
            .field("sasl", &self.sasl.as_ref().map(|(mechanism, ..)| mechanism))
            .finish_non_exhaustive()
    }
}
