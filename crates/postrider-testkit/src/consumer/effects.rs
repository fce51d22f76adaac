//! Exactly one effect for each message (promise 3).

use super::{ConsumerFixture, FaultySource, helpers::*};
use postrider_core::{
    Admission, Arrival, Format, Hlc, Message, OutboxExt, TenantId, TxBackend, hlc::HybridClock,
    inspect::StateFilter,
};
use postrider_engine::{Context, Failure};
use std::{
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

/// The effects are committed, but the ack is lost: the redelivered message is acked, and has no second effect.
pub async fn a_redelivery_after_its_effect_is_a_duplicate<F: ConsumerFixture>(fixture: F) {
    let source = FaultySource::new(fixture.source().await).drop_acks(usize::MAX);
    let first = with_effect(billing_on(&fixture, Arc::new(source)), &fixture, |_| Ok(()));
    fixture.send(orders(10, &fixture.address())).await;
    // If the source redelivers by itself, the message may already be a duplicate here.
    let report = run_until::<F>(&first, |report| report.delivered == 10).await;
    assert_eq!((report.dead, report.retried), (0, 0));

    let second = with_effect(billing(&fixture).await, &fixture, |_| Ok(()));
    let report = run_until::<F>(&second, |report| report.duplicates == 10).await;
    assert_eq!((report.delivered, report.retried), (0, 0));
    assert_eq!(effects(&fixture).await, (0..10).collect::<Vec<_>>());
}

/// A failed message has neither a deduplication record nor an effect, and has both after its retry.
pub async fn a_failed_handler_leaves_no_deduplication_record_and_no_effect<F: ConsumerFixture>(fixture: F) {
    let sent = orders(3, &fixture.address());
    let failing = with_effect(billing(&fixture).await, &fixture, |_| Err(Failure::retry("not yet")));
    fixture.send(sent.clone()).await;
    run_until::<F>(&failing, |report| report.retried >= 3).await;
    assert!(effects(&fixture).await.is_empty());
    let store = fixture.receive();
    let arrivals: Vec<_> = sent.iter().map(|sent| Arrival::new(sent.id)).collect();
    let mut tx = store.begin().await.unwrap();
    let marks = store.admit_in(&mut tx, &"billing".parse().unwrap(), &arrivals).await.unwrap();
    store.rollback(tx).await.unwrap();
    assert_eq!(marks, [Admission::First; 3]);

    let fixed = with_effect(billing(&fixture).await, &fixture, |_| Ok(()));
    run_until::<F>(&fixed, |report| report.delivered == 3).await;
    assert_eq!(effects(&fixture).await, [0, 1, 2]);
}

/// Messages are handled in a batch, and one of them fails permanently: all others have their effects, once.
pub async fn one_failure_in_a_batch_affects_no_other<F: ConsumerFixture>(fixture: F) {
    fixture.send(orders(40, &fixture.address())).await;
    let decide = |number| if number == 17 { Err(Failure::reject("bad")) } else { Ok(()) };
    let consumer = with_effect(billing(&fixture).await.concurrency(1).batch_size(50), &fixture, decide);
    let report = run_until::<F>(&consumer, |report| report.delivered == 39 && report.dead == 1).await;
    assert_eq!(report.retried, 0);
    assert_eq!(effects(&fixture).await, (0..40).filter(|number| *number != 17).collect::<Vec<_>>());
    assert_eq!(dead_letters(&fixture).await.len(), 1);
}

/// Messages that a handler stages have the same correlation id, and the received message as their cause.
pub async fn staged_messages_inherit_correlation_and_causation<F: ConsumerFixture>(fixture: F) {
    let message = Message::builder("orders").correlation_id("request-7").json(&1);
    let sent = written(message, &fixture.address(), Format::Binary);
    fixture.send(vec![sent.clone()]).await;
    let consumer = with_effect(billing(&fixture).await, &fixture, |_| Ok(()));
    run_until::<F>(&consumer, |report| report.delivered == 1).await;
    let effects = list(&fixture, "effects", StateFilter::Ready).await;
    let trail = effects[0].message.trail();
    assert_eq!(trail.correlation_id.as_deref(), Some("request-7"));
    assert_eq!(trail.causation_id, Some(sent.id.to_string()));
}

/// A sender repeats a message under another id: `deduplicate_by` finds the duplicate. Messages of which it finds no identity keep
/// their own.
pub async fn a_message_is_deduplicated_by_an_identity_of_its_own<F: ConsumerFixture>(fixture: F) {
    let sent = |number: u64, header: Option<&str>| {
        let message = Message::builder("orders").json(&number);
        let message = match header {
            Some(value) => message.header("idempotency-key", value),
            None => message,
        };
        written(message, &fixture.address(), Format::Binary)
    };
    let batch = [sent(1, Some("payment-1")), sent(1, Some("payment-1")), sent(2, Some("payment-2"))];
    fixture.send(batch.into_iter().chain([sent(3, None), sent(4, None)]).collect()).await;
    let builder = billing(&fixture).await;
    let builder = builder.deduplicate_by(|incoming| incoming.header("idempotency-key").map(str::to_owned));
    let consumer = with_effect(builder, &fixture, |_| Ok(()));
    let report = run_until::<F>(&consumer, |report| report.delivered + report.duplicates == 5).await;
    assert_eq!((report.delivered, report.duplicates), (4, 1));
    assert_eq!(effects(&fixture).await, [1, 2, 3, 4]);
}

/// A function of `deduplicate_by` that panics rejects its message, and stops nothing.
pub async fn a_panicking_deduplicate_by_affects_only_its_message<F: ConsumerFixture>(fixture: F) {
    let builder = billing(&fixture).await.deduplicate_by(|incoming| match &incoming.body[..] {
        b"1" => panic!("as the test says"),
        _ => None,
    });
    let consumer = with_effect(builder, &fixture, |_| Ok(()));
    fixture.send(orders(3, &fixture.address())).await;
    let report = run_until::<F>(&consumer, |report| report.delivered == 2 && report.dead >= 1).await;
    assert_eq!((report.dead, report.retried), (1, 0));
    assert_eq!(effects(&fixture).await, [0, 2]);
}

/// Messages that a handler stages belong to the tenant of the received message, and have a later logical time.
pub async fn staged_messages_inherit_the_tenant_and_a_later_time<F: ConsumerFixture>(fixture: F) {
    let cause = HybridClock::resume(None).tick(SystemTime::now() + Duration::from_secs(60));
    let message = Message::builder("orders").tenant("acme").hlc(cause).json(&1);
    fixture.send(vec![written(message, &fixture.address(), Format::Binary)]).await;
    let consumer = with_effect(billing(&fixture).await, &fixture, |_| Ok(()));
    run_until::<F>(&consumer, |report| report.delivered == 1).await;
    let effects = list(&fixture, "effects", StateFilter::Ready).await;
    let effect = &effects[0].message;
    assert_eq!(effect.tenant().map(TenantId::as_str), Some("acme"));
    assert!(effect.trail().hlc > Some(cause), "{:?}", effect.trail().hlc);
}

/// Messages staged after a received message have a later logical time. A duplicate does not move the clock.
pub async fn only_first_deliveries_advance_the_logical_clock<F: ConsumerFixture>(fixture: F) {
    let ahead = |seconds: u64| {
        let then = SystemTime::now() + Duration::from_secs(seconds);
        let millis = then.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
        Hlc::from_bits(u64::try_from(millis).unwrap() << 16)
    };
    let sent = |hlc| {
        let message = Message::builder("orders").hlc(hlc).json(&1);
        written(message, &fixture.address(), Format::Binary)
    };
    let (near, far) = (ahead(60), ahead(120));
    let (first, duplicate) = (sent(near), sent(far));
    let store = fixture.receive();
    let mut tx = store.begin().await.unwrap();
    let known = [Arrival::new(duplicate.id)];
    store.admit_in(&mut tx, &"billing".parse().unwrap(), &known).await.unwrap();
    store.commit(tx).await.unwrap();
    let clock = Arc::new(HybridClock::resume(None));
    let consumer = with_effect(billing(&fixture).await.clock(Arc::clone(&clock)), &fixture, |_| Ok(()));
    fixture.send(vec![duplicate, first]).await;
    run_until::<F>(&consumer, |report| report.delivered == 1 && report.duplicates == 1).await;
    let latest = clock.latest().unwrap();
    assert!(latest >= near && latest < far, "{latest}");
}

/// A handler that keeps its transaction has failed.
pub async fn a_transaction_kept_by_its_handler_is_a_failure<F: ConsumerFixture>(fixture: F) {
    let kept = Arc::new(Mutex::new(None));
    let (outbox, runs, keeping) = (fixture.outbox(), Times::default(), Arc::clone(&kept));
    let consumer = billing(&fixture)
        .await
        .on_json(move |number: u64, mut tx: HandlerTx<F>, _: Context| {
            let (outbox, runs, keeping) = (outbox.clone(), runs.clone(), Arc::clone(&keeping));
            async move {
                let effect = Message::builder("effects").payload(number.to_string());
                Box::pin(outbox.stage(&mut *tx, effect)).await?;
                if runs.once_more() == 0 {
                    *keeping.lock().unwrap() = Some(tx);
                }
                Ok::<(), Failure>(())
            }
        })
        .build()
        .unwrap();
    fixture.send(orders(1, &fixture.address())).await;
    let running = consumer.start();
    until("the failure", || running.report().retried == 1).await;
    // It is rolled back when it is dropped.
    drop(kept.lock().unwrap().take());
    until("its end", || running.report().delivered == 1).await;
    within_patience("stopping", running.stop(Duration::from_secs(60))).await;
    assert_eq!(effects(&fixture).await, [0]);
}
