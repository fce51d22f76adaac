//! `postrider config`, run as somebody runs it.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::{fs, process::Command};
use support::program::{Ended, postrider, run};
use tempfile::{TempDir, tempdir};

const GOOD: &str = r#"source = "/shop"

[databases.shop]
url_env = "SHOP_DB"
behind_pooler = true
listen_url_env = "SHOP_SERVER"

[destinations.hooks]
kind = "webhook"
url_env = "HOOKS_URL"
secret_env = "HOOKS_SECRET"

[[routes]]
queue = "orders"
to = [{ destination = "hooks", address = "{type}" }]
ordered = "block"
keep_for = "7d"

[log]
format = "json"
"#;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn config(folder: &TempDir, arguments: &[&str]) -> Command {
    let mut command = postrider(&[&["config"], arguments].concat());
    command.current_dir(folder.path());
    for variable in ["POSTRIDER_CONFIG", "POSTRIDER_HTTP_LISTEN", "POSTRIDER_LOG_FORMAT"] {
        command.env_remove(variable);
    }
    command.env("SHOP_DB", "postgres://me:secret@db/shop");
    command.env("SHOP_SERVER", "postgres://me:secret@server:5433/shop");
    command.env("HOOKS_URL", "https://me:secret@shop.example/hooks");
    command.env("HOOKS_SECRET", SECRET);
    command
}

fn written(text: &str) -> TempDir {
    let folder = tempdir().unwrap();
    fs::write(folder.path().join("postrider.toml"), text).unwrap();
    folder
}

/// What `config check` has to say about a file, which ends with 1.
fn faults(text: &str) -> String {
    faults_with(text, &[])
}

/// The same with these variables.
fn faults_with(text: &str, variables: &[(&str, &str)]) -> String {
    let folder = written(text);
    let ended = run(config(&folder, &["check"]).envs(variables.iter().copied()));
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{ended:?}");
    assert!(!ended.err.contains("secret@"), "{ended:?}");
    ended.err
}

fn well(ended: Ended) -> String {
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
    ended.out
}

#[test]
fn what_init_writes_is_right_and_is_never_written_over() {
    let folder = tempdir().unwrap();
    let init = || run(&mut config(&folder, &["init"]));
    assert_eq!(init().code, Some(0));
    let checked = run(&mut config(&folder, &["check"]));
    assert_eq!(checked.code, Some(0), "{checked:?}");
    assert_eq!(checked.err, "postrider.toml: ok: 1 database, 1 destination, 1 route\n");
    let again = init();
    assert_eq!(again.code, Some(1));
    insta::assert_snapshot!(again.err);
}

/// Every line that is commented out in it can be used as it stands.
#[test]
fn what_init_leaves_to_be_chosen_is_right_too() {
    let folder = tempdir().unwrap();
    assert_eq!(run(&mut config(&folder, &["init"])).code, Some(0));
    let file = folder.path().join("postrider.toml");
    let mut text = fs::read_to_string(&file).unwrap();
    if !cfg!(feature = "otlp") {
        text.truncate(text.find("# [otlp]").unwrap());
    }
    let chosen: Vec<_> = text
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(rest) if rest.starts_with('[') || rest.contains(" = ") && !rest.starts_with("A URL") => rest,
            _ => line,
        })
        .collect();
    fs::write(&file, chosen.join("\n").replace("\"nats\"", "\"webhook\"")).unwrap();
    let mut check = config(&folder, &["check"]);
    check
        .env("HOOKS_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
        .env("NATS_URL", "https://shop.example/");
    let checked = run(&mut check);
    assert_eq!(
        checked.err,
        "postrider.toml: ok: 1 database, 3 destinations, 1 route, 1 consumer, 1 resolver\n"
    );
}

