//! The connection settings of a cluster, shared by the transport and the source.

use super::error;
use crate::tls::check_no_certificates;
use postrider_core::{ClientOptions, Credentials, Invalid};
use rdkafka::{ClientConfig, error::KafkaError};
use std::{collections::BTreeMap, fmt, time::Duration};

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
    pub(super) client: ClientOptions,
    pub(super) servers: String,
    is_tls: bool,
    pub(super) sasl: Option<SaslMechanism>,
    pub(super) connect_timeout: Duration,
    pub(super) properties: BTreeMap<String, String>,
}

impl ClusterOptions {
    pub(super) fn new(client: ClientOptions) -> Self {
        Self {
            connect_timeout: client.connect_timeout(),
            client,
            servers: String::new(),
            is_tls: false,
            sasl: None,
            properties: BTreeMap::new(),
        }
    }

    /// Checks all settings: a `fixed` property keeps its value, and a `reserved` one names the method to use instead.
    pub(super) fn validate(&mut self, fixed: Properties, reserved: Properties) -> Result<(), Invalid> {
        (self.servers, self.is_tls) = servers(self.client.url().unwrap_or_default())?;
        self.client.check()?;
        if !self.is_tls {
            check_no_certificates(&self.client, "kafka+ssl")?;
        }
        self.check_credentials()?;
        for (name, value) in &self.properties {
            check_property(name, value, fixed, reserved)?;
        }
        Ok(())
    }

    /// SASL has a mechanism, a user and a password.
    fn check_credentials(&self) -> Result<(), Invalid> {
        let needs_password = "SASL needs user and password; set them with `ClientOptions::with_password`";
        match (self.client.credentials(), self.sasl) {
            (None, None) | (Some(Credentials::Password { .. }), Some(_)) => Ok(()),
            (Some(Credentials::Password { .. }), None) if self.has_mechanism_property() => Ok(()),
            (Some(Credentials::Password { .. }), None) => {
                Err(Invalid::rule("credentials", "have no SASL mechanism; choose one with `with_sasl`"))
            }
            _ => Err(Invalid::rule("credentials", needs_password)),
        }
    }

    /// Mechanisms that have no method here are set by a property.
    fn has_mechanism_property(&self) -> bool {
        self.properties.keys().any(|name| name.starts_with("sasl.mechanism"))
    }

    /// The configuration of the client: `defaults`, overridden by the properties, overridden by what is `fixed`. Certificates are read
    /// again each time.
    pub(super) fn config(&self, defaults: Properties, fixed: Properties) -> Result<ClientConfig, Invalid> {
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
        let is_sasl = self.sasl.is_some() || self.has_mechanism_property();
        let protocol = match (self.is_tls, is_sasl) {
            (false, false) => "plaintext",
            (false, true) => "sasl_plaintext",
            (true, false) => "ssl",
            (true, true) => "sasl_ssl",
        };
        config.set("security.protocol", protocol);
        if let Some(mechanism) = self.sasl {
            config.set(
                "sasl.mechanism",
                match mechanism {
                    SaslMechanism::Plain => "PLAIN",
                    SaslMechanism::ScramSha256 => "SCRAM-SHA-256",
                    SaslMechanism::ScramSha512 => "SCRAM-SHA-512",
                },
            );
        }
        if let Some(Credentials::Password { user, password }) = self.client.credentials() {
            config.set("sasl.username", user).set("sasl.password", password);
        }
        if self.client.keepalive().is_some() {
            config.set("socket.keepalive.enable", "true");
        }
        if self.is_tls {
            // As text: the client's own search for system roots differs between systems, and cannot be combined with a bundle.
            config.set("ssl.ca.pem", postrider_tls::ca_bundle(self.client.trust())?);
        }
        if let Some(certificate) = self.client.client_certificate() {
            let (certificate, key) = postrider_tls::client_certificate(certificate)?;
            config.set("ssl.certificate.pem", certificate).set("ssl.key.pem", key);
        }
        Ok(config)
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
            return wrong("contains a user; set user and password with `ClientOptions::with_password`");
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
            .field("sasl", &self.sasl)
            .finish_non_exhaustive()
    }
}
