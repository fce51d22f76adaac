//! One effect for each message (promise 3).

use super::{ConsumerFixture, Deaf, helpers::*};
use postrider_core::{
    Admission, Arrival, Format, Hlc, Inbox, Message, OutboxExt, hlc::Clock, inspect::Room, transact::Transact,
};
use postrider_engine::{Context, Failure};
use std::{
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

/// The effects are there, and the broker was never told: what comes again is acknowledged, and has no second effect.
pub async fn what_comes_again_after_its_effect_is_a_duplicate<F: ConsumerFixture>(fixture: F) {
    let deaf = Deaf::to(fixture.source().await, usize::MAX);
    let first = with_effect(billing_on(&fixture, Arc::new(deaf)), &fixture, |_| Ok(()));
    fixture.send(orders(10, &fixture.place())).await;
    // Where a message comes again by itself, it may be a duplicate here already.
    let consumed = run_until::<F>(&first, |consumed| consumed.processed == 10).await;
    assert_eq!((consumed.parked, consumed.failed), (0, 0));

    let second = with_effect(billing(&fixture).await, &fixture, |_| Ok(()));
    let consumed = run_until::<F>(&second, |consumed| consumed.duplicates == 10).await;
    assert_eq!((consumed.processed, consumed.failed), (0, 0));
    assert_eq!(effects(&fixture).await, (0..10).collect::<Vec<_>>());
}

/// What fails has neither a mark nor an effect, and has both when it is tried again.
pub async fn a_failed_handler_leaves_no_mark_and_no_effect<F: ConsumerFixture>(fixture: F) {
    let sent = orders(3, &fixture.place());
    let failing = with_effect(billing(&fixture).await, &fixture, |_| Err(Failure::retry("not yet")));
    fixture.send(sent.clone()).await;
    run_until::<F>(&failing, |consumed| consumed.failed >= 3).await;
    assert!(effects(&fixture).await.is_empty());
    let store = fixture.receive();
    let arrivals: Vec<_> = sent.iter().map(|sent| Arrival::new(sent.id)).collect();
    let mut tx = store.begin().await.unwrap();
    let marks = store.admit_all(&mut tx, &"billing".parse().unwrap(), &arrivals).await.unwrap();
    store.rollback(tx).await.unwrap();
    assert_eq!(marks, [Admission::First; 3]);

    let mended = with_effect(billing(&fixture).await, &fixture, |_| Ok(()));
    run_until::<F>(&mended, |consumed| consumed.processed == 3).await;
    assert_eq!(effects(&fixture).await, [0, 1, 2]);
}

/// Messages are handled together, and one of them fails for good: all others have their effects, once.
pub async fn one_failure_in_a_batch_harms_nobody<F: ConsumerFixture>(fixture: F) {
    fixture.send(orders(40, &fixture.place())).await;
    let decide = |number| if number == 17 { Err(Failure::reject("bad")) } else { Ok(()) };
    let consumer = with_effect(billing(&fixture).await.concurrency(1).together(50), &fixture, decide);
    let consumed =
        run_until::<F>(&consumer, |consumed| consumed.processed == 39 && consumed.parked == 1).await;
    assert_eq!(consumed.failed, 0);
    assert_eq!(effects(&fixture).await, (0..40).filter(|number| *number != 17).collect::<Vec<_>>());
    assert_eq!(parked(&fixture).await.len(), 1);
}

/// What a handler stages belongs to the same correlation, and is caused by the message that was received.
pub async fn what_is_staged_follows_what_was_received<F: ConsumerFixture>(fixture: F) {
    let message = Message::builder("orders").correlation_id("request-7").json(&1);
    let sent = written(message, &fixture.place(), Format::Binary);
    fixture.send(vec![sent.clone()]).await;
    let consumer = with_effect(billing(&fixture).await, &fixture, |_| Ok(()));
    run_until::<F>(&consumer, |consumed| consumed.processed == 1).await;
    let effects = list(&fixture, "effects", Room::Ready).await;
    let trail = effects[0].message.trail();
    assert_eq!(trail.correlation_id.as_deref(), Some("request-7"));
    assert_eq!(trail.causation_id, Some(sent.id.to_string()));
}

/// What is staged after a message was received comes after it. A duplicate moves no clock.
pub async fn the_clock_follows_first_deliveries_only<F: ConsumerFixture>(fixture: F) {
    let ahead = |seconds: u64| {
        let then = SystemTime::now() + Duration::from_secs(seconds);
        let millis = then.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
        Hlc::from_bits(u64::try_from(millis).unwrap() << 16)
    };
    let sent = |hlc| {
        let message = Message::builder("orders").hlc(hlc).json(&1);
        written(message, &fixture.place(), Format::Binary)
    };
    let (near, far) = (ahead(60), ahead(120));
    let (first, duplicate) = (sent(near), sent(far));
    let store = fixture.receive();
    let mut tx = store.begin().await.unwrap();
    let known = [Arrival::new(duplicate.id)];
    store.admit_all(&mut tx, &"billing".parse().unwrap(), &known).await.unwrap();
    store.commit(tx).await.unwrap();
    let clock = Arc::new(Clock::resume(None));
    let consumer = with_effect(billing(&fixture).await.clock(Arc::clone(&clock)), &fixture, |_| Ok(()));
    fixture.send(vec![duplicate, first]).await;
    run_until::<F>(&consumer, |consumed| consumed.processed == 1 && consumed.duplicates == 1).await;
    let latest = clock.latest().unwrap();
    assert!(latest >= near && latest < far, "{latest}");
}

/// A handler that keeps its transaction cannot have succeeded.
pub async fn a_kept_transaction_is_a_failure<F: ConsumerFixture>(fixture: F) {
    let kept = Arc::new(Mutex::new(None));
    let (outbox, runs, keeping) = (fixture.outbox(), Times::default(), Arc::clone(&kept));
    let consumer = billing(&fixture)
        .await
        .on_json(move |number: u64, mut tx: Lent<F>, _: Context| {
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
    fixture.send(orders(1, &fixture.place())).await;
    let running = consumer.start().await.unwrap();
    until("the failure", || running.consumed().failed == 1).await;
    // It is undone when it is let go.
    drop(kept.lock().unwrap().take());
    until("its end", || running.consumed().processed == 1).await;
    patiently("stopping", running.shutdown(Duration::from_secs(60))).await;
    assert_eq!(effects(&fixture).await, [0]);
}