#[test]
fn every_problem_is_told_with_its_line_and_what_to_write() {
    insta::assert_snapshot!(
        "unknown_keys",
        faults(
            "source = \"/shop\"\nlogs = 1\n[databases.shop]\nurl = \"shop.db\"\n[destinations.lines]\nkind = \"stdout\"\nurl = \"x\"\n\
             [[routes]]\nqueue = \"orders\"\nto = [{ destination = \"lines\", adress = \"x\" }]\nmax_atempts = 3\nzebra = 1\n"
        )
    );
    insta::assert_snapshot!(
        "wrong_types",
        faults(
            "source = 17\n[databases]\nshop = \"shop.db\"\n[destinations.lines]\nkind = \"stdot\"\n[[routes]]\nqueue = \"orders\"\n\
             to = \"lines\"\nconcurrency = 0\nmax_attempts = \"ten\"\nkeep_for = \"a week\"\nordered = true\n[http]\nlisten = \"here\"\n"
        )
    );
    insta::assert_snapshot!(
        "missing_references",
        faults(
            "source = \"/shop\"\n[databases.shop]\nurl_env = \"NOT_SET\"\n[databases.till]\nurl_file = \"/no/such/file\"\n\
             [databases.bar]\nurl = \"shop.db\"\nurl_env = \"SHOP_DB\"\n[databases.bank]\n\
             [destinations.events]\nkind = \"webhook\"\n\
             [[routes]]\ndatabase = \"shp\"\nqueue = \"orders\"\nto = [{ destination = \"event\", address = \"{tpye}\" }]\n\
             [[routes]]\nqueue = \"orders\"\nto = []\n"
        )
    );
    insta::assert_snapshot!(
        "twice",
        faults(
            "source = \"/shop\"\n[databases.shop]\nurl = \"shop.db\"\n[destinations.lines]\nkind = \"stdout\"\n\
             [[routes]]\nqueue = \"orders\"\nto = [{ destination = \"lines\", address = \"a\" }, { destination = \"lines\", address = \"b\" }]\n\
             [[routes]]\nqueue = \"orders\"\nto = [{ destination = \"lines\", address = \"a\" }]\n"
        )
    );
    insta::assert_snapshot!(
        "consumers_and_follow_ups",
        faults(
            "source = \"/shop\"\n[databases.shop]\nurl = \"shop.db\"\n\
             [[consumers]]\nname = \"billing\"\nto = \"my orders\"\nsource = { kind = \"webhok\" }\n\
             [[consumers]]\nname = \"mail\"\nto = \"orders\"\nsource = { kind = \"webhook\", queue = \"orders\" }\n\
             [[consumers]]\nname = \"mail\"\nto = \"orders\"\n\
             [[consumers]]\nname = \"mail\"\nto = \"orders\"\nsource = { kind = \"webhook\", path = \"/a\", listen = \"here\" }\n\
             [[follow_ups]]\nresolver = \"payments\"\noperations = []\naddress = \"{value}\"\ndone_on = 404\n"
        )
    );
    insta::assert_snapshot!(
        "no_sense_in_consumers",
        faults(
            "source = \"/shop\"\n[databases.shop]\nurl = \"shop.db\"\n\
             [[consumers]]\nname = \"mail\"\nto = \"orders\"\nsource = { kind = \"webhook\", path = \"/a\", listen = \"here\" }\n\
             [[follow_ups]]\nresolver = \"payments\"\noperations = [\"erase\"]\nurl = \"payments.example\"\ndone_on = [200]\n"
        )
    );
    insta::assert_snapshot!(
        "databases",
        faults(
            "source = \"/shop\"\n[databases.shop]\nurl = \"shop.db\"\nbehind_pooler = true\nlisten_url = \"postgres://db/shop\"\n\
             [databases.till]\nurl_env = \"SHOP_DB\"\nbehind_poler = true\nlisten_url = \"till.db\"\n\
             [databases.bar]\nurl_env = \"SHOP_DB\"\nbehind_pooler = \"yes\"\nlisten_url_env = \"NOT_SET\"\n\
             [databases.bank]\nurl_env = \"SHOP_DB\"\nlisten_url = \"postgres://me@db:x/shop\"\n\
             [[routes]]\nqueue = \"orders\"\nto = []\n"
        )
    );
    insta::assert_snapshot!("nothing", faults(""));
    insta::assert_snapshot!(
        "empty",
        faults("source = \"/shop\"\n[databases]\n[[routes]]\nqueue = \"orders\"\nto = [\"lines\"]\n")
    );
    insta::assert_snapshot!("no_toml", faults("source = /shop\n[databases.shop\n"));
    insta::assert_snapshot!("no_sense", faults_with(GOOD, &[("HOOKS_SECRET", "secret")]));
}

