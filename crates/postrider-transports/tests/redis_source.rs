//! Consumers of Redis Streams pass the suite, on a server that all tests share and on one that is killed; and what is special to groups.

#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/redis_source.rs"]
mod fixture;
#[path = "support/redis.rs"]
mod server;
mod support;

use fixture::{builder, own_server, send, shared_server, stream};
use postrider_core::{Answer, Parcel, Redelivers, Source, SourceError};
use postrider_testkit::{Kind, shared};
use postrider_transports::redis::{RedisSource, RedisSourceBuilder};
use server::{connection, entries, new_stream, run};
use std::{collections::HashMap, time::Duration};
use support::{order, orders, soon};

mod on_a_shared_server {
    postrider_testkit::source_suite!(super::shared_server);
}

mod on_a_server_that_crashes {
    postrider_testkit::source_suite!(super::own_server);
}

/// Nothing comes again by itself within a test.
const FOR_EVER: Duration = Duration::from_secs(24 * 60 * 60);

fn url() -> String {
    shared::url(Kind::Redis)
}

async fn receive(source: &RedisSource, count: usize) -> Vec<Parcel> {
    let mut parcels = Vec::new();
    while parcels.len() < count {
        parcels.extend(soon(source.receive(count - parcels.len())).await.unwrap());
    }
    parcels
}

async fn answer(source: &RedisSource, parcels: &[Parcel], with: Answer) -> Vec<Result<(), SourceError>> {
    let answers: Vec<_> = parcels.iter().map(|parcel| (parcel.ticket.clone(), with)).collect();
    soon(source.answer(&answers)).await
}

async fn done(source: &RedisSource, parcels: &[Parcel]) {
    for told in answer(source, parcels, Answer::Done).await {
        told.unwrap();
    }
}

fn bodies(parcels: &[Parcel]) -> Vec<String> {
    parcels.iter().map(|parcel| String::from_utf8_lossy(&parcel.incoming.body).into_owned()).collect()
}

fn is_stale(told: &Result<(), SourceError>) -> bool {
    matches!(told, Err(SourceError::Stale { .. }))
}

/// How many entries are pending.
async fn pending(stream: &str) -> u64 {
    let told: redis::Value = run(&url(), &format!("XPENDING {stream} billing")).await;
    let redis::Value::Array(parts) = told else { panic!("{told:?}") };
    redis::from_redis_value(parts.into_iter().next().unwrap()).unwrap()
}

/// The names of a group's consumers.
async fn consumers(stream: &str) -> Vec<String> {
    let told: Vec<HashMap<String, redis::Value>> =
        run(&url(), &format!("XINFO CONSUMERS {stream} billing")).await;
    let name = |mut told: HashMap<_, _>| redis::from_redis_value(told.remove("name").unwrap()).unwrap();
    told.into_iter().map(name).collect()
}

/// One that was received, in the hands of a consumer that is too slow and of another one that has claimed it.
async fn overtaken() -> (String, RedisSource, Parcel, RedisSource, Parcel) {
    let stream = stream(&url()).await;
    let slow = builder(&url(), &stream).with_refused_to(format!("{stream}-refused")).build().unwrap();
    let fast = builder(&url(), &stream).build().unwrap();
    send(&url(), &orders(1, &stream)).await;
    let late = receive(&slow, 1).await.remove(0);
    let claimed = receive(&fast, 1).await.remove(0);
    (stream, slow, late, fast, claimed)
}

#[tokio::test]
async fn what_was_claimed_from_a_dead_consumer_is_counted() {
    let (_, _, late, _, claimed) = overtaken().await;
    assert_eq!((late.deliveries, claimed.deliveries), (Some(1), Some(2)));
    assert_eq!(late.incoming, claimed.incoming);
}

