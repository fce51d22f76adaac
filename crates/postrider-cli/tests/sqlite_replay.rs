//! `postrider replay` on SQLite.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use nix::sys::signal::Signal;
use postrider::{
    OrderingKey, QueuePolicy,
    inspect::{Inspect, ListRequest, StateFilter},
    schema::Schema,
};
use std::{fs, time::Duration};
use support::{
    program::{AtWork, CompletionOutcome, postrider, run},
    shop::{Shop, id, order, queue, timeless},
    webhooks::Webhooks,
};

/// A database with this many kept messages.
async fn kept(count: u128) -> Shop {
    let shop = Shop::open().await;
    let keeping = QueuePolicy::default().with_keep_for(Duration::from_secs(3600));
    shop.store.declare(&queue("orders"), &keeping).await.unwrap();
    shop.stage((1..=count).map(|number| {
        let kind = if number % 2 == 0 { "order.paid" } else { "order.placed" };
        order(number).event_type(kind).key(format!("order-{number}"))
    }))
    .await;
    assert_eq!(shop.deliver("orders").await, usize::try_from(count).unwrap());
    shop
}

fn replay(shop: &Shop, arguments: &[&str]) -> CompletionOutcome {
    shop.run(&[&["replay", "--queue", "orders", "--why", "gap"], arguments].concat())
}

