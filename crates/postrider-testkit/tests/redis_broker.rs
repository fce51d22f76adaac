//! Redis: the shared one, and one that a test kills.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use postrider_testkit::{Kind, broker::Redis, shared};
use support::{Talk, dies_with_its_holder, hold, is_down, soon};
use tokio::net::TcpListener;

async fn ask(url: &str, command: &str) -> String {
    let mut talk = Talk::with(url).await;
    talk.say(format!("{command}\r\n")).await;
    talk.line().await
}

#[tokio::test]
async fn the_shared_broker_accepts_messages() {
    let url = shared::url(Kind::Redis);
    let stream = format!("harness-{}", uuid::Uuid::now_v7());
    ask(&url, &format!("XADD {stream} * body hello")).await;
    assert_eq!(ask(&url, &format!("XLEN {stream}")).await, ":1");
}

#[tokio::test]
async fn confirmed_messages_survive_a_kill() {
    let mut broker = Redis::start().await;
    let url = broker.url().to_owned();
    ask(&url, "XADD durable * body hello").await;
    broker.kill();
    assert!(is_down(&url).await);
    broker.restart().await;
    assert_eq!(broker.url(), url);
    assert_eq!(ask(&url, "XLEN durable").await, ":1");
    drop(broker);
    assert!(is_down(&url).await);
}

/// While it is down another process may have its port.
#[tokio::test]
async fn a_restart_waits_for_its_port() {
    let mut broker = Redis::start().await;
    broker.kill();
    let thief = TcpListener::bind(("127.0.0.1", broker.port())).await.unwrap();
    // It identifies the process that listens on the port, so it was started by then.
    let give_back = async {
        soon(thief.accept()).await.unwrap();
        drop(thief);
    };
    tokio::join!(broker.restart(), give_back);
    assert_eq!(ask(broker.url(), "PING").await, "+PONG");
}

/// Threads of a runtime's blocking pool end soon, and servers end with the thread that started them.
#[tokio::test]
async fn a_broker_outlives_the_thread_that_requested_it() {
    let start = || tokio::runtime::Runtime::new().unwrap().block_on(Redis::start());
    let broker = std::thread::spawn(start).join().unwrap();
    assert_eq!(ask(broker.url(), "PING").await, "+PONG");
}

#[tokio::test]
async fn a_broker_ends_with_the_process_that_started_it() {
    dies_with_its_holder().await;
}

#[tokio::test]
#[ignore = "the body of a child process"]
async fn a_holder_of_a_broker() {
    hold::<postrider_servers::Redis>().await;
}
