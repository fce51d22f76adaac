//! The hash chain of the ledger: each event is hashed together with the previous hash, so that changing, removing or inserting an
//! event breaks the chain.
//!
//! ```text
//!   hash(n) = SHA-256( hash(n-1) ‖ n ‖ microseconds since 1970 ‖ body )        hash(0) = 32 zero bytes; numbers are 8 bytes, big-endian
//! ```
//!
//! The order is that of insertion: positions have no gaps, and time plays no part. The database also keeps the [`ChainHead`], which
//! reveals missing events at the end. An attacker who can change links and head can write a whole new chain; a head that was stored
//! elsewhere (pinned) reveals that, too.

use super::{AuditError, AuditEvent, AuditRecord, AuditSink};
use crate::Invalid;
use async_trait::async_trait;
use sha2::{Digest, Sha256};
use std::{
    fmt,
    str::FromStr,
    time::{Duration, SystemTime},
};

/// A hash of the chain.
pub type Hash = [u8; 32];

/// The hash before the first link.
pub const BEGINNING: Hash = [0; 32];

/// One stored event of the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainLink {
    /// The position, from 1.
    pub position: u64,
    /// The time of appending, in microseconds since 1970.
    pub at_micros: i64,
    /// The event as JSON, as it was hashed.
    pub body: String,
    /// The hash of the previous link.
    pub previous: Vec<u8>,
    /// Its own hash.
    pub hash: Vec<u8>,
}

/// The end of the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainHead {
    /// The number of links.
    pub position: u64,
    /// The hash of the last link.
    pub hash: Hash,
}

impl Default for ChainHead {
    /// The end of a chain without links.
    fn default() -> Self {
        Self { position: 0, hash: BEGINNING }
    }
}

impl ChainHead {
    /// The end of the chain after one more event.
    #[must_use]
    pub fn followed_by(&self, at_micros: i64, body: &str) -> Self {
        let position = self.position + 1;
        let mut digest = Sha256::new();
        digest.update(self.hash);
        digest.update(position.to_be_bytes());
        digest.update(at_micros.to_be_bytes());
        digest.update(body.as_bytes());
        Self { position, hash: digest.finalize().into() }
    }
}

impl fmt::Display for ChainHead {
    /// The number of events and their hash, to be stored elsewhere.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.position)?;
        self.hash.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for ChainHead {
    type Err = Invalid;

    /// Parses a pinned head.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let read = || {
            let (position, digits) = text.split_once(':')?;
            let is_plain = |text: &str, is_digit: fn(&u8) -> bool| text.as_bytes().iter().all(is_digit);
            if !is_plain(position, u8::is_ascii_digit) || !is_plain(digits, u8::is_ascii_hexdigit) {
                return None;
            }
            let bytes = digits.as_bytes().chunks(2).map(|pair| {
                let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
                u8::from_str_radix(pair, 16).ok()
            });
            let hash = bytes.collect::<Option<Vec<u8>>>()?.try_into().ok()?;
            Some(Self { position: position.parse().ok()?, hash })
        };
        let rule = "is the number of events, a colon and 64 hexadecimal digits, as it was printed";
        read().ok_or_else(|| Invalid::rule("head", rule))
    }
}

impl ChainLink {
    /// Decodes the event.
    ///
    /// # Errors
    /// When this version does not know the event.
    pub fn read(&self) -> Result<AuditRecord, AuditError> {
        let event: AuditEvent = serde_json::from_str(&self.body)
            .map_err(|error| AuditError::Unreadable { position: self.position, why: error.to_string() })?;
        let since = Duration::from_micros(self.at_micros.unsigned_abs());
        Ok(AuditRecord { position: self.position, at: SystemTime::UNIX_EPOCH + since, event })
    }
}

/// A ledger whose events form a hash chain.
#[async_trait]
pub trait AuditChain: AuditSink {
    /// Up to `limit` links after the position `after`, in order.
    async fn links(&self, after: u64, limit: usize) -> Result<Vec<ChainLink>, AuditError>;

    /// The stored head.
    async fn head(&self) -> Result<ChainHead, AuditError>;
}

/// The number of links read at a time.
const PAGE: usize = 1_000;

/// Verifies a chain from its beginning to its head, in bounded memory. Events that are appended meanwhile may or may not be verified.
/// With `pinned`, a head that was stored earlier, it also detects a chain that was rewritten completely.
///
/// # Errors
/// The first break, or a failure to read.
pub async fn verify(chain: &dyn AuditChain, pinned: Option<ChainHead>) -> Result<ChainHead, VerifyError> {
    // The head is read first: links appended later are no contradiction.
    let head = chain.head().await?;
    let mut verifier = Verifier::default();
    loop {
        let links = chain.links(verifier.head().position, PAGE).await?;
        for link in &links {
            verifier.follow(link)?;
            let here = verifier.head();
            if pinned.is_some_and(|pinned| pinned.position == here.position && pinned != here) {
                let why = "up to here it is another chain than the one whose head was written down";
                return Err(ChainBreak { position: here.position, why }.into());
            }
            if here.position == head.position && here != head {
                return Err(ChainBreak { position: here.position, why: NOT_THE_HEAD }.into());
            }
        }
        if links.len() < PAGE {
            break;
        }
    }
    let end = verifier.head();
    if let Some(pinned) = pinned.filter(|pinned| pinned.position > end.position) {
        verifier.end(pinned)?;
    }
    if end.position > head.position {
        let now = chain.head().await?;
        return if now.position > end.position { Ok(end) } else { Ok(verifier.end(now)?) };
    }
    Ok(verifier.end(head)?)
}

