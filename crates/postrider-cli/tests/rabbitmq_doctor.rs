//! `postrider doctor` on a destination of RabbitMQ.

#![cfg(all(unix, feature = "rabbitmq"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use postrider_testkit::{Kind, shared};
use std::fs;
use support::{
    doctor::{Diagnosis, doctor},
    program::{postrider, run},
};
use tempfile::tempdir;
use uuid::Uuid;

/// What is found about a route to this address. Nothing waits in its queue.
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

/// Every broker has these exchanges, and they last.
#[test]
fn an_exchange_that_lasts_is_passed_in_silence() {
    diagnose("amq.topic/order.{type}").is_silent();
    diagnose("amq.topic/order.placed").is_silent();
}

#[test]
fn an_exchange_that_is_missing_is_found_whatever_its_routing_keys_are() {
    let name = format!("nowhere-{}", Uuid::new_v4());
    let diagnosis = diagnose(&format!("{name}/order.{{type}}"));
    let fix = format!("rabbitmqadmin declare exchange name={name} type=topic durable=true");
    assert_eq!(diagnosis.fix("missing_exchange"), fix);
}

#[test]
fn a_queue_that_is_missing_is_found() {
    let name = format!("nowhere-{}", Uuid::new_v4());
    let fix = format!(
        "rabbitmqadmin declare queue name={name} durable=true arguments='{{\"x-queue-type\":\"quorum\"}}'"
    );
    assert_eq!(diagnose(&name).fix("missing_queue"), fix);
}
