//! Signatures of Standard Webhooks: who sent a message, when, and that nobody changed it.
//!
//! What is signed are the exact bytes `id.timestamp.body`. Nothing is parsed and written again in between, on either side: JSON
//! that is serialised anew has other bytes, and another signature.

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

/// The header with the identity of a message, the same however often it is sent.
pub const ID: &str = "webhook-id";
/// The header with the time of the attempt, in seconds since 1970.
pub const TIMESTAMP: &str = "webhook-timestamp";
/// The header with the signatures, separated by spaces.
pub const SIGNATURE: &str = "webhook-signature";

/// How far the clocks of sender and receiver may be apart, the way included, unless said otherwise.
pub const TOLERANCE: Duration = Duration::from_secs(5 * 60);

const PREFIX: &str = "whsec_";
const VERSION: &str = "v1,";
/// The Standard's lower limit.
const FEWEST_BYTES: usize = 24;
/// With or without padding, since secrets are written both ways.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What sender and receiver share. It is never shown.
#[derive(Clone)]
pub struct Secret(Hmac<Sha256>);

impl Secret {
    /// These bytes, at least 24 of them and from a generator of random bytes.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, Invalid> {
        let (bytes, wrong) = (bytes.as_ref(), |rule: String| Invalid::rule("secret", rule));
        if bytes.len() < FEWEST_BYTES {
            let rule = format!("has {} bytes; give at least {FEWEST_BYTES} random ones", bytes.len());
            return Err(wrong(rule));
        }
        Hmac::new_from_slice(bytes).map(Self).map_err(|error| wrong(error.to_string()))
    }

    /// A secret as it is handed around: `whsec_` and base64.
    ///
    /// ```
    /// # use postrider_transports::http::signature::Secret;
    /// let secret = Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")?;
    /// assert_eq!(format!("{secret:?}"), "Secret(…)");
    /// # Ok::<(), postrider_core::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// When the prefix is missing, the rest is no base64, or it is too short.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let Some(encoded) = text.trim().strip_prefix(PREFIX) else {
            return Err(Invalid::rule(
                "secret",
                "does not begin with whsec_; give bytes that are no base64 to `Secret::new`",
            ));
        };
        // The error would show a character of it.
        let decoded = LENIENT.decode(encoded);
        Self::new(decoded.map_err(|_| Invalid::rule("secret", "is no base64 after whsec_"))?)
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

/// The value of [`SIGNATURE`]: one signature for each secret, so that receivers may change theirs at any time meanwhile.
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

/// What a receiver got: three headers, and the body as it came, before anything has parsed it.
///
/// ```
/// # use postrider_transports::http::signature::{Refused, Secret, Signed};
/// # use std::time::{Duration, UNIX_EPOCH};
/// let secret = Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")?;
/// let got = Signed {
///     id: "msg_p5jXN8AQM9LWM0D4loKWxJek",
///     timestamp: "1614265330",
///     signature: "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
///     body: br#"{"test": 2432232314}"#,
/// };
/// let now = UNIX_EPOCH + Duration::from_secs(1614265330);
/// assert_eq!(got.verify(&[secret.clone()], now), Ok(()));
/// assert_eq!(got.verify(&[secret], now + Duration::from_secs(3600)), Err(Refused::TooOld));
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

/// Why a message is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The timestamp is no number of seconds.
    #[error("the timestamp is unreadable")]
    Unreadable,
    /// It was sent too long ago: somebody may have kept it to send it again.
    #[error("the timestamp is too old")]
    TooOld,
    /// It was sent in the future.
    #[error("the timestamp is too far ahead")]
    TooNew,
    /// No signature is by any of the secrets.
    #[error("no signature matches")]
    Forged,
}

