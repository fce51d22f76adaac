//! TLS.

use crate::{receiver::*, *};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// A receiver with a certificate for `name`, and the certificate.
pub(crate) async fn receiver(name: &str, is_expired: bool) -> (Receiver, String) {
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    if is_expired {
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
    }
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .unwrap();
    let receiver = Receiver::with(Some(TlsAcceptor::from(Arc::new(config)))).await;
    (receiver, certificate.pem())
}

/// Only https, to this machine, under the name `shop.example`.
pub(crate) fn encrypted(receiver: &Receiver, trusted: &str) -> (HttpOptions, String) {
    let client = ClientOptions::default().with_ca_bundle(Pem::text(trusted));
    let options = HttpOptions::new().with_client(client).allow_host("shop.example");
    let options = options.with_addresses("shop.example", [receiver.address.ip()]);
    (options, format!("https://shop.example:{}/in", receiver.address.port()))
}

#[tokio::test]
async fn messages_are_delivered_over_tls() {
    let (receiver, certificate) = receiver("shop.example", false).await;
    let (options, url) = encrypted(&receiver, &certificate);
    publish_one(&transport(options), &url).await.unwrap();
    assert_eq!(receiver.arrived("/in", 1).await.len(), 1);
}

/// A receiver with a bad certificate gets nothing: expired, of another name, of an unknown issuer.
#[tokio::test]
async fn receiver_with_untrusted_certificate_gets_nothing() {
    let (_, unrelated) = receiver("shop.example", false).await;
    for (name, is_expired, is_trusted) in
        [("shop.example", true, true), ("other.example", false, true), ("shop.example", false, false)]
    {
        let (receiver, certificate) = receiver(name, is_expired).await;
        let (options, url) = encrypted(&receiver, if is_trusted { &certificate } else { &unrelated });
        let result = publish_one(&transport(options), &url).await;
        assert!(is_retry(&result), "{name}: {result:?}");
        assert!(receiver.log().arrived.is_empty());
    }
}

#[test]
fn bundle_without_certificate_is_refused() {
    for text in ["", "certificate", "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"] {
        let client = ClientOptions::default().with_ca_bundle(Pem::text(text));
        let error = HttpTransport::new(HttpOptions::new().with_client(client)).unwrap_err().to_string();
        assert_eq!(error, "ca_bundle: the text contains no PEM certificate");
    }
}
