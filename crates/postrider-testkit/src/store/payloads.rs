//! Messages are delivered as they were staged, byte for byte and field for field, whatever states they passed through.

use super::helpers::*;
use crate::Fixture;
use postrider_core::{Headers, Hlc, Message, QueuePolicy, Reason, State, message::Trail};

/// Decision "context that travels": every field of a message is delivered as it was staged.
pub async fn every_field_is_delivered_as_staged<F: Fixture>(fixture: F) {
    let staged = everything();
    stage_one(&fixture, &staged).await;

    assert_same(&claim_one(&fixture.store(), "orders").await.message, &staged);
}

/// Decision "context that travels": unset fields stay unset.
pub async fn a_message_without_optional_fields_is_delivered_without_them<F: Fixture>(fixture: F) {
    stage_one(&fixture, Message::builder("orders")).await;

    let arrived = claim_one(&fixture.store(), "orders").await.message;
    assert!(arrived.id().is_some());
    assert_eq!(arrived.queue().as_str(), "orders");
    assert_eq!(arrived.payload().as_ref(), b"");
    assert_eq!(arrived.content_type(), "application/json");
    assert_eq!(arrived.event_type(), None);
    assert_eq!(arrived.key(), None);
    assert_eq!(arrived.tenant(), None);
    assert_eq!(arrived.subject(), None);
    assert_eq!(arrived.trail(), &Trail::default());
    assert_eq!(arrived.headers(), &Headers::new());
    assert_eq!(arrived.timer(), None);
}

/// Promise 2: a message is unchanged after a retry, as a dead letter, requeued, and in the archive.
pub async fn every_field_survives_every_state<F: Fixture>(fixture: F) {
    declare(&fixture, "orders", QueuePolicy::default().with_keep_for(minutes(60))).await;
    let store = fixture.store();
    let staged = everything();
    let id = stage_one(&fixture, &staged).await;
    assert_same(&entry_in(&fixture, "orders", id, State::Pending).await.message, &staged);

    let claimed = claim_one(&store, "orders").await;
    settle(&store, &[claimed.lease.retry(minutes(5), "busy")]).await;
    assert_same(&entry_in(&fixture, "orders", id, State::Scheduled).await.message, &staged);

    fixture.advance(minutes(5)).await;
    let claimed = claim_one(&store, "orders").await;
    assert_same(&claimed.message, &staged);
    settle(&store, &[claimed.lease.dead(Reason::Rejected, "refused")]).await;
    assert_same(&entry_in(&fixture, "orders", id, State::Dead).await.message, &staged);

    assert_eq!(fixture.operate().requeue(&queue("orders"), &[id], &operator()).await.unwrap(), [id]);
    let claimed = claim_one(&store, "orders").await;
    assert_same(&claimed.message, &staged);
    done(&store, &[claimed]).await;
    assert_same(&entry_in(&fixture, "orders", id, State::Done).await.message, &staged);
}

/// Decision "payload": a payload is opaque bytes: text, empty, a mebibyte, or not text at all.
pub async fn payloads_are_opaque_bytes<F: Fixture>(fixture: F) {
    let all_bytes: Vec<u8> = (0..=255).collect();
    let not_text = vec![0xff, 0x00, 0xfe, 0x80, 0x00];
    let mebibyte: Vec<u8> =
        (0..1 << 20_u32).map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let sent = [all_bytes, not_text, Vec::new(), b"\\x00".to_vec(), mebibyte];
    let messages = sent.clone().map(|bytes| message("orders").payload(bytes).build().unwrap());
    stage(&fixture, &messages).await;

    let claimed = claim_all(&fixture.store(), "orders").await;
    let arrived: Vec<_> = claimed.iter().map(|each| each.message.payload().to_vec()).collect();
    assert!(arrived == sent, "every payload arrives byte for byte");
}

/// Decision "payload": JSON with identities, decimals and times is delivered byte for byte, not only equivalent.
pub async fn json_is_delivered_byte_for_byte<F: Fixture>(fixture: F) {
    let json = concat!(
        r#"{ "z":"01890a5d-ac96-774b-bcce-b302099a8057" ,"a": 12345678901234567890.123456789000,"a":1e400,"#,
        "\n\t",
        r#""at":"2026-02-28T23:59:60.000000001+05:45","none":null,"umlaut":"ü","escaped":"\u00fc\ud83d\ude00" }"#,
    );
    stage_one(&fixture, message("orders").payload(json)).await;

    let claimed = claim_all(&fixture.store(), "orders").await;
    assert_eq!(payloads(&claimed), [json]);
    assert_eq!(claimed[0].message.content_type(), "application/json");
}

fn everything() -> Message {
    Message::builder("orders")
        .id(fresh_id())
        .payload(vec![0x00, 0xff, b'"', b'\\'])
        .content_type("application/cbor")
        .event_type("order.placed")
        .key("clé 17 ✓ \\ \"quoted\", {braced}")
        .tenant("tenant/ü")
        .subject("customer:17")
        .correlation_id("request 4711")
        .causation_id("01890a5d-ac96-774b-bcce-b302099a8057")
        .traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
        .tracestate("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE")
        .hlc(Hlc::from_bits(1_784_021_400_123 << 16 | 7))
        .header("Region", "eu-west")
        .header("empty", "")
        .header("note", "\"ünï\" \\ {\"json\": null}")
        .build()
        .unwrap()
}

fn assert_same(arrived: &Message, staged: &Message) {
    assert_eq!(arrived.id(), staged.id());
    assert_eq!(arrived.queue(), staged.queue());
    assert_eq!(arrived.payload(), staged.payload());
    assert_eq!(arrived.content_type(), staged.content_type());
    assert_eq!(arrived.event_type(), staged.event_type());
    assert_eq!(arrived.key(), staged.key());
    assert_eq!(arrived.tenant(), staged.tenant());
    assert_eq!(arrived.subject(), staged.subject());
    assert_eq!(arrived.trail(), staged.trail());
    assert_eq!(arrived.headers(), staged.headers());
    assert_eq!(arrived.timer(), staged.timer());
}
