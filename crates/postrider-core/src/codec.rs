//! Encoding of payloads.
//!
//! Codecs run where types are known: when an event is staged, and before a handler runs. In between, stores and transports see only
//! bytes and a content type, so that they neither depend on a format nor can corrupt one.

use crate::BoxError;
use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};

/// Encodes values of `T` as bytes and decodes them. Decoding returns an equal value.
///
/// A codec is a type without values: an empty enum that [`Event::Codec`](crate::Event::Codec) names.
///
/// ```
/// # use postrider_core::{Codec, CodecError};
/// # use bytes::Bytes;
/// enum Text {}
///
/// impl Codec<String> for Text {
///     const CONTENT_TYPE: &'static str = "text/plain; charset=utf-8";
///
///     fn encode(value: &String) -> Result<Bytes, CodecError> {
///         Ok(Bytes::copy_from_slice(value.as_bytes()))
///     }
///
///     fn decode(bytes: &[u8]) -> Result<String, CodecError> {
///         String::from_utf8(bytes.to_vec()).map_err(CodecError::decode)
///     }
/// }
///
/// assert_eq!(Text::decode(b"post")?, "post");
/// assert!(matches!(Text::decode(b"\xff"), Err(CodecError::Decode(_))));
/// # Ok::<(), CodecError>(())
/// ```
pub trait Codec<T> {
    /// The content type, for receivers that do not share the Rust type.
    const CONTENT_TYPE: &'static str;

    /// Writes `value`.
    ///
    /// # Errors
    /// When the format cannot hold the value. Nothing is staged then.
    fn encode(value: &T) -> Result<Bytes, CodecError>;

    /// Reads a value.
    ///
    /// # Errors
    /// When the bytes are not a `T`. The message is dead-lettered at once: reading the same bytes again cannot help.
    fn decode(bytes: &[u8]) -> Result<T, CodecError>;
}

/// JSON, through `serde`.
///
/// Whole numbers keep all 64 bits and floats their last digit. A decimal that must stay exact belongs in a string, since
/// readers in other languages take JSON numbers for doubles.
#[derive(Debug)]
pub enum Json {}

impl<T: Serialize + DeserializeOwned> Codec<T> for Json {
    const CONTENT_TYPE: &'static str = "application/json";

    fn encode(value: &T) -> Result<Bytes, CodecError> {
        to_json(value)
    }

    fn decode(bytes: &[u8]) -> Result<T, CodecError> {
        serde_json::from_slice(bytes).map_err(CodecError::decode)
    }
}

/// Writes what need never be read back into the same type, such as a struct that borrows.
pub(crate) fn to_json(value: &(impl Serialize + ?Sized)) -> Result<Bytes, CodecError> {
    serde_json::to_vec(value).map(Bytes::from).map_err(CodecError::encode)
}

/// Bytes as they are.
#[derive(Debug)]
pub enum Raw {}

impl Codec<Bytes> for Raw {
    const CONTENT_TYPE: &'static str = "application/octet-stream";

    fn encode(value: &Bytes) -> Result<Bytes, CodecError> {
        Ok(value.clone())
    }

    fn decode(bytes: &[u8]) -> Result<Bytes, CodecError> {
        Ok(Bytes::copy_from_slice(bytes))
    }
}

impl Codec<Vec<u8>> for Raw {
    const CONTENT_TYPE: &'static str = <Self as Codec<Bytes>>::CONTENT_TYPE;

    fn encode(value: &Vec<u8>) -> Result<Bytes, CodecError> {
        Ok(Bytes::copy_from_slice(value))
    }

    fn decode(bytes: &[u8]) -> Result<Vec<u8>, CodecError> {
        Ok(bytes.to_vec())
    }
}

