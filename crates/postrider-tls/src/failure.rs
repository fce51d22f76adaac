//! The cause of a failed handshake, and its remedy.

use rustls::{AlertDescription, CertificateError, Error};
use std::{error::Error as StdError, io};

/// The alerts by which a server refuses the client certificate.
const REFUSALS: [AlertDescription; 8] = [
    AlertDescription::AccessDenied,
    AlertDescription::BadCertificate,
    AlertDescription::CertificateExpired,
    AlertDescription::CertificateRequired,
    AlertDescription::CertificateRevoked,
    AlertDescription::CertificateUnknown,
    AlertDescription::UnknownCA,
    AlertDescription::UnsupportedCertificate,
];

/// What failed in the TLS handshake and what to do, if `error` or one of its causes is an error of TLS.
pub fn describe(error: &(dyn StdError + 'static)) -> Option<String> {
    let Some(found) = chain(error).find_map(|each| each.downcast_ref::<Error>()) else {
        // An alert arrives after the handshake, when some clients keep only the text of an error.
        let text = error.to_string();
        let mut refusals = REFUSALS.iter().map(|alert| Error::AlertReceived(*alert));
        return refusals
            .find(|refusal| text.contains(&refusal.to_string()))
            .and_then(|refusal| describe(&refusal));
    };
    let cause = match found {
        Error::InvalidCertificate(invalid) => describe_certificate(invalid),
        Error::AlertReceived(alert) if REFUSALS.contains(alert) => {
            "the server accepts only client certificates of its own CAs: set a valid one".to_owned()
        }
        Error::InvalidMessage(_) => "the server does not speak TLS on this port: check the URL".to_owned(),
        _ => "the TLS handshake failed".to_owned(),
    };
    Some(format!("{cause} ({found})"))
}

fn describe_certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer => {
            "the server's certificate is not signed by a trusted CA: set the CA bundle of its issuer"
                .to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the server's certificate has expired: renew it on the server".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the server's certificate is not valid yet: check the clocks".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the server's certificate is for another host name: connect by a name in the certificate"
                .to_owned()
        }
        _ => "the server's certificate is not valid".to_owned(),
    }
}

/// An error and its causes. `io::Error::source` skips the wrapped error, so that one is read with `get_ref`.
fn chain<'e>(error: &'e (dyn StdError + 'static)) -> impl Iterator<Item = &'e (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |each| {
        let each: &'e (dyn StdError + 'static) = *each;
        let wrapped = each.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        wrapped.map(|wrapped| wrapped as &(dyn StdError + 'static)).or_else(|| each.source())
    })
}
