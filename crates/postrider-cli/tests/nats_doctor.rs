//! `postrider doctor` on a destination of NATS: each problem is planted, found, mended by what was printed, and gone.

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

/// A route to a subject of its own on the server that all tests share.
struct Ward {
    folder: TempDir,
    stream: String,
}

impl Ward {
    fn open() -> Self {
        let ward = Self { folder: tempdir().unwrap(), stream: format!("S{}", Uuid::new_v4().simple()) };
        let text = format!(
            "source = \"/shop\"\n[databases.shop]\nurl = \"shop.db\"\n[destinations.events]\nkind = \"nats\"\nurl = \"{}\"\n\
             [[routes]]\nqueue = \"orders\"\nto = [{{ destination = \"events\", address = \"{}.{{type}}\" }}]\n",
            shared::url(Kind::Nats),
            ward.stream
        );
        fs::write(ward.folder.path().join("postrider.toml"), text).unwrap();
        let here = |arguments: &[&str]| {
            let ended = run(postrider(arguments).current_dir(ward.folder.path()));
            assert_eq!(ended.code, Some(0), "{ended:?}");
        };
        here(&["migrate", "up", "--db", "shop.db"]);
        // What waits tells what stands in the hole of the address.
        here(&["publish", "orders", "--type", "placed", "--json-body", "17", "--db", "shop.db"]);
        ward
    }

    /// On a single server there is no second replica, and how it syncs cannot be seen.
    fn diagnose(&self) -> Diagnosis {
        let arguments = ["--skip", "single_replica", "--skip", "sync_interval"];
        Diagnosis::of(doctor(&arguments).current_dir(self.folder.path()))
    }

    /// Asks JetStream what the program `nats` would.
    fn ask(&self, verb: &str, body: &Value) -> Value {
        let (host, body) = (shared::url(Kind::Nats), body.to_string());
        let mut server = TcpStream::connect(host.strip_prefix("nats://").unwrap()).unwrap();
        let request = format!(
            "CONNECT {{\"verbose\":false}}\r\nSUB answer 1\r\nPUB $JS.API.STREAM.{verb}.{} answer {}\r\n{body}\r\n",
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
                let mut answer = vec![0; size.parse().unwrap()];
                lines.read_exact(&mut answer).unwrap();
                let answer: Value = serde_json::from_slice(&answer).unwrap();
                assert_eq!(answer["error"], Value::Null, "{answer}");
                return answer;
            }
        }
    }

    fn make(&self, changes: &[(&str, Value)]) {
        let subject = format!("{}.>", self.stream);
        let mut config = json!({ "name": self.stream, "subjects": [subject], "storage": "file", "duplicate_window": 120_000_000_000_u64 });
        changes.iter().for_each(|(name, value)| config[name] = value.clone());
        self.ask("CREATE", &config);
    }

    /// The program is not there in every environment: what it would be told is read from what was printed, flag by flag.
    fn mend(&self, fix: &str) {
        let words: Vec<_> = fix.split_whitespace().map(|word| word.trim_matches('\'')).collect();
        let ["nats", "stream", verb, name, flags @ ..] = &words[..] else { panic!("{fix}") };
        assert_eq!(name.to_lowercase(), self.stream.to_lowercase());
        let mut config = match *verb {
            "edit" => self.ask("INFO", &json!({}))["config"].clone(),
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
        self.ask(if *verb == "edit" { "UPDATE" } else { "CREATE" }, &config);
    }

    fn cures(&self, code: &str, fix: &str) {
        let diagnosis = self.diagnose();
        assert_eq!(diagnosis.fix(code), fix.replace("STREAM", &self.stream));
        self.mend(diagnosis.fix(code));
        self.diagnose().is_silent();
    }
}

#[test]
fn a_stream_that_keeps_what_it_is_given_is_passed_in_silence() {
    let ward = Ward::open();
    ward.make(&[]);
    ward.diagnose().is_silent();
}

#[test]
fn a_subject_that_nobody_holds_is_found_and_mended() {
    let ward = Ward::open();
    let name = ward.stream.to_uppercase();
    ward.cures(
        "no_stream",
        &format!("nats stream add {name} --subjects 'STREAM.placed' --storage file --discard new --defaults"),
    );
}

#[test]
fn a_stream_that_makes_room_is_found_and_mended() {
    let ward = Ward::open();
    ward.make(&[("max_msgs", json!(1000)), ("discard", json!("old"))]);
    ward.cures("discard_old", "nats stream edit STREAM --discard new --force");
}

#[test]
fn a_stream_that_forgets_is_found_and_mended() {
    let ward = Ward::open();
    ward.make(&[("max_age", json!(3_600_000_000_000_u64))]);
    ward.cures("max_age", "nats stream edit STREAM --max-age=0 --force");
}

#[test]
fn a_stream_that_never_acknowledges_is_found_and_mended() {
    let ward = Ward::open();
    ward.make(&[("no_ack", json!(true))]);
    ward.cures("no_ack", "nats stream edit STREAM --ack --force");
}
