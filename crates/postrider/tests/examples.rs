//! The examples do what they say.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../../../examples/outbox.rs"]
mod outbox;
#[path = "../../../examples/shop.rs"]
mod shop;

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

#[tokio::test]
async fn the_shop_example_accounts_for_every_event() {
    let folder = tempfile::tempdir().unwrap();
    let (mut out, mut progress) = (Vec::new(), Vec::new());
    shop::run(folder.path(), &mut out, &mut progress).await.unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "1000 orders were begun, 900 committed\n\
         127 failed once and were tried again\n\
         890 delivered + 10 dead letters = 900 events\n\
         left in the queue: 0\n"
    );
    assert!(String::from_utf8(progress).unwrap().ends_with("[##############################] 900/900\n"));
}
