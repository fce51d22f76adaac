//! `postrider doctor` on a RabbitMQ destination.

#![cfg(all(unix, feature = "rabbitmq"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use nix::sys::signal::Signal;
use postrider_testkit::{Kind, shared};
use std::fs;
use support::{
    doctor::{Diagnosis, doctor},
    places,
    program::{AtWork, postrider, run},
};
use tempfile::tempdir;
use uuid::Uuid;

/// The findings of a route to this address. Its queue is empty.
fn diagnose(address: &str) -> Diagnosis {
    let folder = tempdir().unwrap();
    let text = format!(
        "source = \"/shop\"\n[databases.shop]\nurl = \"shop.db\"\n[destinations.events]\nkind = \"rabbitmq\"\nurl_env = \"AMQP_URL\"\n\
         [[routes]]\nqueue = \"orders\"\nto = [{{ destination = \"events\", address = \"{address}\" }}]\n"
    );
    fs::write(folder.path().join("postrider.toml"), text).unwrap();
    let made = run(postrider(&["migrate", "up", "--db", "shop.db"]).current_dir(folder.path()));
    assert_eq!(made.code, Some(0), "{made:?}");
    Diagnosis::of(doctor(&[]).current_dir(folder.path()).env("AMQP_URL", shared::url(Kind::RabbitMq)))
}

/// Every broker has these durable exchanges.
#[test]
fn durable_exchange_has_no_findings() {
    diagnose("amq.topic/order.{type}").is_silent();
    diagnose("amq.topic/order.placed").is_silent();
}

#[test]
fn missing_exchange_is_found_for_any_routing_key() {
    let name = format!("nowhere-{}", Uuid::new_v4());
    let diagnosis = diagnose(&format!("{name}/order.{{type}}"));
    let fix = format!("rabbitmqadmin declare exchange name={name} type=topic durable=true");
    assert_eq!(diagnosis.fix("missing_exchange"), fix);
}

/// AMQP cannot tell whether a queue is bound; the error of a returned message shows it.
#[tokio::test(flavor = "multi_thread")]
async fn exchange_without_binding_is_found_after_a_publish() {
    let (folder, key) = (tempdir().unwrap(), format!("nowhere-{}", Uuid::new_v4()));
    let pauses = ["\"20ms\""; 1000].join(", ");
    let text = format!(
        "source = \"/shop\"\n[databases.shop]\nurl = \"shop.db\"\n[http]\nlisten = \"off\"\n\
         [destinations.events]\nkind = \"rabbitmq\"\nurl_env = \"AMQP_URL\"\n\
         [[routes]]\nqueue = \"orders\"\nretry = {{ schedule = [{pauses}] }}\n\
         to = [{{ destination = \"events\", address = \"amq.topic/{key}\" }}]\n"
    );
    fs::write(folder.path().join("postrider.toml"), text).unwrap();
    let url = shared::url(Kind::RabbitMq);
    let here = |arguments: &[&str]| {
        let mut command = postrider(arguments);
        command.current_dir(folder.path()).env("AMQP_URL", &url).env_remove("NOTIFY_SOCKET");
        command
    };
    let mut daemon = AtWork::start(&mut here(&["run", "--migrate"]));
    daemon.until(": ready");
    let staged = run(&mut here(&["publish", "orders", "--json-body", "17", "--db", "shop.db"]));
    assert_eq!(staged.code, Some(0), "{staged:?}");
    // A failure is logged before it is settled: the fourth attempt shows that three are in the store.
    for attempt in 1..=4 {
        let failed = daemon.until("retrying in");
        assert!(failed.contains(&format!("attempt={attempt} ")) && failed.contains("Unroutable"), "{failed}");
    }
    let diagnose = || Diagnosis::of(doctor(&[]).current_dir(folder.path()).env("AMQP_URL", &url));
    let fix = format!(
        "rabbitmqadmin declare queue name={key} durable=true arguments='{{\"x-queue-type\":\"quorum\"}}'\n\
         rabbitmqadmin declare binding source=amq.topic destination={key} routing_key={key}"
    );
    let diagnosis = diagnose();
    assert_eq!((diagnosis.fix("unroutable"), diagnosis.fixes().len()), (fix.as_str(), 1));
    // The same declarations as rabbitmqadmin makes, which needs a plugin.
    places::rabbitmq_queue(&key).await;
    places::rabbitmq_binding("amq.topic", &key).await;
    let is_left = || {
        let status = run(&mut here(&["status", "--json", "--db", "shop.db"])).report();
        ["pending", "leased", "scheduled"].iter().any(|state| status["queues"][0][state]["count"] != 0)
    };
    while is_left() {
        tokio::task::yield_now().await;
    }
    diagnose().is_silent();
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.end().code, Some(0));
}

#[test]
fn missing_queue_is_found() {
    let name = format!("nowhere-{}", Uuid::new_v4());
    let fix = format!(
        "rabbitmqadmin declare queue name={name} durable=true arguments='{{\"x-queue-type\":\"quorum\"}}'"
    );
    assert_eq!(diagnose(&name).fix("missing_queue"), fix);
}