/// A value that cannot be written, or bytes that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The format cannot hold the value: change the value's type, or choose another codec.
    #[error("the value cannot be encoded: {0}; change its type or choose another codec")]
    Encode(#[source] BoxError),
    /// The bytes are not what the reader expects: it is the wrong reader, or the writer changed.
    #[error("the payload cannot be decoded: {0}; compare what writer and reader take this event type to be")]
    Decode(#[source] BoxError),
}

impl CodecError {
    /// Writing failed because of `source`.
    pub fn encode(source: impl Into<BoxError>) -> Self {
        Self::Encode(source.into())
    }

    /// Reading failed because of `source`.
    pub fn decode(source: impl Into<BoxError>) -> Self {
        Self::Decode(source.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Message;
    use proptest::{num::f64::*, prelude::*};
    use serde::Deserialize;
    use std::{
        collections::BTreeMap,
        time::{Duration, SystemTime},
    };
    use uuid::Uuid;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Payment {
        id: Uuid,
        at: SystemTime,
        amount: String,
        largest: u64,
        smallest: i64,
        rate: f64,
        note: Option<String>,
    }

    fn through<C: Codec<T>, T>(value: &T) -> T {
        C::decode(&C::encode(value).unwrap()).unwrap()
    }

    proptest! {
        #[test]
        fn json_returns_identities_times_decimals_and_numbers_unchanged(
            id: u128, since in any::<[u32; 2]>(), amount in "-?[0-9]{1,30}\\.[0-9]{1,30}", largest: u64, smallest: i64,
            rate in POSITIVE | NEGATIVE | NORMAL | SUBNORMAL | ZERO,
            note: Option<String>,
        ) {
            let at = SystemTime::UNIX_EPOCH + Duration::new(since[0].into(), since[1] % 1_000_000_000);
            let payment = Payment { id: Uuid::from_u128(id), at, amount, largest, smallest, rate, note };
            prop_assert_eq!(through::<Json, _>(&payment), payment);
        }

        #[test]
        fn raw_returns_any_bytes_unchanged(bytes: Vec<u8>) {
            prop_assert_eq!(&through::<Raw, _>(&bytes), &bytes);
            prop_assert_eq!(through::<Raw, _>(&Bytes::from(bytes.clone())), bytes);
        }
    }

    #[test]
    fn json_preserves_extreme_integers() {
        assert_eq!(through::<Json, _>(&(u64::MAX, i64::MIN)), (u64::MAX, i64::MIN));
        assert_eq!(Json::encode(&u64::MAX).unwrap(), "18446744073709551615");
        let untyped = serde_json::json!([u64::MAX, i64::MIN, "12345678901234567890.123456789"]);
        assert_eq!(through::<Json, _>(&untyped), untyped);
    }

    #[test]
    fn json_preserves_the_last_digit_of_a_float() {
        assert_eq!(through::<Json, _>(&9.050863850027186e210_f64), 9.050863850027186e210);
    }

    #[test]
    fn codec_errors_say_what_to_do() {
        let error = Json::encode(&BTreeMap::from([((1, 2), 3)])).unwrap_err();
        insta::assert_snapshot!(error, @"the value cannot be encoded: key must be a string; change its type or choose another codec");
        let error = <Json as Codec<u64>>::decode(b"{}").unwrap_err();
        insta::assert_snapshot!(error, @"the payload cannot be decoded: invalid type: map, expected u64 at line 1 column 0; compare what writer and reader take this event type to be");
    }

    #[test]
    fn message_json_accepts_borrowed_and_unsized_values() {
        #[derive(Serialize)]
        struct Borrowed<'a> {
            name: &'a str,
        }
        let name = String::from("Ada");
        let message = Message::builder("orders").json(&Borrowed { name: &name }).build().unwrap();
        assert_eq!(message.payload(), r#"{"name":"Ada"}"#);
        let message = Message::builder("orders").json("text").build().unwrap();
        assert_eq!(message.payload(), r#""text""#);
    }

    #[test]
    fn message_with_unencodable_value_is_not_built() {
        let invalid = Message::builder("orders").json(&BTreeMap::from([((1, 2), 3)])).build().unwrap_err();
        assert_eq!(invalid.to_string(), "payload: cannot be encoded: key must be a string");
    }
}
