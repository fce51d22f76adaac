//! The settings of routes and destinations, and their effect in the daemon.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use nix::sys::signal::Signal;
use serde_json::Value;
use std::fs;
use support::{
    program::{AtWork, CompletionOutcome, postrider, run},
    webhooks::Webhooks,
};
use tempfile::{TempDir, tempdir};

/// A running daemon, and the webhook receiver that its configuration names.
struct Shop {
    folder: TempDir,
    webhooks: Webhooks,
    daemon: AtWork,
}

impl Shop {
    /// `destination` is added to the destination `hooks`, `route` to the route.
    async fn open(destination: &str, route: &str, variables: &[(&str, &str)]) -> Self {
        let (folder, webhooks) = (tempdir().unwrap(), Webhooks::listen().await);
        let text = format!(
            "source = \"/shop\"\n[databases.shop]\nurl = \"shop.db\"\n[http]\nlisten = \"off\"\n\
             [destinations.hooks]\nkind = \"webhook\"\nurl = \"http://{address}/hooks\"\nallow_http = true\n\
             allow_networks = [\"127.0.0.0/8\"]\n{destination}\n\
             [destinations.audit]\nkind = \"webhook\"\nurl = \"http://{address}/audit\"\nallow_http = true\n\
             allow_networks = [\"127.0.0.0/8\"]\n\
             [[routes]]\nqueue = \"orders\"\nformat = \"plain\"\n{route}\n",
            address = webhooks.address
        );
        fs::write(folder.path().join("postrider.toml"), text).unwrap();
        let mut command = postrider(&["run", "--migrate"]);
        command.current_dir(folder.path()).env_remove("NOTIFY_SOCKET").env_remove("POSTRIDER_CONFIG");
        let mut daemon = AtWork::start(command.envs(variables.iter().copied()));
        daemon.until(": ready");
        Self { folder, webhooks, daemon }
    }

    fn run(&self, arguments: &[&str]) -> CompletionOutcome {
        run(postrider(arguments).env("POSTRIDER_DB", "shop.db").current_dir(self.folder.path()))
    }

    fn publish(&self, event_type: Option<&str>, body: &str) {
        let mut arguments = vec!["publish", "orders", "--json-body", body];
        arguments.extend(event_type.iter().flat_map(|event_type| ["--type", event_type]));
        let ended = self.run(&arguments);
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }

    /// Waits until no message is pending, and returns the status of the queue.
    fn wait_until_idle(&self) -> Value {
        let ended = self.run(&["status", "--json", "--wait", "60s", "--queue", "orders"]);
        ended.report()["queues"][0].clone()
    }

    fn close(self) -> CompletionOutcome {
        self.daemon.signal(Signal::SIGTERM);
        let ended = self.daemon.end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended
    }
}

/// A destination skips other types, and the other destination gets them all the same.
#[tokio::test(flavor = "multi_thread")]
async fn types_restrict_a_destination_to_matching_messages() {
    let to = "to = [{ destination = \"hooks\", address = \"orders\", types = [\"order.*\", \"bill.sent\"] }, \
              { destination = \"audit\", address = \"all\" }]";
    let mut shop = Shop::open("", to, &[]).await;
    for (event_type, body) in
        [(Some("order.placed"), "1"), (Some("bill.sent"), "2"), (Some("bill.paid"), "3"), (None, "4")]
    {
        shop.publish(event_type, body);
    }
    let arrived = shop.webhooks.next(6).await;
    let expected = [
        "/audit/all 1",
        "/audit/all 2",
        "/audit/all 3",
        "/audit/all 4",
        "/hooks/orders 1",
        "/hooks/orders 2",
    ];
    assert_eq!(arrived, expected);
    assert_eq!(shop.wait_until_idle()["dead"]["count"], 0);
    assert!(shop.webhooks.is_quiet());
    shop.close();
}

/// There is one attempt more than the schedule has delays.
#[tokio::test(flavor = "multi_thread")]
async fn retry_schedule_ends_in_a_dead_letter() {
    let route = "retry = { schedule = [\"10ms\", \"20ms\"], jitter = \"none\" }\nto = [{ destination = \"hooks\", address = \"answer-503\" }]";
    let shop = Shop::open("", route, &[]).await;
    shop.publish(Some("order.placed"), "1");
    let died = shop.run(&["tail", "--queue", "orders", "--since", "1m", "--until", "dead"]);
    assert!(died.out.contains("failures=3 retries_exhausted: Http503"), "{died:?}");
    shop.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_off_deletes_failed_messages_and_warns() {
    let route = "dead_letters = false\nmax_attempts = 1\nto = [{ destination = \"hooks\", address = \"answer-503\" }]";
    let mut shop = Shop::open("", route, &[]).await;
    shop.publish(Some("order.placed"), "1");
    assert_eq!(shop.webhooks.next(1).await, ["/hooks/answer-503 1"]);
    let left = shop.wait_until_idle();
    for none in ["pending", "leased", "scheduled", "dead"] {
        assert_eq!(left[none]["count"], 0, "{left}");
    }
    let ended = shop.close();
    assert!(ended.err.contains("dead letters are off"), "{ended:?}");
}

/// An authorization header, and a signature by each of two secrets; neither is ever logged.
#[tokio::test(flavor = "multi_thread")]
async fn credentials_reach_the_receiver_and_no_log() {
    let keys = "authorization_env = \"HOOKS_LOGIN\"\nsecret_env = \"HOOKS_SECRET\"";
    let secrets = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw whsec_Y2xvdmVyY2xvdmVyY2xvdmVyY2xvdmVy";
    let to = "to = [{ destination = \"hooks\", address = \"orders\" }]";
    let variables = [("HOOKS_LOGIN", "Bearer clover"), ("HOOKS_SECRET", secrets), ("POSTRIDER_LOG", "trace")];
    let mut shop = Shop::open(keys, to, &variables).await;
    shop.publish(Some("order.placed"), "1");
    assert_eq!(shop.webhooks.next(1).await, ["/hooks/orders 1"]);
    let headers = shop.webhooks.headers.lock().unwrap().clone();
    assert_eq!(headers["authorization"], "Bearer clover");
    assert_eq!(headers["webhook-signature"].to_str().unwrap().split(' ').count(), 2, "{headers:?}");
    let ended = shop.close();
    assert!(!ended.err.contains("clover") && !ended.err.contains("whsec"), "{ended:?}");
}