/// An error of verification.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The chain is broken.
    #[error(transparent)]
    Broken(#[from] ChainBreak),
    /// The chain cannot be read.
    #[error(transparent)]
    Unread(#[from] AuditError),
}

const NOT_THE_HEAD: &str = "the end of the ledger is not where it was: events were removed or added there";

/// The first break of a chain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the ledger is broken at event {position}: {why}")]
pub struct ChainBreak {
    /// The first event that differs from what was appended, from 1.
    pub position: u64,
    /// The difference.
    pub why: &'static str,
}

/// Verifies a chain link by link, from its beginning.
#[derive(Debug, Clone, Copy, Default)]
pub struct Verifier {
    head: ChainHead,
}

impl Verifier {
    /// The head so far.
    pub fn head(&self) -> ChainHead {
        self.head
    }

    /// Verifies the next link.
    ///
    /// # Errors
    /// When it is not the next link, or was changed.
    pub fn follow(&mut self, link: &ChainLink) -> Result<(), ChainBreak> {
        let position = self.head.position + 1;
        let broken = |why| Err(ChainBreak { position, why });
        if link.position != position {
            return broken("it is missing, or another stands in its place");
        }
        if link.previous != self.head.hash {
            return broken("it does not follow the event before it");
        }
        let next = self.head.followed_by(link.at_micros, &link.body);
        if link.hash != next.hash {
            return broken("it is not what was appended");
        }
        self.head = next;
        Ok(())
    }

    /// Checks that the chain ends at `head`.
    ///
    /// # Errors
    /// When links are missing or added.
    pub fn end(self, head: ChainHead) -> Result<ChainHead, ChainBreak> {
        if self.head == head {
            return Ok(head);
        }
        Err(ChainBreak { position: self.head.position.min(head.position) + 1, why: NOT_THE_HEAD })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(bodies: &[&str]) -> (Vec<ChainLink>, ChainHead) {
        let mut head = ChainHead::default();
        let links = bodies.iter().map(|body| {
            let (previous, at_micros) = (head.hash.to_vec(), 1_700_000_000_000_000);
            head = head.followed_by(at_micros, body);
            let body = (*body).to_owned();
            ChainLink { position: head.position, at_micros, body, previous, hash: head.hash.to_vec() }
        });
        let links = links.collect();
        (links, head)
    }

    fn verify(links: &[ChainLink], head: ChainHead) -> Result<ChainHead, ChainBreak> {
        let mut verifier = Verifier::default();
        links.iter().try_for_each(|link| verifier.follow(link))?;
        verifier.end(head)
    }

    #[test]
    fn verify_accepts_an_untouched_chain() {
        let (links, head) = chain(&["one", "two", "three"]);
        assert_eq!(verify(&links, head), Ok(head));
        assert_eq!(verify(&[], ChainHead::default()), Ok(ChainHead::default()));
    }

    #[test]
    fn verify_finds_each_change_at_its_position() {
        let (links, head) = chain(&["one", "two", "three", "four"]);
        for at in 0..links.len() {
            let changes: [fn(&mut ChainLink); 5] = [
                |link| link.body.push('!'),
                |link| link.at_micros += 1,
                |link| link.hash[0] ^= 1,
                |link| link.previous[0] ^= 1,
                |link| link.position += 100,
            ];
            for change in changes {
                let mut links = links.clone();
                change(&mut links[at]);
                assert_eq!(verify(&links, head).unwrap_err().position, at as u64 + 1);
            }
            let mut fewer = links.clone();
            fewer.remove(at);
            assert_eq!(verify(&fewer, head).unwrap_err().position, at as u64 + 1);
        }
    }

    #[test]
    fn rehashed_body_breaks_the_next_link() {
        let (mut links, head) = chain(&["one", "two", "three"]);
        let before = ChainHead { position: 1, hash: links[0].hash.clone().try_into().unwrap() };
        links[1].body = "forged".to_owned();
        links[1].hash = before.followed_by(links[1].at_micros, "forged").hash.to_vec();
        assert_eq!(verify(&links, head).unwrap_err().position, 3);
    }

    #[test]
    fn head_round_trips_through_text() {
        for bodies in [&[][..], &["one", "two"]] {
            let (_, head) = chain(bodies);
            assert_eq!(head.to_string().parse(), Ok(head));
        }
        let (_, head) = chain(&["one"]);
        let text = head.to_string();
        let wrong = [
            "",
            ":",
            "1",
            "1:",
            "1:zz",
            &text[1..],
            &text[..text.len() - 1],
            &text[..text.len() - 2],
            &format!("{text}0"),
            &format!("{text}00"),
            &format!("+{text}"),
            &text.replace(':', ":+"),
            &format!("99999999999999999999{}", &text[1..]),
            &format!("1:{}", "ü".repeat(32)),
        ];
        for wrong in wrong {
            let error = wrong.parse::<ChainHead>().unwrap_err().to_string();
            assert!(error.contains("64 hexadecimal digits"), "{wrong}: {error}");
        }
    }

    #[test]
    fn verify_finds_missing_or_added_events_at_the_end() {
        let (links, head) = chain(&["one", "two", "three"]);
        let (_, shorter) = chain(&["one", "two"]);
        assert_eq!(verify(&links[..2], head).unwrap_err().position, 3);
        assert_eq!(verify(&links, shorter).unwrap_err().position, 3);
    }
}
