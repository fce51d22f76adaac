//! `#[derive(Event)]` on structs, tuple structs, enums and generic types. The errors it gives are tested in `postrider-macros`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use postrider::{Codec, CodecError, Event, IntoMessage, Json};
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
#[event(type = "order.placed", queue = "orders")]
struct OrderPlaced {
    #[event(key)]
    customer: u64,
    #[event(subject)]
    order: String,
}

#[test]
fn struct_gets_type_queue_key_subject_and_json() {
    let message = OrderPlaced { customer: 42, order: "o-17".into() }.into_message().unwrap();
    assert_eq!((OrderPlaced::TYPE, OrderPlaced::QUEUE), ("order.placed", "orders"));
    assert_eq!(message.event_type().unwrap().as_str(), "order.placed");
    assert_eq!(message.queue().as_str(), "orders");
    assert_eq!(message.key().unwrap().as_str(), "42");
    assert_eq!(message.subject().unwrap().as_str(), "o-17");
    assert_eq!(message.payload().as_ref(), br#"{"customer":42,"order":"o-17"}"#);
}

#[derive(Event, Serialize, Deserialize)]
#[event(type = "invoice.sent", queue = "invoices")]
struct InvoiceSent(#[event(key, subject)] u32);

#[derive(Event, Serialize, Deserialize)]
#[event(queue = "stock")]
#[event(type = "stock.changed")]
enum StockChanged {
    Sold { item: u32 },
    Returned,
}

#[test]
fn tuple_struct_and_enum_are_events() {
    let invoice = InvoiceSent(7).into_message().unwrap();
    assert_eq!((invoice.key().unwrap().as_str(), invoice.subject().unwrap().as_str()), ("7", "7"));
    let sold = StockChanged::Sold { item: 3 }.into_message().unwrap();
    assert_eq!((sold.key(), sold.payload().as_ref()), (None, &br#"{"Sold":{"item":3}}"#[..]));
    assert_eq!(StockChanged::Returned.into_message().unwrap().payload().as_ref(), br#""Returned""#);
}

/// Writes the value between brackets.
enum Bracketed {}

impl Codec<Wrapped<u8>> for Bracketed {
    const CONTENT_TYPE: &'static str = "text/plain";

    fn encode(value: &Wrapped<u8>) -> Result<bytes::Bytes, CodecError> {
        Ok(format!("<{}>", value.value).into())
    }

    fn decode(bytes: &[u8]) -> Result<Wrapped<u8>, CodecError> {
        Json::decode(&bytes[1..bytes.len() - 1]).map(|value| Wrapped { value })
    }
}

#[derive(Event)]
#[event(type = "wrapped", queue = "wrapped", codec = Bracketed, crate = postrider)]
struct Wrapped<T>
where
    Bracketed: Codec<Self>,
{
    value: T,
}

#[test]
fn codec_crate_path_and_generics_are_taken() {
    let message = Wrapped { value: 5_u8 }.into_message().unwrap();
    assert_eq!((message.payload().as_ref(), message.content_type()), (&b"<5>"[..], "text/plain"));
}
