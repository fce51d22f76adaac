//! Several queues share a worker fairly, and so do the tenants of one queue; none waits while capacity is free.

use super::helpers::*;
use crate::Fixture;
use postrider_core::{Message, QueuePolicy};
use postrider_engine::{Context, Failure, Queue};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

fn numbered_in(queue: &str, count: u64) -> Vec<Message> {
    (0..count).map(|number| message(queue).payload(number.to_string()).build().unwrap()).collect()
}

/// Under load, each queue gets its share of the concurrency.
pub async fn weights_share_the_concurrency_under_load<F: Fixture>(fixture: F) {
    stage(&fixture, &numbered_in("heavy", 60)).await;
    stage(&fixture, &numbered_in("light", 60)).await;
    let barrier = Barrier::closed();
    let ran = Arc::new(Mutex::new(Vec::new()));
    let queue = |name: &'static str, weight| {
        let (barrier, ran) = (barrier.clone(), Arc::clone(&ran));
        Queue::new(name).weight(weight).prefetch(60).on_any(move |_: Context| {
            let (barrier, ran) = (barrier.clone(), Arc::clone(&ran));
            async move {
                barrier.pass().await;
                ran.lock().unwrap().push(name);
                Ok::<(), Failure>(())
            }
        })
    };
    let builder =
        postrider_engine::Worker::builder_on(fixture.store()).without_notifications().concurrency(1);
    let running = builder.queue(queue("heavy", 3)).queue(queue("light", 1)).build().unwrap().start();
    eventually(async || running.report().claimed == 120).await;
    barrier.open(1_000);
    eventually(async || running.report().delivered == 120).await;
    let ran = ran.lock().unwrap().clone();
    let heavy = ran.iter().take(40).filter(|name| **name == "heavy").count();
    assert!((29..=31).contains(&heavy), "{heavy} of the first 40 were heavy");
    assert!(
        ran.iter().skip(85).all(|name| *name == "light"),
        "when one has nothing left, the other has it all"
    );
    assert!(running.stop(minutes(1)).await.clean);
}

/// A queue without competitors uses the whole concurrency, whatever its weight.
pub async fn no_queue_waits_while_capacity_is_free<F: Fixture>(fixture: F) {
    stage(&fixture, &numbered_in("light", 8)).await;
    let barrier = Barrier::closed();
    let waiting = barrier.clone();
    let light = Queue::new("light").concurrency(8).on_any(move |_: Context| {
        let barrier = waiting.clone();
        async move {
            barrier.pass().await;
            Ok::<(), Failure>(())
        }
    });
    let heavy = Queue::new("heavy").weight(100).on_any(async |_: Context| Ok::<(), Failure>(()));
    let builder =
        postrider_engine::Worker::builder_on(fixture.store()).without_notifications().concurrency(8);
    let running = builder.queue(light).queue(heavy).build().unwrap().start();
    barrier.wait_for_arrivals(8).await;
    barrier.open(8);
    eventually(async || running.report().delivered == 8).await;
    assert!(running.stop(minutes(1)).await.clean);
}

/// Neither a queue nor a worker exceeds its concurrency.
pub async fn concurrency_limits_are_kept<F: Fixture>(fixture: F) {
    let names = ["one", "two"];
    for name in names {
        stage(&fixture, &numbered_in(name, 100)).await;
    }
    let running_now = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let queue = |index: usize| {
        let running_now = Arc::clone(&running_now);
        Queue::new(names[index]).concurrency(4).on_any(move |_: Context| {
            let running_now = Arc::clone(&running_now);
            async move {
                let mine = running_now[index].fetch_add(1, SeqCst) + 1;
                assert!(mine <= 4, "a queue runs {mine}");
                let all: usize = running_now.iter().map(|count| count.load(SeqCst)).sum();
                assert!(all <= 5 + 1, "a worker runs {all}");
                tokio::task::yield_now().await;
                running_now[index].fetch_sub(1, SeqCst);
                Ok::<(), Failure>(())
            }
        })
    };
    let builder =
        postrider_engine::Worker::builder_on(fixture.store()).without_notifications().concurrency(5);
    let report = builder.queue(queue(0)).queue(queue(1)).build().unwrap().run_until_idle().await.unwrap();
    assert_eq!((report.delivered, report.retried), (200, 0));
}

/// Tenants behind a noisy tenant's backlog are handled in turns with it, each by its weight.
pub async fn tenants_are_served_by_weight<F: Fixture>(fixture: F) {
    let of = |tenant: &str, count: usize| -> Vec<Message> {
        (0..count).map(|_| message("orders").tenant(tenant).payload("{}").build().unwrap()).collect()
    };
    stage(&fixture, &of("noisy", 3_000)).await;
    let ran = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&ran);
    let orders = Queue::new("orders").concurrency(1).prefetch(10).tenant_weight("gold", 2).on_any(
        move |context: Context| {
            noted.lock().unwrap().push(context.message().tenant().unwrap().to_string());
            async move { Ok::<(), Failure>(()) }
        },
    );
    let orders = orders.policy(QueuePolicy::default().fair_by_tenant());
    let worker = postrider_engine::Worker::builder_on(fixture.store())
        .without_notifications()
        .queue(orders)
        .build()
        .unwrap();
    worker.declare().await.unwrap();
    stage(&fixture, &of("gold", 60)).await;
    stage(&fixture, &of("iron", 60)).await;
    assert_eq!(worker.run_until_idle().await.unwrap().delivered, 3_120);

    let ran = ran.lock().unwrap();
    let count = |tenant: &str, first: usize| ran.iter().take(first).filter(|each| *each == tenant).count();
    let (gold, iron) = (count("gold", 80), count("iron", 80));
    assert!(
        (38..=42).contains(&gold) && (18..=22).contains(&iron),
        "of the first 80: {gold} gold, {iron} iron"
    );
    assert_eq!((count("gold", 200), count("iron", 200)), (60, 60), "long before the backlog");
}
