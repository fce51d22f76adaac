//! The address, trust and credentials of a client as sqlx takes them.
//!
//! sqlx makes the TLS connections itself, with rustls, because the server is asked for TLS in its own protocol. It verifies with the
//! certificates that it gets here **and** with Mozilla's list, which its TLS features compile in and cannot leave out (sqlx 0.9,
//! `import_root_certs`). So `Trust::Only` leaves out the system roots, but not that list.

use postrider_core::{ClientOptions, Credentials, Invalid, Pem, Trust};
use postrider_tls::rustls::crypto::CryptoProvider;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use std::{net::IpAddr, str::FromStr};

/// The names of a CA bundle in a URL.
const ROOT_CERTIFICATE: [&str; 3] = ["sslrootcert", "ssl-root-cert", "ssl-ca"];

/// The connection options of sqlx for a client, for pools of an application that connect as the store does.
///
/// A CA bundle or a client certificate selects `sslmode=verify-full`. Without them, the `sslmode` of the URL or of `PGSSLMODE` applies,
/// by default `prefer`, which verifies nothing. `verify-full` and `verify-ca` without a CA bundle trust the system roots.
///
/// # Errors
/// When the URL is invalid, a certificate cannot be used, or the URL turns TLS off although certificates are configured.
pub fn connect_options(client: &ClientOptions) -> Result<PgConnectOptions, Invalid> {
    client.check()?;
    let url = client.url().ok_or_else(|| Invalid::rule("url", "is missing"))?;
    let options = read_url("url", url)?;
    let options = match client.credentials() {
        Some(Credentials::Password { user, password }) => options.username(user).password(password),
        Some(_) => return Err(Invalid::rule("credentials", "cannot be a token; write user and password")),
        None => options,
    };
    let mode = ssl_mode(client, options.get_ssl_mode(), names_root_certificate(url))?;
    if matches!(mode, PgSslMode::VerifyCa) && CryptoProvider::get_default().is_none() {
        // sqlx verifies without the host name by this provider only, and panics if rustls has several and none is installed.
        return Err(Invalid::rule(
            "url",
            "has sslmode=verify-ca, or require with a CA bundle, which needs a crypto provider of the process; \
             write sslmode=verify-full, or install a provider",
        ));
    }
    with_certificates(client, options.ssl_mode(mode), url)
}

/// The error does not contain the URL, which may hold a password.
pub(super) fn read_url(field: &'static str, url: &str) -> Result<PgConnectOptions, Invalid> {
    PgConnectOptions::from_str(url).map_err(|error| {
        Invalid::rule(field, format!("{error}; write it as postgres://user@host:5432/database"))
    })
}

/// Certificates ask for TLS that verifies the server.
fn ssl_mode(client: &ClientOptions, mode: PgSslMode, names_root: bool) -> Result<PgSslMode, Invalid> {
    let has_root = names_root || client.trust().bundle().is_some();
    match mode {
        PgSslMode::Disable | PgSslMode::Allow if client.has_certificates() => Err(Invalid::rule(
            "url",
            "has no TLS, but certificates are configured; write sslmode=verify-full",
        )),
        PgSslMode::Prefer if client.has_certificates() => Ok(PgSslMode::VerifyFull),
        // As libpq: a CA bundle turns `require` into `verify-ca`. sqlx would ignore the bundle.
        PgSslMode::Require if has_root => Ok(PgSslMode::VerifyCa),
        mode => Ok(mode),
    }
}

fn with_certificates(
    client: &ClientOptions,
    mut options: PgConnectOptions,
    url: &str,
) -> Result<PgConnectOptions, Invalid> {
    let verifies = matches!(options.get_ssl_mode(), PgSslMode::VerifyCa | PgSslMode::VerifyFull);
    let trust = client.trust();
    if verifies && (trust.bundle().is_some() || !names_root_certificate(url)) {
        let bundle = postrider_tls::ca_bundle(trust)?;
        options = match trust {
            // sqlx reads the file for each connection.
            Trust::Only(Pem::File(path)) => options.ssl_root_cert(path),
            _ => options.ssl_root_cert_from_pem(bundle.into_bytes()),
        };
    }
    let Some(certificate) = client.client_certificate() else { return Ok(options) };
    let (chain, key) = postrider_tls::client_certificate(certificate)?;
    options = match &certificate.certificate {
        Pem::File(path) => options.ssl_client_cert(path),
        _ => options.ssl_client_cert_from_pem(chain),
    };
    Ok(match &certificate.key {
        Pem::File(path) => options.ssl_client_key(path),
        _ => options.ssl_client_key_from_pem(key),
    })
}

fn names_root_certificate(url: &str) -> bool {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let is_root = |pair: &str| ROOT_CERTIFICATE.contains(&pair.split('=').next().unwrap_or_default());
    query.split('&').any(is_root) || std::env::var_os("PGSSLROOTCERT").is_some()
}

