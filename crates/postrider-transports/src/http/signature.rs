//! Signatures of Standard Webhooks: they prove who sent a message and when, and that it was not changed.
//!
//! The signature covers the exact bytes `id.timestamp.body`. Neither side parses and serialises the body in between: JSON that is
//! serialised again has other bytes, and another signature.

use base64::{
    Engine,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose::STANDARD},
};
use hmac::{Hmac, KeyInit, Mac};
use postrider_core::Invalid;
use sha2::Sha256;
use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The header with the id of a message, the same for every attempt.
pub const ID: &str = "webhook-id";
/// The header with the time of the attempt, in seconds since 1970.
pub const TIMESTAMP: &str = "webhook-timestamp";
/// The header with the signatures, separated by spaces.
pub const SIGNATURE: &str = "webhook-signature";

/// The default tolerance: how far the timestamp of a request may differ from the receiver's clock, including the time in transit.
pub const TOLERANCE: Duration = Duration::from_secs(5 * 60);

const PREFIX: &str = "whsec_";
const VERSION: &str = "v1,";
/// The minimum of Standard Webhooks.
const MIN_BYTES: usize = 24;
/// Accepts base64 with and without padding, because secrets are written both ways.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The secret that sender and receiver share. `Debug` never shows it.
#[derive(Clone)]
pub struct Secret(Hmac<Sha256>);

impl Secret {
    /// A secret of raw bytes: at least 24, from a random generator.
    ///
    /// # Errors
    /// If there are fewer than 24 bytes.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, Invalid> {
        let (bytes, wrong) = (bytes.as_ref(), |rule: String| Invalid::rule("secret", rule));
        if bytes.len() < MIN_BYTES {
            let rule = format!("has {} bytes; use at least {MIN_BYTES} random bytes", bytes.len());
            return Err(wrong(rule));
        }
        Hmac::new_from_slice(bytes).map(Self).map_err(|error| wrong(error.to_string()))
    }

    /// A secret in the usual text form: `whsec_` and base64.
    ///
    /// ```
    /// # use postrider_transports::http::signature::Secret;
    /// let secret = Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")?;
    /// assert_eq!(format!("{secret:?}"), "Secret(…)");
    /// # Ok::<(), postrider_core::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// If the prefix is missing, the rest is not base64, or the secret is too short.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let Some(encoded) = text.trim().strip_prefix(PREFIX) else {
            return Err(Invalid::rule(
                "secret",
                "does not begin with whsec_; write whsec_ and base64, or pass raw bytes to `Secret::new`",
            ));
        };
        // The error of the decoder would show a character of the secret.
        let decoded = LENIENT.decode(encoded);
        Self::new(
            decoded
                .map_err(|_| Invalid::rule("secret", "is not base64 after whsec_; copy the whole secret"))?,
        )
    }

    fn mac(&self, id: &str, timestamp: &str, body: &[u8]) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
            mac.update(part);
        }
        mac
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The value of [`SIGNATURE`]: one signature for each secret, so that receivers can rotate theirs at any time.
pub fn sign(secrets: &[Secret], id: &str, timestamp: &str, body: &[u8]) -> String {
    let signature = |secret: &Secret| {
        let mac = secret.mac(id, timestamp, body).finalize().into_bytes();
        format!("{VERSION}{}", STANDARD.encode(mac))
    };
    secrets.iter().map(signature).collect::<Vec<_>>().join(" ")
}

/// The value of [`TIMESTAMP`].
pub fn timestamp(at: SystemTime) -> String {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs().to_string()
}

/// A signed request as it was received: three headers, and the body before it is parsed.
///
/// ```
/// # use postrider_transports::http::signature::{Secret, SignatureError, Signed};
/// # use std::time::{Duration, UNIX_EPOCH};
/// let secret = Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")?;
/// let request = Signed {
///     id: "msg_p5jXN8AQM9LWM0D4loKWxJek",
///     timestamp: "1614265330",
///     signature: "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
///     body: br#"{"test": 2432232314}"#,
/// };
/// let now = UNIX_EPOCH + Duration::from_secs(1614265330);
/// assert_eq!(request.verify(&[secret.clone()], now), Ok(()));
/// assert_eq!(request.verify(&[secret], now + Duration::from_secs(3600)), Err(SignatureError::TooOld));
/// # Ok::<(), postrider_core::Invalid>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Signed<'a> {
    /// The header [`ID`].
    pub id: &'a str,
    /// The header [`TIMESTAMP`].
    pub timestamp: &'a str,
    /// The header [`SIGNATURE`].
    pub signature: &'a str,
    /// The body, byte for byte.
    pub body: &'a [u8],
}

/// The reason why a signature is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SignatureError {
    /// The timestamp is not a number of seconds.
    #[error("the timestamp is not a number of seconds since 1970")]
    Unreadable,
    /// The timestamp is older than the tolerance: the request may be a replay.
    #[error("the timestamp is older than the tolerance")]
    TooOld,
    /// The timestamp is further in the future than the tolerance.
    #[error("the timestamp is in the future; check the clocks of sender and receiver")]
    TooNew,
    /// No signature matches any of the secrets.
    #[error("no signature matches a known secret")]
    Forged,
}

