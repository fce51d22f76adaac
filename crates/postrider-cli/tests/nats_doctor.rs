//! `postrider doctor` on a NATS destination: each problem is injected, found, fixed by the printed command, and gone.

#![cfg(all(unix, feature = "nats"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use postrider_testkit::{Kind, shared};
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
};
use support::{
    doctor::{Diagnosis, doctor},
    program::{postrider, run},
};
use tempfile::{TempDir, tempdir};
use uuid::Uuid;

/// A route to a subject of its own, on the shared server.
struct Fixture {
    folder: TempDir,
    stream: String,
}

impl Fixture {
    fn open() -> Self {
        let fixture = Self { folder: tempdir().unwrap(), stream: format!("S{}", Uuid::new_v4().simple()) };
        let text = format!(
            "source = \"/shop\"\n[databases.shop]\nurl = \"shop.db\"\n[destinations.events]\nkind = \"nats\"\nurl = \"{}\"\n\
             [[routes]]\nqueue = \"orders\"\nto = [{{ destination = \"events\", address = \"{}.{{type}}\" }}]\n",
            shared::url(Kind::Nats),
            fixture.stream
        );
        fs::write(fixture.folder.path().join("postrider.toml"), text).unwrap();
        let here = |arguments: &[&str]| {
            let ended = run(postrider(arguments).current_dir(fixture.folder.path()));
            assert_eq!(ended.code, Some(0), "{ended:?}");
        };
        here(&["migrate", "up", "--db", "shop.db"]);
        // The pending message supplies the value of the placeholder in the address.
        here(&["publish", "orders", "--type", "placed", "--json-body", "17", "--db", "shop.db"]);
        fixture
    }

    /// A single server has no second replica, and its sync interval is not visible.
    fn diagnose(&self) -> Diagnosis {
        let arguments = ["--skip", "single_replica", "--skip", "sync_interval"];
        Diagnosis::of(doctor(&arguments).current_dir(self.folder.path()))
    }

    /// Sends the request that the program `nats` would send to JetStream.
    fn request(&self, verb: &str, body: &Value) -> Value {
        let (host, body) = (shared::url(Kind::Nats), body.to_string());
        let mut server = TcpStream::connect(host.strip_prefix("nats://").unwrap()).unwrap();
        let request = format!(
            "CONNECT {{\"verbose\":false}}\r\nSUB reply 1\r\nPUB $JS.API.STREAM.{verb}.{} reply {}\r\n{body}\r\n",
            self.stream,
            body.len()
        );
        server.write_all(request.as_bytes()).unwrap();
        let mut lines = BufReader::new(server);
        loop {
            let mut line = String::new();
            lines.read_line(&mut line).unwrap();
            if let Some(size) = line.strip_prefix("MSG ").and_then(|head| head.trim_end().rsplit(' ').next())
            {
                let mut reply = vec![0; size.parse().unwrap()];
                lines.read_exact(&mut reply).unwrap();
                let reply: Value = serde_json::from_slice(&reply).unwrap();
                assert_eq!(reply["error"], Value::Null, "{reply}");
                return reply;
            }
        }
    }

    fn create_stream(&self, changes: &[(&str, Value)]) {
        let subject = format!("{}.>", self.stream);
        let mut config = json!({ "name": self.stream, "subjects": [subject], "storage": "file", "duplicate_window": 120_000_000_000_u64 });
        changes.iter().for_each(|(name, value)| config[name] = value.clone());
        self.request("CREATE", &config);
    }

    /// Applies a printed `nats` command, flag by flag, because the program is not installed in every environment.
    fn apply_fix(&self, fix: &str) {
        let words: Vec<_> = fix.split_whitespace().map(|word| word.trim_matches('\'')).collect();
        let ["nats", "stream", verb, name, flags @ ..] = &words[..] else { panic!("{fix}") };
        assert_eq!(name.to_lowercase(), self.stream.to_lowercase());
        let mut config = match *verb {
            "edit" => self.request("INFO", &json!({}))["config"].clone(),
            _ => json!({ "name": self.stream }),
        };
        let mut flags = flags.iter().copied();
        while let Some(flag) = flags.next() {
            match flag.split_once('=').unwrap_or((flag, "")) {
                ("--subjects", _) => config["subjects"] = json!([flags.next().unwrap()]),
                ("--storage", _) => config["storage"] = json!(flags.next().unwrap()),
                ("--discard", _) => config["discard"] = json!(flags.next().unwrap()),
                ("--max-age", "0") => config["max_age"] = json!(0),
                ("--max-msgs-per-subject", "-1") => config["max_msgs_per_subject"] = json!(-1),
                ("--ack", _) => config["no_ack"] = json!(false),
                ("--force" | "--defaults", _) => {}
                (flag, value) => panic!("{flag} {value} in {fix}"),
            }
        }
        self.request(if *verb == "edit" { "UPDATE" } else { "CREATE" }, &config);
    }

    fn assert_fixed_by(&self, code: &str, fix: &str) {
        let diagnosis = self.diagnose();
        assert_eq!(diagnosis.fix(code), fix.replace("STREAM", &self.stream));
        self.apply_fix(diagnosis.fix(code));
        self.diagnose().is_silent();
    }
}

#[test]
fn healthy_stream_has_no_findings() {
    let fixture = Fixture::open();
    fixture.create_stream(&[]);
    fixture.diagnose().is_silent();
}

#[test]
fn subject_without_stream_is_found_and_fixed() {
    let fixture = Fixture::open();
    let name = fixture.stream.to_uppercase();
    fixture.assert_fixed_by(
        "no_stream",
        &format!("nats stream add {name} --subjects 'STREAM.placed' --storage file --discard new --defaults"),
    );
}

#[test]
fn stream_that_discards_old_messages_is_found_and_fixed() {
    let fixture = Fixture::open();
    fixture.create_stream(&[("max_msgs", json!(1000)), ("discard", json!("old"))]);
    fixture.assert_fixed_by("discard_old", "nats stream edit STREAM --discard new --force");
}

#[test]
fn stream_with_max_age_is_found_and_fixed() {
    let fixture = Fixture::open();
    fixture.create_stream(&[("max_age", json!(3_600_000_000_000_u64))]);
    fixture.assert_fixed_by("max_age", "nats stream edit STREAM --max-age=0 --force");
}

#[test]
fn stream_without_acks_is_found_and_fixed() {
    let fixture = Fixture::open();
    fixture.create_stream(&[("no_ack", json!(true))]);
    fixture.assert_fixed_by("no_ack", "nats stream edit STREAM --ack --force");
}