/// Whatever is secret comes from a variable or a file, and what is wrong about it is told without it.
#[test]
fn no_secret_stands_in_the_file() {
    let told = faults(
        "source = \"/shop\"\n[databases.shop]\nurl = \"postgres://me:clover@db/shop\"\n\
         listen_url = \"postgres://db/shop?password=clover\"\n\
         [databases.till]\nurl_env = \"postgres://me:clover@db/shop\"\n\
         [destinations.hooks]\nkind = \"webhook\"\nurl = \"https://clover@shop.example/\"\nsecret = \"whsec_clover\"\n\
         authorization = \"Bearer clover\"\n\
         [[routes]]\ndatabase = \"shop\"\nqueue = \"orders\"\nto = [{ destination = \"hooks\", address = \"{type}\" }]\n\
         [[consumers]]\ndatabase = \"shop\"\nname = \"billing\"\nto = \"incoming\"\n\
         source = { kind = \"webhook\", listen = \"127.0.0.1:0\", path = \"/in\", secret = \"whsec_clover\" }\n\
         [[follow_ups]]\ndatabase = \"shop\"\nresolver = \"payments\"\noperations = [\"erase\"]\nurl = \"https://shop.example/?token=clover\"\n\
         secret = \"whsec_clover\"\n",
    );
    assert!(!told.contains("clover"), "{told}");
    insta::assert_snapshot!(told);
}

/// How a route tries again, what it takes along and what it leaves.
#[test]
fn routes_are_checked_as_a_whole() {
    let route = |keys: &str| {
        faults(&format!(
            "source = \"/shop\"\n[databases.shop]\nurl = \"shop.db\"\n[destinations.lines]\nkind = \"stdout\"\nmax_per_second = 0\n\
             [[routes]]\nqueue = \"orders\"\nto = [{{ destination = \"lines\", address = \"a\", types = [\"*.placed\"] }}]\n{keys}\n"
        ))
    };
    insta::assert_snapshot!(
        "retries",
        route("retry = { frist = \"1s\", factor = \"two\", longest = \"soon\", jitter = \"some\" }")
    );
    insta::assert_snapshot!(
        "schedules",
        route(
            "max_attempts = 3\nretry = { schedule = [\"1s\"], first = \"1s\" }\nordered = \"skip\"\nfair_by_tenant = true"
        )
    );
    insta::assert_snapshot!("no_schedule", route("retry = { schedule = [] }"));
    insta::assert_snapshot!("shrinking", route("retry = { factor = 0.5 }"));
}

/// What belongs together is given together, and one says who it is once.
#[cfg(all(feature = "nats", feature = "kafka", feature = "redis"))]
#[test]
fn logins_are_whole() {
    insta::assert_snapshot!(faults_with(
        "source = \"/shop\"\n[databases.shop]\nurl = \"shop.db\"\n\
         [destinations.kafka]\nkind = \"kafka\"\nurl = \"kafka+ssl://127.0.0.1:9093\"\nsasl = \"scram-sha-5\"\n\
         certificate_file = \"/no/such.pem\"\n\
         [destinations.nats]\nkind = \"nats\"\nurl = \"nats://127.0.0.1:4222\"\ntoken_env = \"TOKEN\"\nnkey_env = \"TOKEN\"\n\
         [destinations.redis]\nkind = \"redis\"\nurl = \"rediss://127.0.0.1:6379\"\ntoken = \"abc\"\nreplicas = \"one\"\n\
         [[routes]]\nqueue = \"orders\"\nto = [{ destination = \"kafka\", address = \"orders\" }]\n",
        &[("TOKEN", "t")],
    ));
}

