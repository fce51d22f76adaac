//! A cluster, and what a connection to it needs.

use super::answer;
use crate::{file::contents, timeout::check_timeout};
use postrider_core::Invalid;
use rdkafka::{ClientConfig, error::KafkaError};
use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Names of settings of the client, each with a value or a word.
pub(super) type Named = &'static [(&'static str, &'static str)];

/// How it says who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SaslMechanism {
    /// The password goes over the wire: only with TLS.
    Plain,
    /// SCRAM with SHA-256.
    ScramSha256,
    /// SCRAM with SHA-512.
    ScramSha512,
}

/// How a cluster is reached, as it was written down.
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

    /// Checks it all: the properties against those that are always `fixed`, and those that are `ours`, with what to use instead.
    pub(super) fn settle(&mut self, fixed: Named, ours: Named) -> Result<(), Invalid> {
        (self.servers, self.is_tls) = servers(&self.url)?;
        self.url = String::new();
        check_timeout("connect_timeout", self.connect_timeout)?;
        if !self.is_tls && (self.root_certificates.is_some() || self.client_certificate.is_some()) {
            return Err(Invalid::rule(
                "url",
                "has no TLS and there are certificates: begin it with kafka+ssl://",
            ));
        }
        let certificates = self.client_certificate.iter().flat_map(|(certificate, key)| [certificate, key]);
        for file in certificates.chain(&self.root_certificates) {
            contents("certificate", file)?;
        }
        for (name, value) in &self.properties {
            check_property(name, value, fixed, ours)?;
        }
        Ok(())
    }

    /// What the client is told: what is usual, the properties, and what is always so.
    pub(super) fn config(&self, usual: Named, fixed: Named) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("client.id", "postrider").set("reconnect.backoff.max.ms", "1000");
        for (name, value) in usual {
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
        // Mechanisms that have no method here are named by a property.
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

/// The servers without their scheme, and whether they speak TLS.
fn servers(url: &str) -> Result<(String, bool), Invalid> {
    let wrong = |rule: &'static str| Err(Invalid::rule("url", rule));
    let (mut servers, mut is_tls) = (Vec::new(), None);
    for part in url.split(',') {
        let part = part.trim();
        let (scheme, server) =
            part.split_once("://").map_or((None, part), |(scheme, server)| (Some(scheme), server));
        let asks = match scheme {
            Some("kafka") => Some(false),
            Some("kafka+ssl") => Some(true),
            None => None,
            Some(_) => return wrong("write kafka://host:9092, or kafka+ssl://host:9093 with TLS"),
        };
        if asks.is_some() && is_tls.is_some() && asks != is_tls {
            return wrong("names servers with TLS and servers without it; a cluster has one or the other");
        }
        is_tls = is_tls.or(asks);
        if server.contains('@') {
            return wrong("has a user; give user and password to `with_sasl`");
        }
        let server = server.trim_end_matches('/');
        let is_port = |port: &str| port.parse::<u16>().is_ok();
        if !server
            .rsplit_once(':')
            .is_some_and(|(host, port)| !host.is_empty() && !host.contains('/') && is_port(port))
        {
            return wrong("names no host and port: write kafka://host:9092, several with commas in between");
        }
        servers.push(server);
    }
    Ok((servers.join(","), is_tls.unwrap_or(false)))
}

fn check_property(name: &str, value: &str, fixed: Named, ours: Named) -> Result<(), Invalid> {
    let refused = |why: &str| Err(Invalid::rule("properties", format!("{name}: {why}")));
    if let Some((_, fixed)) = fixed.iter().find(|(fixed, _)| *fixed == name) {
        let is_same = value == *fixed || (name == "acks" && value == "-1");
        return if is_same {
            Ok(())
        } else {
            refused(&format!("is always {fixed}: messages would be lost otherwise"))
        };
    }
    if let Some((_, instead)) = ours.iter().find(|(ours, _)| *ours == name) {
        return refused(instead);
    }
    Ok(())
}

/// In the words of the client, but for what must not be shown.
pub(super) fn wrong_setting(error: &KafkaError) -> Invalid {
    let rule = match error {
        KafkaError::ClientConfig(_, described, name, _) => {
            let is_secret = ["password", "secret", "key", "token"].iter().any(|word| name.contains(word));
            format!("{name}: {}", if is_secret { "has a value that is not allowed" } else { described })
        }
        KafkaError::ClientCreation(why) => why.clone(),
        KafkaError::Nul(_) => "one of them has a character NUL".to_owned(),
        error => answer::said(error),
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