/// Redis would let it: what another consumer has by now is neither taken back, nor put away, nor kept.
#[tokio::test]
async fn a_consumer_that_was_too_slow_changes_nothing() {
    let (stream, slow, late, fast, claimed) = overtaken().await;
    for with in [Answer::AT_ONCE, Answer::Refuse] {
        assert!(is_stale(&answer(&slow, std::slice::from_ref(&late), with).await[0]), "{with:?}");
    }
    assert!(is_stale(&soon(slow.extend(std::slice::from_ref(&late.ticket))).await[0]));
    assert_eq!(run::<u64>(&url(), &format!("XLEN {stream}-refused")).await, 0);
    soon(fast.extend(std::slice::from_ref(&claimed.ticket))).await.remove(0).unwrap();
    // That it is done is true, whoever says so. The other one is told.
    done(&slow, &[late]).await;
    assert_eq!(pending(&stream).await, 0);
    assert!(is_stale(&answer(&fast, &[claimed], Answer::Done).await[0]));
}

/// The same consumer, by an earlier delivery.
#[tokio::test]
async fn an_old_ticket_of_our_own_is_stale_too() {
    let stream = stream(&url()).await;
    let source = builder(&url(), &stream).build().unwrap();
    send(&url(), &orders(1, &stream)).await;
    let first = receive(&source, 1).await;
    let second = receive(&source, 1).await;
    assert_eq!(second[0].deliveries, Some(2));
    assert!(is_stale(&soon(source.extend(&[first[0].ticket.clone()])).await[0]));
    assert!(is_stale(&answer(&source, &first, Answer::AT_ONCE).await[0]));
    done(&source, &second).await;
}

#[tokio::test]
async fn what_a_name_had_before_comes_at_once() {
    let stream = stream(&url()).await;
    let named = || builder(&url(), &stream).with_consumer("ann").with_hold(FOR_EVER).build().unwrap();
    send(&url(), &orders(5, &stream)).await;
    let before = receive(&named(), 3).await;
    // One of them is not there any more.
    let places: Vec<(String, Vec<String>)> = run(&url(), &format!("XRANGE {stream} - +")).await;
    run::<u64>(&url(), &format!("XDEL {stream} {}", places[1].0)).await;
    let after = named();
    let again = receive(&after, 4).await;
    assert_eq!(bodies(&again), ["0", "2", "3", "4"]);
    let counts: Vec<_> = again.iter().map(|parcel| parcel.deliveries).collect();
    assert_eq!(counts, [Some(2), Some(2), Some(1), Some(1)]);
    assert!(is_stale(&answer(&after, &before, Answer::AT_ONCE).await[0]), "by an earlier delivery");
    done(&after, &again).await;
    assert_eq!(pending(&stream).await, 0);
}

#[tokio::test]
async fn what_was_deleted_while_it_was_pending_is_forgotten() {
    let stream = stream(&url()).await;
    send(&url(), &orders(3, &stream)).await;
    let dead = builder(&url(), &stream).build().unwrap();
    receive(&dead, 3).await;
    drop(dead);
    run::<u64>(&url(), &format!("XTRIM {stream} MAXLEN 1")).await;
    let heir = builder(&url(), &stream).build().unwrap();
    let parcels = receive(&heir, 1).await;
    assert_eq!(bodies(&parcels), ["2"]);
    done(&heir, &parcels).await;
    assert_eq!(pending(&stream).await, 0);
}

/// The delay is kept by the server: it outlives the process that asked for it.
#[tokio::test]
async fn what_a_dead_consumer_put_off_comes_to_another() {
    let stream = stream(&url()).await;
    send(&url(), &orders(1, &stream)).await;
    let dead = builder(&url(), &stream).build().unwrap();
    let parcels = receive(&dead, 1).await;
    let after = Duration::from_secs(1);
    let answered = tokio::time::Instant::now();
    answer(&dead, &parcels, Answer::Again { after }).await.remove(0).unwrap();
    assert_eq!(
        run::<Vec<redis::Value>>(&url(), &format!("XPENDING {stream} billing - + 9 postrider-waiting"))
            .await
            .len(),
        1
    );
    drop(dead);
    let heir = builder(&url(), &stream).build().unwrap();
    let parcels = receive(&heir, 1).await;
    assert!(answered.elapsed() >= after, "{:?}", answered.elapsed());
    assert_eq!(parcels[0].deliveries, Some(2));
    done(&heir, &parcels).await;
}