/// What stands in the file reaches whoever connects: each kind looks for its certificates.
#[cfg(all(feature = "rabbitmq", feature = "nats", feature = "kafka", feature = "redis"))]
#[test]
fn certificates_are_looked_for() {
    for (kind, url, keys) in [
        ("rabbitmq", "amqps://127.0.0.1", &["ca_file", "certificate_file"][..]),
        ("nats", "tls://127.0.0.1:4222", &["ca_file", "certificate_file"]),
        ("kafka", "kafka+ssl://127.0.0.1:9093", &["ca_file", "certificate_file"]),
        ("redis", "rediss://127.0.0.1:6379", &["ca_file"]),
        ("webhook", "https://shop.example", &["ca_file"]),
    ] {
        for key in keys {
            let more = if *key == "certificate_file" { "key_file = \"/no/such/key.pem\"" } else { "" };
            let told = faults(&format!(
                "source = \"/shop\"\n[databases.shop]\nurl = \"shop.db\"\n\
                 [destinations.place]\nkind = \"{kind}\"\nurl = \"{url}\"\n{key} = \"/no/such/file.pem\"\n{more}\n\
                 [[routes]]\nqueue = \"orders\"\nto = [{{ destination = \"place\", address = \"orders\" }}]\n"
            ));
            assert!(told.contains("/no/such/") && told.contains("No such file"), "{kind} {key}: {told}");
        }
    }
}

/// All that a place can be told is shown, with where it comes from.
#[cfg(all(feature = "nats", feature = "kafka", feature = "redis", feature = "sns"))]
#[test]
fn what_a_place_is_told_is_shown() {
    let folder = written(
        "source = \"/shop\"\n[databases.shop]\nurl = \"shop.db\"\n\
         [destinations.kafka]\nkind = \"kafka\"\nurl = \"kafka+ssl://127.0.0.1:9093\"\nsasl = \"scram-sha-512\"\nuser = \"relay\"\n\
         password_env = \"SECRET\"\n\
         [destinations.nats]\nkind = \"nats\"\nurl = \"nats://127.0.0.1:4222\"\ntoken_env = \"SECRET\"\nstream = \"ORDERS\"\n\
         [destinations.redis]\nkind = \"redis\"\nurl = \"redis://127.0.0.1:6379\"\nreplicas = 1\nmust_exist = true\n\
         [destinations.topic]\nkind = \"sns\"\nregion = \"eu-central-1\"\n\
         [destinations.hooks]\nkind = \"webhook\"\nauthorization_env = \"SECRET\"\ntimeout = \"20s\"\nmax_per_second = 5\n\
         [[routes]]\nqueue = \"orders\"\ndead_letters = false\nfair_by_tenant = true\n\
         retry = { schedule = [\"1s\", \"1m\"], jitter = \"full\", give_up_after = \"1h\" }\n\
         to = [{ destination = \"topic\", address = \"orders\", types = [\"order.*\"] }]\n",
    );
    let shown = well(run(config(&folder, &["show", "--origin"]).env("SECRET", "clover")));
    assert!(!shown.contains("clover"), "{shown}");
    insta::assert_snapshot!(shown);
}

#[cfg(all(feature = "rabbitmq", feature = "nats", feature = "redis", feature = "kafka", feature = "sqs"))]
#[test]
fn a_full_build_has_every_kind() {
    let mut text = "source = \"/shop\"\n[databases.shop]\nurl = \"shop.db\"\n".to_owned();
    for (kind, url) in [
        ("rabbitmq", "amqp://localhost:5672/%2f"),
        ("nats", "nats://127.0.0.1:4222"),
        ("redis", "redis://127.0.0.1:6379"),
        ("kafka", "kafka://127.0.0.1:9092"),
        ("sqs", "http://127.0.0.1:5000"),
    ] {
        text += &format!(
            "[destinations.{kind}]\nkind = \"{kind}\"\nurl = \"{url}\"\n[[routes]]\nqueue = \"{kind}\"\n\
             to = [{{ destination = \"{kind}\", address = \"orders\" }}]\n"
        );
    }
    let checked = run(&mut config(&written(&text), &["check"]));
    assert_eq!(checked.err, "postrider.toml: ok: 1 database, 5 destinations, 5 routes\n");
}