impl Signed<'_> {
    /// Verifies that the request was signed with one of `secrets`, at most [`TOLERANCE`] away from `now`.
    ///
    /// # Errors
    /// The reason why the request must not be trusted.
    pub fn verify(&self, secrets: &[Secret], now: SystemTime) -> Result<(), SignatureError> {
        self.verify_within(TOLERANCE, secrets, now)
    }

    /// Verifies that the request was signed with one of `secrets`, at most `tolerance` away from `now`.
    ///
    /// # Errors
    /// The reason why the request must not be trusted.
    pub fn verify_within(
        &self,
        tolerance: Duration,
        secrets: &[Secret],
        now: SystemTime,
    ) -> Result<(), SignatureError> {
        let sent: u64 = self.timestamp.parse().map_err(|_| SignatureError::Unreadable)?;
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        if now.saturating_sub(sent) > tolerance.as_secs() {
            return Err(SignatureError::TooOld);
        }
        if sent.saturating_sub(now) > tolerance.as_secs() {
            return Err(SignatureError::TooNew);
        }
        // Signatures of other versions are ignored.
        let claimed = self.signature.split(' ').filter_map(|each| each.strip_prefix(VERSION));
        let claimed: Vec<_> = claimed.filter_map(|each| STANDARD.decode(each).ok()).collect();
        let is_valid = secrets.iter().any(|secret| {
            let mac = secret.mac(self.id, self.timestamp, self.body);
            // In constant time.
            claimed.iter().any(|claimed| mac.clone().verify_slice(claimed).is_ok())
        });
        if is_valid { Ok(()) } else { Err(SignatureError::Forged) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_614_265_330;
    const BODY: &[u8] = br#"{"test": 2432232314}"#;

    fn old() -> Secret {
        Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap()
    }

    fn new() -> Secret {
        Secret::new([7; 32]).unwrap()
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn verified(signature: &str, body: &[u8], secrets: &[Secret], now: u64) -> Result<(), SignatureError> {
        let timestamp = NOW.to_string();
        let got = Signed { id: "msg_p5jXN8AQM9LWM0D4loKWxJek", timestamp: &timestamp, signature, body };
        got.verify(secrets, at(now))
    }

    fn signed(secrets: &[Secret]) -> String {
        sign(secrets, "msg_p5jXN8AQM9LWM0D4loKWxJek", &timestamp(at(NOW)), BODY)
    }

    /// The example of the standard's own libraries.
    #[test]
    fn sign_matches_the_example_of_standard_webhooks() {
        assert_eq!(signed(&[old()]), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn rotated_secrets_verify_with_either() {
        let both = signed(&[new(), old()]);
        assert_eq!(both.split(' ').count(), 2);
        for receiver in [&[old()][..], &[new()], &[new(), old()]] {
            assert_eq!(verified(&both, BODY, receiver, NOW), Ok(()));
        }
        assert_eq!(verified(&signed(&[new()]), BODY, &[old()], NOW), Err(SignatureError::Forged));
        assert_eq!(verified(&both, BODY, &[], NOW), Err(SignatureError::Forged));
    }

    #[test]
    fn change_of_any_part_fails_verification() {
        let signature = signed(&[old()]);
        let (id, timestamp) = ("msg_p5jXN8AQM9LWM0D4loKWxJek", NOW.to_string());
        let whole = Signed { id, timestamp: &timestamp, signature: &signature, body: BODY };
        assert_eq!(whole.verify(&[old()], at(NOW)), Ok(()));
        let forged = [
            Signed { id: "msg_p5jXN8AQM9LWM0D4loKWxJel", ..whole },
            Signed { timestamp: "1614265331", ..whole },
            Signed { body: br#"{"test":2432232314}"#, ..whole },
            Signed { signature: "", ..whole },
            Signed { signature: "v1,", ..whole },
            Signed { signature: "v1a,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", ..whole },
            Signed { signature: "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", ..whole },
        ];
        for each in forged {
            assert_eq!(each.verify(&[old()], at(NOW)), Err(SignatureError::Forged), "{each:?}");
        }
    }

    #[test]
    fn signatures_of_other_versions_are_ignored() {
        let signature = format!("v1a,AAAA v2,xyz {}", signed(&[old()]));
        assert_eq!(verified(&signature, BODY, &[old()], NOW), Ok(()));
    }

    #[test]
    fn timestamp_outside_tolerance_is_refused() {
        let (signature, tolerance) = (signed(&[old()]), TOLERANCE.as_secs());
        assert_eq!(verified(&signature, BODY, &[old()], NOW + tolerance), Ok(()));
        assert_eq!(verified(&signature, BODY, &[old()], NOW + tolerance + 1), Err(SignatureError::TooOld));
        assert_eq!(verified(&signature, BODY, &[old()], NOW - tolerance), Ok(()));
        assert_eq!(verified(&signature, BODY, &[old()], NOW - tolerance - 1), Err(SignatureError::TooNew));
        let unreadable = Signed { id: "1", timestamp: "soon", signature: &signature, body: BODY };
        assert_eq!(unreadable.verify(&[old()], at(NOW)), Err(SignatureError::Unreadable));
    }

    #[test]
    fn secret_is_validated_and_never_shown() {
        let parsed = |text| sign(&[Secret::parse(text).unwrap()], "1", "2", b"3");
        let padded = parsed("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBk=");
        assert_eq!(padded, parsed("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBk\n"));
        for text in ["whsec_abc", "whsec_hunter2!!!", "hunter2hunter2hunter2hunter2", ""] {
            let error = Secret::parse(text).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
        }
        assert_eq!(format!("{:?}", Secret::new(*b"hunter2hunter2hunter2hunter2")), "Ok(Secret(…))");
    }
}
