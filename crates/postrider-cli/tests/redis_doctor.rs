//! `postrider doctor` on a Redis destination: each problem is injected, found, fixed by the printed command, and gone.

#![cfg(all(unix, feature = "redis"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use postrider_testkit::{Kind, broker::Redis, shared};
use std::{
    fs,
    io::Write,
    process::{Command, Stdio},
};
use support::{
    doctor::{Diagnosis, doctor},
    program::{postrider, run},
};
use tempfile::{TempDir, tempdir};

/// A durable server of its own, and a route to its stream `orders`.
struct Fixture {
    server: Redis,
    folder: TempDir,
}

impl Fixture {
    async fn open() -> Self {
        let server = Redis::start_with(&["--appendfsync", "always"]).await;
        let fixture = Self { server, folder: tempdir().unwrap() };
        let text = format!(
            "source = \"/shop\"\n[databases.shop]\nurl = \"shop.db\"\n[destinations.events]\nkind = \"redis\"\nurl = \"{}\"\n\
             [[routes]]\nqueue = \"orders\"\nto = [{{ destination = \"events\", address = \"orders\" }}]\n",
            fixture.server.url()
        );
        fs::write(fixture.folder.path().join("postrider.toml"), text).unwrap();
        let made = run(postrider(&["migrate", "up", "--db", "shop.db"]).current_dir(fixture.folder.path()));
        assert_eq!(made.code, Some(0), "{made:?}");
        fixture
    }

    fn diagnose(&self) -> Diagnosis {
        Diagnosis::of(doctor(&[]).current_dir(self.folder.path()))
    }

    /// Runs commands as a user types them.
    fn type_in(&self, lines: &str) {
        let mut cli = Command::new(shared::programs(Kind::Redis).join("redis-cli"));
        cli.args(["-e", "-u", self.server.url()]).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = cli.spawn().unwrap();
        child.stdin.take().unwrap().write_all(format!("{lines}\n").as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "{lines}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn durable_server_has_no_findings() {
    Fixture::open().await.diagnose().is_silent();
}

/// Injects a problem with a command.
macro_rules! injected {
    ($($name:ident: $injection:expr, $code:expr, $fix:expr;)+) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            let fixture = Fixture::open().await;
            fixture.type_in($injection);
            let diagnosis = fixture.diagnose();
            assert_eq!(diagnosis.fix($code), $fix);
            assert_eq!(diagnosis.finding($code)["target"], "destination events");
            fixture.type_in(diagnosis.fix($code));
            fixture.diagnose().is_silent();
        }
    )+};
}

injected! {
    expiring_stream_is_found_and_fixed:
        "XADD orders * id 1\nEXPIRE orders 3600", "expires", "PERSIST orders";
    key_of_wrong_type_is_found_and_fixed:
        "SET orders 17", "wrong_type", "RENAMENX orders orders.before";
    evicting_server_is_found_and_fixed:
        "CONFIG SET maxmemory 100mb\nCONFIG SET maxmemory-policy allkeys-lru", "eviction",
        "CONFIG SET maxmemory-policy noeviction";
    server_without_fsync_is_found_and_fixed:
        "CONFIG SET appendfsync everysec", "fsync", "CONFIG SET appendfsync always";
    server_without_append_only_file_is_found_and_fixed:
        "CONFIG SET appendonly no", "no_append_only_file", "CONFIG SET appendonly yes\nCONFIG SET appendfsync always";
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_server_is_found_and_started() {
    let mut fixture = Fixture::open().await;
    fixture.server.kill();
    let diagnosis = fixture.diagnose();
    let fix = format!("start the server at {}, or correct the url in postrider.toml:", fixture.server.url());
    assert!(diagnosis.fix("unreachable").starts_with(&fix), "{}", diagnosis.fix("unreachable"));
    fixture.server.restart().await;
    fixture.diagnose().is_silent();
}

/// A deduplication record must outlive the redelivery window of its message.
#[tokio::test(flavor = "multi_thread")]
async fn short_deduplication_window_is_found_and_fixed() {
    let fixture = Fixture::open().await;
    fixture.type_in("xgroup create payments postrider 0 mkstream");
    let file = fixture.folder.path().join("postrider.toml");
    let routes = fs::read_to_string(&file).unwrap();
    let consumer = |keys: &str| {
        let source =
            format!("{{ kind = \"redis\", url = \"{}\", stream = \"payments\" }}", fixture.server.url());
        let text = format!(
            "{routes}[[consumers]]\nname = \"billing\"\nsource = {source}\nto = \"payments\"\n{keys}"
        );
        fs::write(&file, text).unwrap();
    };
    consumer("");
    let unbounded = fixture.diagnose();
    let fix = "write redelivery_window = \"14d\" below the [[consumers]] in postrider.toml:10";
    assert_eq!(unbounded.fix("unbounded_redelivery"), fix);
    assert_eq!(unbounded.finding("unbounded_redelivery")["target"], "consumer billing");

    consumer("redelivery_window = \"14d\"\nkeep_deduplication_records_for = \"7d\"\n");
    let fix = "write keep_deduplication_records_for = \"15d\" below the [[consumers]] in postrider.toml:10";
    assert_eq!(fixture.diagnose().fix("deduplication_window_too_short"), fix);
    consumer("redelivery_window = \"14d\"\nkeep_deduplication_records_for = \"15d\"\n");
    fixture.diagnose().is_silent();
}
