//! Signatures, verified as receivers do.

use crate::{receiver::*, *};
use postrider_transports::http::signature::{Secret, SignatureError, Signed};

fn signed<'a>(arrived: &'a ReceivedRequest, body: &'a [u8]) -> Signed<'a> {
    Signed {
        id: arrived.header("webhook-id"),
        timestamp: arrived.header("webhook-timestamp"),
        signature: arrived.header("webhook-signature"),
        body,
    }
}

fn verify(arrived: &ReceivedRequest, secrets: &[Secret]) -> Result<(), SignatureError> {
    signed(arrived, &arrived.body).verify(secrets, SystemTime::now())
}

fn new_secret() -> Secret {
    Secret::new([9; 24]).unwrap()
}

/// JSON with unusual white space and numbers.
fn spacious(destination: &str, staged_at: SystemTime, format: Format) -> Outgoing {
    let message =
        Message::builder("orders").content_type("application/json").payload(r#"{ "b":1.50,"a" : 1e2 }"#);
    let message = message.build().unwrap();
    Outgoing::write(&message, MessageId::at(staged_at), staged_at, "/shop", destination.to_owned(), format)
        .unwrap()
}

#[tokio::test]
async fn every_attempt_verifies_in_every_format() {
    let receiver = Receiver::start().await;
    receiver.respond_with(|_| ScriptedResponse::Status(500));
    let transport = transport(open().with_secret(secret()));
    // Staged long ago: the timestamp is that of the attempt.
    let staged_at = SystemTime::now() - Duration::from_secs(24 * 60 * 60);
    for format in [Format::Binary, Format::Structured, Format::Plain, Format::Debezium] {
        let path = format!("/{format:?}");
        let outgoing = spacious(&receiver.url(&path), staged_at, format);
        for _ in 0..2 {
            assert!(is_retry(&publish(&transport, std::slice::from_ref(&outgoing)).await[0]));
        }
        for arrived in receiver.arrived(&path, 2).await {
            assert_eq!(verify(&arrived, &[secret()]), Ok(()), "{format:?}");
            assert_eq!(verify(&arrived, &[new_secret()]), Err(SignatureError::Forged), "{format:?}");
            assert_eq!(arrived.header("webhook-id"), outgoing.id.to_string(), "the same for every attempt");
        }
    }
}

#[tokio::test]
async fn rotated_secrets_verify_with_either() {
    let receiver = Receiver::start().await;
    let transport = transport(open().with_secret(new_secret()).with_secret(secret()));
    publish_one(&transport, &receiver.url("/")).await.unwrap();
    let arrived = receiver.arrived("/", 1).await.remove(0);
    assert_eq!(arrived.header("webhook-signature").split(' ').count(), 2);
    for known in [secret(), new_secret()] {
        assert_eq!(verify(&arrived, &[known]), Ok(()));
    }
}

/// Negative control: JSON that was parsed and serialised again has another signature.
#[tokio::test]
async fn signature_covers_exact_bytes() {
    let receiver = Receiver::start().await;
    let transport = transport(open().with_secret(secret()));
    let outgoing = spacious(&receiver.url("/"), SystemTime::now(), Format::Binary);
    publish(&transport, &[outgoing]).await.remove(0).unwrap();
    let arrived = receiver.arrived("/", 1).await.remove(0);
    assert_eq!(arrived.body, r#"{ "b":1.50,"a" : 1e2 }"#);
    assert_eq!(verify(&arrived, &[secret()]), Ok(()));
    let anew: serde_json::Value = serde_json::from_slice(&arrived.body).unwrap();
    let anew = serde_json::to_vec(&anew).unwrap();
    assert_eq!(signed(&arrived, &anew).verify(&[secret()], SystemTime::now()), Err(SignatureError::Forged));
}

#[tokio::test]
async fn errors_and_debug_show_no_secret() {
    let options = HttpOptions::below("https://ann:hunter2@shop.example/hunter2").unwrap();
    let options = options.with_secret(Secret::new(*b"hunter2hunter2hunter2hunter2").unwrap());
    let options = options.with_header("authorization", "Bearer hunter2").unwrap();
    let shown = format!("{options:?} {:?}", transport(options.clone()));
    assert!(!shown.contains("hunter2"), "{shown}");
    for name in ["host", "webhook-id", "ce-id", "postrider-id", "content-length"] {
        let error = options.clone().with_header(name, "hunter2").unwrap_err().to_string();
        assert!(error.contains("written by the transport itself") && !error.contains("hunter2"), "{error}");
    }
    assert!(options.with_header("x", "hunter2\n").is_err());
}

#[tokio::test]
async fn configured_headers_are_sent_with_every_message() {
    let receiver = Receiver::start().await;
    let transport = transport(open().with_header("authorization", "Bearer 8f14e45f").unwrap());
    publish_one(&transport, &receiver.url("/")).await.unwrap();
    assert_eq!(receiver.log().arrived[0].header("authorization"), "Bearer 8f14e45f");
}