async fn count(shop: &Shop, name: &str, state: StateFilter) -> usize {
    let request = ListRequest::new(queue(name), state).with_limit(1000);
    shop.store.list(&request).await.unwrap().entries.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replay_moves_kept_messages_back_into_their_queue() {
    let shop = kept(5).await;
    let dry = replay(&shop, &["--dry-run"]);
    assert_eq!((dry.code, dry.out.as_str()), (Some(0), "5 would be replayed\n"), "{dry:?}");
    let unconfirmed = replay(&shop, &[]);
    assert_eq!((unconfirmed.code, unconfirmed.out.as_str()), (Some(2), ""), "{unconfirmed:?}");
    for (narrowed, matched) in [
        (["--type", "order.paid"], 2),
        (["--key", "order-3"], 1),
        (["--since", "1h"], 5),
        (["--until", "1h"], 0),
        (["--since", "2026-10-14T12:00:00Z"], 5),
    ] {
        let dry = replay(&shop, &[&narrowed[..], &["--dry-run", "--json"]].concat());
        assert_eq!(dry.report()["matched"], matched, "{narrowed:?}: {dry:?}");
    }
    assert!(shop.store.audit(10).await.unwrap().is_empty());

    let done = replay(&shop, &["--type", "order.placed", "--yes", "--json"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    insta::assert_snapshot!("json", timeless(&done.out));
    assert_eq!(
        (count(&shop, "orders", StateFilter::Ready).await, count(&shop, "orders", StateFilter::Done).await),
        (3, 2)
    );
    let rows = shop.store.audit(10).await.unwrap();
    assert_eq!((rows.len(), rows[0].verb.as_str(), rows[0].ids.len()), (1, "replay", 3));
    // A message that is delivered again is kept again, and a replay of earlier messages excludes it.
    assert_eq!(shop.deliver("orders").await, 3);
    let until = done.report()["until"].as_str().unwrap().to_owned();
    assert_eq!(replay(&shop, &["--dry-run", "--json", "--until", &until]).report()["matched"], 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replay_copies_to_another_queue_or_under_new_ids() {
    let shop = kept(3).await;
    let copied = replay(&shop, &["--to-queue", "projections", "--yes"]);
    assert_eq!((copied.code, copied.out.as_str()), (Some(0), "3 replayed\n"), "{copied:?}");
    let again = replay(&shop, &["--to-queue", "projections", "--yes"]);
    assert_eq!(
        (again.code, again.out.as_str()),
        (Some(0), "0 replayed\n"),
        "the queue has them already: {again:?}"
    );
    assert_eq!(count(&shop, "projections", StateFilter::Ready).await, 3);
    assert!(shop.store.get(&queue("projections"), id(2)).await.unwrap().is_some());

    let renewed = replay(&shop, &["--new-ids", "--key", "order-2", "--yes"]);
    assert_eq!((renewed.code, renewed.out.as_str()), (Some(0), "1 replayed\n"), "{renewed:?}");
    let ready =
        shop.store.list(&ListRequest::new(queue("orders"), StateFilter::Ready)).await.unwrap().entries;
    assert_eq!(ready.len(), 1);
    assert_ne!(ready[0].message.id(), Some(id(2)));
    assert_eq!(ready[0].message.headers().get("replay-of"), Some(id(2).to_string().as_str()));
    assert_eq!(ready[0].message.key().map(OrderingKey::as_str), Some("order-2"));
    assert_eq!(count(&shop, "orders", StateFilter::Done).await, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_replay_prints_how_to_continue() {
    let shop = kept(5).await;
    let flags: [&[&str]; 2] = [&["--to-queue", "projections"], &[]];
    for to in flags {
        let arguments = [
            &["replay", "--queue", "orders", "--why", "gap", "--yes", "--rate", "2/h", "--db", "shop.db"],
            to,
        ];
        let at_work = AtWork::start(postrider(&arguments.concat()).current_dir(shop.folder.path()));
        let before = shop.store.audit(100).await.unwrap().len();
        while shop.store.audit(100).await.unwrap().len() == before {
            tokio::task::yield_now().await;
        }
        at_work.signal(Signal::SIGINT);
        let ended = at_work.end();
        assert_eq!(ended.code, Some(130), "{ended:?}");
        assert!(
            ended.err.contains("1 of 5 replayed. To continue, run the command again with --until "),
            "{ended:?}"
        );
        let advice = ended.err.lines().find_map(|line| Some(line.split_once("again with ")?.1));
        let advice: Vec<_> = advice.unwrap().split(' ').collect();
        assert_eq!(advice.contains(&"--after"), !to.is_empty(), "{advice:?}");
        let resumed = replay(&shop, &[to, &advice, &["--yes"]].concat());
        assert_eq!((resumed.code, resumed.out.as_str()), (Some(0), "4 replayed\n"), "{resumed:?}");
    }
    assert_eq!(
        (
            count(&shop, "projections", StateFilter::Ready).await,
            count(&shop, "orders", StateFilter::Ready).await
        ),
        (5, 5)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replay_to_destination_uses_its_transport() {
    let shop = kept(3).await;
    let mut hooks = Webhooks::listen().await;
    let toml = format!(
        "source = \"/shop\"\n[databases.shop]\nurl = \"sqlite:shop.db\"\n[destinations.hooks]\nkind = \"webhook\"\n\
         url = \"http://{}/hooks\"\nallow_http = true\nallow_networks = [\"127.0.0.1/32\"]\n\
         [[routes]]\ndatabase = \"shop\"\nqueue = \"orders\"\nto = [{{ destination = \"hooks\", address = \"{{type}}\" }}]\n",
        hooks.address
    );
    fs::write(shop.folder.path().join("postrider.toml"), toml).unwrap();
    let sent = replay(&shop, &["--to", "hooks", "--yes", "--json"]);
    assert_eq!((sent.code, &sent.report()["replayed"]), (Some(0), &3.into()), "{sent:?}");
    let arrived = hooks.next(3).await;
    assert_eq!(
        arrived,
        ["/hooks/order.paid \"2\"", "/hooks/order.placed \"1\"", "/hooks/order.placed \"3\""]
    );
    assert_eq!(count(&shop, "orders", StateFilter::Done).await, 3);
    let rows = shop.store.audit(10).await.unwrap();
    assert_eq!((rows.len(), rows[0].ids.len()), (1, 3));

    let unknown = replay(&shop, &["--to", "nowhere", "--yes"]);
    assert_eq!((unknown.code, unknown.out.as_str()), (Some(2), ""), "{unknown:?}");
    insta::assert_snapshot!("no_destination", unknown.err);
    let nothing = replay(&shop, &["--to", "hooks", "--type", "no.such", "--yes"]);
    assert_eq!((nothing.code, nothing.out.as_str()), (Some(0), "0 replayed\n"), "{nothing:?}");
}

#[test]
fn invalid_arguments_exit_with_2() {
    for (arguments, words) in [
        (&["--rate", "fast"][..], "write 100/s"),
        (&["--after", "17"], "give the one that the replay printed"),
        (&["--since", "soon"], "2026-10-14T12:00:00Z"),
        (&["--to", "a", "--to-queue", "b"], "cannot be used with"),
    ] {
        let all = [&["replay", "--queue", "orders", "--why", "gap", "--db", "shop.db"], arguments].concat();
        let ended = run(&mut postrider(&all));
        assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""), "{arguments:?}: {ended:?}");
        assert!(ended.err.contains(words), "{arguments:?}: {ended:?}");
    }
}