/// Whether the connection does not leave this machine.
fn is_local(options: &PgConnectOptions) -> bool {
    let host = options.get_host();
    let is_loopback =
        host.trim_matches(['[', ']']).parse().is_ok_and(|address: IpAddr| address.is_loopback());
    options.get_socket().is_some() || host.starts_with('/') || host == "localhost" || is_loopback
}

/// What makes a connection over a network safe.
pub(super) const EXPOSURE_REMEDY: &str = "add sslmode=verify-full to the URL, and set a CA bundle unless the system roots include the CA of the server";

/// The danger of a connection over a network that does not verify the server.
pub(super) fn exposure(options: &PgConnectOptions) -> Option<&'static str> {
    match options.get_ssl_mode() {
        _ if is_local(options) => None,
        PgSslMode::VerifyFull => None,
        PgSslMode::Disable | PgSslMode::Allow => {
            Some("sslmode=disable sends the password and every message unencrypted")
        }
        PgSslMode::Prefer => Some("sslmode=prefer, the default, accepts any server, and one without TLS"),
        PgSslMode::Require => {
            Some("sslmode=require accepts any server, also one that only pretends to be the database")
        }
        PgSslMode::VerifyCa => Some(
            "sslmode=verify-ca accepts each server with a certificate of a trusted CA, whatever its name",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(client: &ClientOptions) -> Result<String, String> {
        // The bundle is not read: these certificates do not exist.
        let parsed = read_url("url", client.url().unwrap()).unwrap();
        let names_root = names_root_certificate(client.url().unwrap());
        ssl_mode(client, parsed.get_ssl_mode(), names_root)
            .map(|mode| format!("{mode:?}"))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn certificates_select_verify_full_and_contradict_a_url_without_tls() {
        for (sslmode, plain, bundled) in [
            ("", "Prefer", "VerifyFull"),
            ("?sslmode=prefer", "Prefer", "VerifyFull"),
            ("?sslmode=require", "Require", "VerifyCa"),
            ("?sslmode=require&sslrootcert=ca.pem", "VerifyCa", "VerifyCa"),
            ("?sslmode=verify-ca", "VerifyCa", "VerifyCa"),
            ("?sslmode=verify-full", "VerifyFull", "VerifyFull"),
        ] {
            let client = ClientOptions::new(format!("postgres://db.example/shop{sslmode}"));
            assert_eq!(mode(&client).unwrap(), plain, "{sslmode}");
            assert_eq!(mode(&client.with_ca_bundle(Pem::file("ca.pem"))).unwrap(), bundled, "{sslmode}");
        }
        for sslmode in ["disable", "allow"] {
            let client = ClientOptions::new(format!("postgres://db.example/shop?sslmode={sslmode}"));
            mode(&client).unwrap();
            let error = mode(&client.with_client_certificate(Pem::file("c"), Pem::file("k"))).unwrap_err();
            assert!(error.contains("has no TLS, but certificates are configured"), "{error}");
        }
    }

    #[test]
    fn certificate_that_cannot_be_used_is_an_error_of_the_options() {
        let client = ClientOptions::new("postgres://db.example/shop").with_ca_bundle(Pem::file("/no/ca.pem"));
        let error = connect_options(&client).unwrap_err().to_string();
        assert!(error.starts_with("ca_bundle: /no/ca.pem cannot be read"), "{error}");
        let error = connect_options(&ClientOptions::new("postgres://db").with_token("secret")).unwrap_err();
        assert!(error.to_string().starts_with("credentials: cannot be a token"), "{error}");
        assert!(connect_options(&ClientOptions::default()).unwrap_err().to_string().contains("url"));
    }

    /// The provider of the process is the choice of the application.
    #[test]
    fn verify_ca_needs_a_provider_of_the_process() {
        let url = "postgres://db.example/shop?sslmode=verify-ca&sslrootcert=ca.pem";
        match (CryptoProvider::get_default(), connect_options(&ClientOptions::new(url))) {
            (None, Err(error)) => assert!(error.to_string().contains("write sslmode=verify-full"), "{error}"),
            (Some(_), Ok(_)) => {}
            (_, result) => panic!("{result:?}"),
        }
    }

    #[test]
    fn password_of_the_options_replaces_that_of_the_url() {
        let client = ClientOptions::new("postgres://me:old@localhost/shop").with_password("relay", "new");
        assert_eq!(connect_options(&client).unwrap().get_username(), "relay");
    }

    #[test]
    fn exposure_is_every_mode_but_verify_full_over_a_network() {
        let exposed = |url: &str| exposure(&read_url("url", url).unwrap()).is_some();
        for local in
            ["postgres://localhost", "postgres://127.0.0.1", "postgres://[::1]/x", "postgres:///x?host=/run"]
        {
            assert!(!exposed(local), "{local}");
        }
        for mode in ["disable", "prefer", "require", "verify-ca"] {
            assert!(exposed(&format!("postgres://db.example/shop?sslmode={mode}")), "{mode}");
        }
        assert!(!exposed("postgres://db.example/shop?sslmode=verify-full"));
        assert!(exposed("postgres://db.example"));
    }
}
