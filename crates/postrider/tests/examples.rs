//! The examples do what they say.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../../../examples/outbox.rs"]
mod outbox;

#[tokio::test]
async fn the_outbox_example_tells_the_whole_way_of_a_message() {
    let mut out = Vec::new();
    outbox::run(&mut out).await.unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        r#"order 1 was rolled back; orders 2, 3 and 4 were committed
claimed {"order":2}: done
claimed {"order":3}: retry
claimed {"order":4}: dead
claimed {"order":3} again, after 1 failure
dead letter {"order":4}: rejected, NoSuchCustomer
"#
    );
}