#[cfg(not(feature = "kafka"))]
#[test]
fn a_kind_that_is_not_in_this_build_says_which_build_has_it() {
    insta::assert_snapshot!(faults(
        "source = \"/shop\"\n[databases.shop]\nurl = \"shop.db\"\n[destinations.events]\nkind = \"kafka\"\nurl = \"kafka://127.0.0.1:9092\"\n\
         [[routes]]\nqueue = \"orders\"\nto = [{ destination = \"events\", address = \"orders\" }]\n"
    ));
}

#[test]
fn what_holds_is_shown_with_its_origin_and_without_passwords() {
    let folder = written(GOOD);
    let mut show = config(&folder, &["show", "--origin", "--listen", "off"]);
    let shown = well(run(show.env("POSTRIDER_LOG_FORMAT", "human")));
    assert!(!shown.contains("secret@") && !shown.contains("whsec"), "{shown}");
    insta::assert_snapshot!(shown);
    let json = well(run(&mut config(&folder, &["show", "--json"])));
    assert!(!json.contains("secret@") && !json.contains("whsec"), "{json}");
    insta::assert_snapshot!("for_programs", json);
}

/// A flag counts more than the environment, which counts more than the file, which counts more than the default.
#[test]
fn what_counts_more_comes_first() {
    let folder = written(&format!("{GOOD}\n[http]\nlisten = \"127.0.0.1:1\"\n"));
    let listen = |command: &mut Command| {
        let shown = well(run(command));
        shown
            .lines()
            .find(|line| line.starts_with("http.listen"))
            .unwrap()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    let show = ["show", "--origin"];
    assert_eq!(listen(&mut config(&folder, &show)), "http.listen = \"127.0.0.1:1\" # postrider.toml:23");
    let with_variable =
        |arguments: &[&str]| listen(config(&folder, arguments).env("POSTRIDER_HTTP_LISTEN", "127.0.0.1:2"));
    assert_eq!(with_variable(&show), "http.listen = \"127.0.0.1:2\" # env POSTRIDER_HTTP_LISTEN");
    assert_eq!(
        with_variable(&["show", "--origin", "--listen", "127.0.0.1:3"]),
        "http.listen = \"127.0.0.1:3\" # flag --listen"
    );
    fs::rename(folder.path().join("postrider.toml"), folder.path().join("other.toml")).unwrap();
    assert_eq!(
        listen(config(&folder, &show).env("POSTRIDER_CONFIG", "other.toml")),
        "http.listen = \"127.0.0.1:1\" # other.toml:23"
    );
    assert_eq!(
        listen(
            config(&folder, &["show", "--origin", "--config", "other.toml"])
                .env("POSTRIDER_CONFIG", "no.toml")
        ),
        "http.listen = \"127.0.0.1:1\" # other.toml:23"
    );
    let missing = run(&mut config(&folder, &["check"]));
    assert_eq!(missing.code, Some(1));
    assert!(missing.err.contains("postrider config init writes one"), "{missing:?}");
}

#[cfg(all(feature = "rabbitmq", feature = "nats", feature = "otlp"))]
#[test]
fn the_file_of_the_guide_is_right() {
    let guide = include_str!("../../../docs/guides/daemon.md");
    let text = guide.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let folder = tempdir().unwrap();
    fs::write(folder.path().join("postrider.toml"), text).unwrap();
    let mut check = config(&folder, &["check"]);
    check
        .env("SHOP_DB", "postgres://localhost/shop")
        .env("AMQP_URL", "amqp://guest:guest@localhost:5672/%2f")
        .env("HOOKS_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    let checked = run(&mut check);
    assert_eq!(
        checked.err,
        "postrider.toml: ok: 1 database, 2 destinations, 1 route, 1 consumer, 1 resolver\n"
    );
}