#[tokio::test]
async fn closing_hands_back_at_once_and_leaves_no_name() {
    let stream = stream(&url()).await;
    send(&url(), &orders(5, &stream)).await;
    let source = || builder(&url(), &stream).with_hold(FOR_EVER).build().unwrap();
    let (one, other) = (source(), source());
    let parcels = receive(&one, 3).await;
    done(&one, &parcels[..1]).await;
    let held = receive(&other, 2).await;
    soon(one.close()).await;
    assert_eq!(pending(&stream).await, 4, "two were handed back, and two are in hand");
    assert_eq!(consumers(&stream).await.len(), 2, "the other one, and those that wait");
    let again = receive(&other, 2).await;
    assert_eq!(bodies(&again), ["1", "2"]);
    done(&other, &held).await;
    done(&other, &again).await;
    soon(other.close()).await;
    assert_eq!((pending(&stream).await, consumers(&stream).await), (0, vec!["postrider-waiting".to_owned()]));
}

#[tokio::test]
async fn the_names_of_the_dead_are_removed_once_they_have_nothing() {
    let stream = stream(&url()).await;
    let short = || builder(&url(), &stream).with_hold(Duration::from_secs(1)).build().unwrap();
    send(&url(), &orders(2, &stream)).await;
    let dead = short();
    receive(&dead, 2).await;
    drop(dead);
    let name = consumers(&stream).await.remove(0);
    // Somebody else's name is nobody's business here.
    run::<u64>(&url(), &format!("XGROUP CREATECONSUMER {stream} billing theirs")).await;
    let heir = short();
    let parcels = receive(&heir, 2).await;
    done(&heir, &parcels).await;
    let looking = async {
        while consumers(&stream).await.contains(&name) {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = soon(looking) => {}
        received = heir.receive(1) => panic!("{received:?}"),
    }
    assert!(consumers(&stream).await.contains(&"theirs".to_owned()));
}

#[tokio::test]
async fn what_is_done_or_refused_is_removed_where_that_is_asked_for() {
    let stream = stream(&url()).await;
    send(&url(), &orders(3, &stream)).await;
    let source = builder(&url(), &stream).with_delete_when_done().build().unwrap();
    let parcels = receive(&source, 3).await;
    done(&source, &parcels[..1]).await;
    answer(&source, &parcels[1..2], Answer::Refuse).await.remove(0).unwrap();
    assert_eq!(run::<u64>(&url(), &format!("XLEN {stream}")).await, 1);
    answer(&source, &parcels[2..], Answer::AT_ONCE).await.remove(0).unwrap();
    assert_eq!(bodies(&receive(&source, 1).await), ["2"], "what is to come again stays");
}

#[tokio::test]
async fn what_is_refused_is_put_where_it_was_asked_for() {
    let (stream, refused) = (stream(&url()).await, new_stream());
    send(&url(), &orders(2, &stream)).await;
    let source = builder(&url(), &stream).with_refused_to(&refused).build().unwrap();
    let parcels = receive(&source, 2).await;
    answer(&source, &parcels[..1], Answer::Refuse).await.remove(0).unwrap();
    let (put, sent) = (entries(&url(), &refused).await, entries(&url(), &stream).await);
    assert_eq!(put, sent[..1]);
    // Twice is once.
    assert!(is_stale(&answer(&source, &parcels[..1], Answer::Refuse).await[0]));
    assert_eq!(entries(&url(), &refused).await.len(), 1);
    // It cannot be put there: it stays ours.
    run::<()>(&url(), &format!("DEL {refused}")).await;
    run::<u64>(&url(), &format!("LPUSH {refused} a")).await;
    let told = answer(&source, &parcels[1..], Answer::Refuse).await;
    assert!(
        matches!(&told[0], Err(SourceError::Down { source }) if source.to_string().contains("WRONGTYPE")),
        "{told:?}"
    );
    assert_eq!(pending(&stream).await, 1);
    done(&source, &parcels[1..]).await;
}

#[tokio::test]
async fn a_group_must_exist_unless_it_is_to_be_made() {
    let stream = new_stream();
    send(&url(), &orders(2, &stream)).await;
    let source = builder(&url(), &stream).build().unwrap();
    let error = soon(source.receive(1)).await.unwrap_err().to_string();
    let how = format!("XGROUP CREATE {stream} billing 0 MKSTREAM");
    assert!(error.contains(&how), "{error}");
    // At the end: what is there is not for this group.
    let late = builder(&url(), &stream).with_group("late").create_group_at_end().build().unwrap();
    tokio::select! {
        received = late.receive(1) => panic!("{received:?}"),
        () = async {
            let is_there = async || run::<Vec<redis::Value>>(&url(), &format!("XINFO GROUPS {stream}")).await.len() == 1;
            while !is_there().await {}
        } => {}
    }
    // From the beginning: nothing is missed.
    let maker = builder(&url(), &stream).create_group().build().unwrap();
    assert_eq!(bodies(&receive(&maker, 2).await), ["0", "1"]);
    // The first one finds it by itself.
    send(&url(), &[order(7, &stream)]).await;
    assert_eq!(bodies(&receive(&source, 1).await), ["7"]);
    assert_eq!(bodies(&receive(&late, 1).await), ["7"]);
    // With one that is there, nothing is made.
    let again = builder(&url(), &stream).create_group().build().unwrap();
    send(&url(), &[order(8, &stream)]).await;
    assert_eq!(bodies(&receive(&again, 1).await), ["8"]);
}

#[tokio::test]
async fn whatever_others_write_is_received() {
    let stream = stream(&url()).await;
    let mut add = redis::cmd("XADD");
    add.arg(&stream).arg("*").arg(b"\xff\xfe").arg(b"\xff").arg("ce_").arg("").arg("id").arg(b"\xff");
    add.query_async::<String>(&mut connection(&url()).await).await.unwrap();
    let source = builder(&url(), &stream).build().unwrap();
    let parcels = receive(&source, 1).await;
    assert_eq!(parcels[0].incoming.id.as_deref(), Some("\u{fffd}"));
    assert_eq!(parcels[0].incoming.body, "");
    done(&source, &parcels).await;
}

#[tokio::test]
async fn it_comes_again_for_ever_unless_the_stream_expires() {
    let stream = stream(&url()).await;
    let source = builder(&url(), &stream).build().unwrap();
    assert_eq!(soon(source.redelivers()).await.unwrap().within, None);
    run::<u64>(&url(), &format!("PEXPIRE {stream} 3600000")).await;
    let Redelivers { within, because } = soon(source.redelivers()).await.unwrap();
    assert!(within.is_some_and(|within| within <= Duration::from_secs(3_600)), "{within:?}");
    assert!(because.starts_with(&format!("PTTL {stream} = ")), "{because}");
}

#[test]
fn settings_that_make_no_sense_are_refused_in_words() {
    let new = || RedisSource::builder("redis://ann:s3cret@127.0.0.1:6379", "orders");
    let refused = |builder: RedisSourceBuilder| builder.build().unwrap_err().to_string();
    let told = [
        refused(RedisSource::builder("http://ann:s3cret@host", "orders")),
        refused(RedisSource::builder("redis://ann:s3cret@host", "")),
        refused(new().with_group("")),
        refused(new().with_consumer("")),
        refused(new().with_consumer("postrider-waiting")),
        refused(new().with_refused_to("orders")),
        refused(new().with_hold(Duration::from_millis(999))),
        refused(new().with_hold(FOR_EVER * 2)),
        refused(new().with_answer_timeout(Duration::ZERO)),
        refused(new().with_root_certificates("/nowhere")),
    ];
    insta::assert_snapshot!("source_settings", told.join("\n"));
    let shown = format!("{:?} {:?} {}", new(), new().build().unwrap(), told.join("\n"));
    assert!(!shown.contains("s3cret"), "{shown}");
    RedisSource::connect("redis://127.0.0.1:6379", "orders").unwrap();
}