impl Signed<'_> {
    /// Whether it was signed with one of `secrets`, at most [`TOLERANCE`] away from `now`.
    ///
    /// # Errors
    /// Says why it must not be believed.
    pub fn verify(&self, secrets: &[Secret], now: SystemTime) -> Result<(), Refused> {
        self.verify_within(TOLERANCE, secrets, now)
    }

    /// Whether it was signed with one of `secrets`, at most `tolerance` away from `now`.
    ///
    /// # Errors
    /// Says why it must not be believed.
    pub fn verify_within(
        &self,
        tolerance: Duration,
        secrets: &[Secret],
        now: SystemTime,
    ) -> Result<(), Refused> {
        let sent: u64 = self.timestamp.parse().map_err(|_| Refused::Unreadable)?;
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        if now.saturating_sub(sent) > tolerance.as_secs() {
            return Err(Refused::TooOld);
        }
        if sent.saturating_sub(now) > tolerance.as_secs() {
            return Err(Refused::TooNew);
        }
        // Signatures of other versions are for others.
        let claimed = self.signature.split(' ').filter_map(|each| each.strip_prefix(VERSION));
        let claimed: Vec<_> = claimed.filter_map(|each| STANDARD.decode(each).ok()).collect();
        let is_ours = secrets.iter().any(|secret| {
            let mac = secret.mac(self.id, self.timestamp, self.body);
            // In constant time.
            claimed.iter().any(|claimed| mac.clone().verify_slice(claimed).is_ok())
        });
        if is_ours { Ok(()) } else { Err(Refused::Forged) }
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

    fn verified(signature: &str, body: &[u8], secrets: &[Secret], now: u64) -> Result<(), Refused> {
        let timestamp = NOW.to_string();
        let got = Signed { id: "msg_p5jXN8AQM9LWM0D4loKWxJek", timestamp: &timestamp, signature, body };
        got.verify(secrets, at(now))
    }

    fn signed(secrets: &[Secret]) -> String {
        sign(secrets, "msg_p5jXN8AQM9LWM0D4loKWxJek", &timestamp(at(NOW)), BODY)
    }

    /// The example of the Standard's own libraries.
    #[test]
    fn the_signature_is_that_of_the_standard() {
        assert_eq!(signed(&[old()]), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn while_secrets_change_either_is_enough() {
        let both = signed(&[new(), old()]);
        assert_eq!(both.split(' ').count(), 2);
        for receiver in [&[old()][..], &[new()], &[new(), old()]] {
            assert_eq!(verified(&both, BODY, receiver, NOW), Ok(()));
        }
        assert_eq!(verified(&signed(&[new()]), BODY, &[old()], NOW), Err(Refused::Forged));
        assert_eq!(verified(&both, BODY, &[], NOW), Err(Refused::Forged));
    }

    #[test]
    fn a_change_of_any_part_is_noticed() {
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
            assert_eq!(each.verify(&[old()], at(NOW)), Err(Refused::Forged), "{each:?}");
        }
    }

    #[test]
    fn signatures_of_other_versions_are_passed_over() {
        let signature = format!("v1a,AAAA v2,xyz {}", signed(&[old()]));
        assert_eq!(verified(&signature, BODY, &[old()], NOW), Ok(()));
    }

    #[test]
    fn what_is_too_old_or_too_new_is_refused() {
        let (signature, tolerance) = (signed(&[old()]), TOLERANCE.as_secs());
        assert_eq!(verified(&signature, BODY, &[old()], NOW + tolerance), Ok(()));
        assert_eq!(verified(&signature, BODY, &[old()], NOW + tolerance + 1), Err(Refused::TooOld));
        assert_eq!(verified(&signature, BODY, &[old()], NOW - tolerance), Ok(()));
        assert_eq!(verified(&signature, BODY, &[old()], NOW - tolerance - 1), Err(Refused::TooNew));
        let unreadable = Signed { id: "1", timestamp: "soon", signature: &signature, body: BODY };
        assert_eq!(unreadable.verify(&[old()], at(NOW)), Err(Refused::Unreadable));
    }

    #[test]
    fn a_secret_is_checked_and_never_shown() {
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
