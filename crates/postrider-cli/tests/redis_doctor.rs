//! `postrider doctor` on a destination of Redis: each problem is planted, found, mended by what was printed, and gone.

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

/// A server of its own that keeps what it is given, and a route to its stream `orders`.
struct Ward {
    server: Redis,
    folder: TempDir,
}

impl Ward {
    async fn open() -> Self {
        let server = Redis::start_with(&["--appendfsync", "always"]).await;
        let ward = Self { server, folder: tempdir().unwrap() };
        let text = format!(
            "source = \"/shop\"\n[databases.shop]\nurl = \"shop.db\"\n[destinations.events]\nkind = \"redis\"\nurl = \"{}\"\n\
             [[routes]]\nqueue = \"orders\"\nto = [{{ destination = \"events\", address = \"orders\" }}]\n",
            ward.server.url()
        );
        fs::write(ward.folder.path().join("postrider.toml"), text).unwrap();
        let made = run(postrider(&["migrate", "up", "--db", "shop.db"]).current_dir(ward.folder.path()));
        assert_eq!(made.code, Some(0), "{made:?}");
        ward
    }

    fn diagnose(&self) -> Diagnosis {
        Diagnosis::of(doctor(&[]).current_dir(self.folder.path()))
    }

    /// As somebody types it.
    fn type_in(&self, lines: &str) {
        let mut cli = Command::new(shared::programs(Kind::Redis).join("redis-cli"));
        cli.args(["-e", "-u", self.server.url()]).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = cli.spawn().unwrap();
        child.stdin.take().unwrap().write_all(format!("{lines}\n").as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "{lines}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_keeps_what_it_is_given_is_passed_in_silence() {
    Ward::open().await.diagnose().is_silent();
}

/// Plants a problem with a command.
macro_rules! planted {
    ($($name:ident: $plant:expr, $code:expr, $fix:expr;)+) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            let ward = Ward::open().await;
            ward.type_in($plant);
            let diagnosis = ward.diagnose();
            assert_eq!(diagnosis.fix($code), $fix);
            assert_eq!(diagnosis.finding($code)["place"], "destination events");
            ward.type_in(diagnosis.fix($code));
            ward.diagnose().is_silent();
        }
    )+};
}

planted! {
    a_stream_that_expires_is_found_and_mended:
        "XADD orders * id 1\nEXPIRE orders 3600", "expires", "PERSIST orders";
    a_name_that_is_taken_is_found_and_mended:
        "SET orders 17", "wrong_type", "RENAMENX orders orders.before";
    a_server_that_evicts_is_found_and_mended:
        "CONFIG SET maxmemory 100mb\nCONFIG SET maxmemory-policy allkeys-lru", "eviction",
        "CONFIG SET maxmemory-policy noeviction";
    a_server_that_flushes_late_is_found_and_mended:
        "CONFIG SET appendfsync everysec", "fsync", "CONFIG SET appendfsync always";
    a_server_that_writes_no_log_is_found_and_mended:
        "CONFIG SET appendonly no", "no_log", "CONFIG SET appendonly yes\nCONFIG SET appendfsync always";
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_away_is_told_and_started() {
    let mut ward = Ward::open().await;
    ward.server.kill();
    let diagnosis = ward.diagnose();
    let fix =
        format!("start what is to listen at {}, or correct the url in postrider.toml:", ward.server.url());
    assert!(diagnosis.fix("unreachable").starts_with(&fix), "{}", diagnosis.fix("unreachable"));
    ward.server.restart().await;
    ward.diagnose().is_silent();
}

/// The arithmetic of the inbox: a mark is to live longer than its message can come again.
#[tokio::test(flavor = "multi_thread")]
async fn marks_that_are_forgotten_too_soon_are_found_and_mended() {
    let ward = Ward::open().await;
    ward.type_in("xgroup create payments postrider 0 mkstream");
    let file = ward.folder.path().join("postrider.toml");
    let routes = fs::read_to_string(&file).unwrap();
    let consumer = |keys: &str| {
        let source =
            format!("{{ kind = \"redis\", url = \"{}\", stream = \"payments\" }}", ward.server.url());
        let text = format!(
            "{routes}[[consumers]]\nname = \"billing\"\nsource = {source}\nto = \"payments\"\n{keys}"
        );
        fs::write(&file, text).unwrap();
    };
    consumer("");
    let for_ever = ward.diagnose();
    let fix = "write redelivered_within = \"14d\" below the [[consumers]] in postrider.toml:10";
    assert_eq!(for_ever.fix("redelivered_for_ever"), fix);
    assert_eq!(for_ever.finding("redelivered_for_ever")["place"], "consumer billing");

    consumer("redelivered_within = \"14d\"\nkeep_marks_for = \"7d\"\n");
    let fix = "write keep_marks_for = \"15d\" below the [[consumers]] in postrider.toml:10";
    assert_eq!(ward.diagnose().fix("marks_too_short"), fix);
    consumer("redelivered_within = \"14d\"\nkeep_marks_for = \"15d\"\n");
    ward.diagnose().is_silent();
}
