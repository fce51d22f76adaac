//! Builds the transport of a destination and the source of a consumer from their sections, and the options of every client. Nothing
//! connects yet.

#[cfg(feature = "sqs")]
pub(crate) mod aws;
#[cfg(feature = "kafka")]
pub(crate) mod kafka;
#[cfg(feature = "nats")]
pub(crate) mod nats;
#[cfg(feature = "rabbitmq")]
pub(crate) mod rabbitmq;
#[cfg(feature = "redis")]
pub(crate) mod redis;
pub(crate) mod webhook;

use crate::config::{Secret, Section};
use postrider::{ClientOptions, Invalid, Pem, Trust};

/// The keys that every client has: address, certificates and timeouts.
pub(crate) fn client(section: &Section) -> Result<ClientOptions, Invalid> {
    let url = section.secret("url").map(Secret::reveal);
    let mut client = url.map_or_else(ClientOptions::default, ClientOptions::new);
    client = client.with_trust(trust(section.string("trust"), section.string("ca_file"))?);
    // The file has both of these keys or neither.
    if let (Some(certificate), Some(key)) = (section.string("certificate_file"), section.string("key_file")) {
        client = client.with_client_certificate(Pem::file(certificate), Pem::file(key));
    }
    if let Some(timeout) = section.duration("connect_timeout") {
        client = client.with_connect_timeout(timeout);
    }
    Ok(match section.duration("request_timeout") {
        Some(timeout) => client.with_request_timeout(timeout),
        None => client,
    })
}

/// A bundle alone replaces the system roots.
fn trust(trust: Option<&str>, ca_file: Option<&str>) -> Result<Trust, Invalid> {
    match (trust, ca_file.map(Pem::file)) {
        (None | Some("system"), None) => Ok(Trust::System),
        (Some("both"), Some(bundle)) => Ok(Trust::SystemAnd(bundle)),
        (Some("system"), Some(_)) => {
            Err(Invalid::rule("trust", "\"system\" ignores ca_file; write \"both\", or remove ca_file"))
        }
        (_, Some(bundle)) => Ok(Trust::Only(bundle)),
        (Some(trust), None) => {
            Err(Invalid::rule("trust", format!("{trust:?} needs a CA bundle; write ca_file")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_is_the_bundle_alone_unless_both_are_wanted() {
        let bundle = || Pem::file("ca.pem");
        for (choice, ca_file, expected) in [
            (None, None, Trust::System),
            (Some("system"), None, Trust::System),
            (None, Some("ca.pem"), Trust::Only(bundle())),
            (Some("bundle"), Some("ca.pem"), Trust::Only(bundle())),
            (Some("both"), Some("ca.pem"), Trust::SystemAnd(bundle())),
        ] {
            assert_eq!(trust(choice, ca_file), Ok(expected), "{choice:?} {ca_file:?}");
        }
        for (choice, ca_file) in
            [(Some("bundle"), None), (Some("both"), None), (Some("system"), Some("ca.pem"))]
        {
            let error = trust(choice, ca_file).unwrap_err().to_string();
            assert!(error.starts_with("trust: ") && error.contains("ca_file"), "{error}");
        }
    }
}
