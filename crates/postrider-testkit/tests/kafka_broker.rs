//! Kafka, emulated by Tansu: the shared one, and one that a test kills. The tests of the transport, which has a client, check its
//! durability.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use postrider_testkit::{Kind, broker::Kafka, shared};
use std::fs;
use support::{dies_with_its_holder, hold, is_down};

#[tokio::test]
async fn the_shared_broker_replies() {
    assert!(!is_down(&shared::url(Kind::Kafka)).await);
}

#[tokio::test]
async fn a_restarted_broker_has_the_same_address() {
    let mut broker = Kafka::start().await;
    let url = broker.url().to_owned();
    broker.kill();
    assert!(is_down(&url).await);
    broker.restart().await;
    assert_eq!(broker.url(), url);
    drop(broker);
    assert!(is_down(&url).await);
}

/// By default it would listen on all interfaces.
#[tokio::test]
async fn the_broker_listens_on_the_loopback_interface_only() {
    let broker = Kafka::start().await;
    let id = broker.processes()[0];
    let own: Vec<String> = fs::read_dir(format!("/proc/{id}/fd"))
        .unwrap()
        .filter_map(|file| fs::read_link(file.unwrap().path()).ok())
        .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.trim_end_matches(']').to_owned()))
        .collect();
    let mut listening = Vec::new();
    for table in ["tcp", "tcp6"] {
        for line in fs::read_to_string(format!("/proc/{id}/net/{table}")).unwrap_or_default().lines().skip(1)
        {
            let fields: Vec<_> = line.split_whitespace().collect();
            let (address, state, inode) = (fields[1], fields[3], fields[9]);
            if state == "0A" && own.iter().any(|own| own == inode) {
                listening.push(address.to_owned());
            }
        }
    }
    assert_eq!(listening, [format!("0100007F:{:04X}", broker.port())]);
}

#[tokio::test]
async fn a_broker_ends_with_the_process_that_started_it() {
    dies_with_its_holder().await;
}

#[tokio::test]
#[ignore = "the body of a child process"]
async fn a_holder_of_a_broker() {
    hold::<postrider_servers::Kafka>().await;
}
