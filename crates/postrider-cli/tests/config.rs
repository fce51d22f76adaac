//! `postrider config`, run as a process.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use postrider_testkit::tls::{Certificates, Signer};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};
use support::program::{CompletionOutcome, postrider, run};
use tempfile::{TempDir, tempdir};
use toml::de::{DeTable, DeValue};

const VALID: &str = r#"source = "/shop"

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

fn folder_with(text: &str) -> TempDir {
    let folder = tempdir().unwrap();
    fs::write(folder.path().join("postrider.toml"), text).unwrap();
    folder
}

/// A folder with a file that the JSON Schema accepts.
fn folder_with_valid(text: &str) -> TempDir {
    assert_eq!(schema_errors(text), [""; 0], "{text}");
    folder_with(text)
}

/// The errors of a file by the JSON Schema that the program prints.
fn schema_errors(text: &str) -> Vec<String> {
    let schema: Value = serde_json::from_str(&output(run(&mut postrider(&["config", "schema"])))).unwrap();
    let schema = jsonschema::draft202012::new(&schema).unwrap();
    let file = as_json(&DeValue::Table(DeTable::parse(text).unwrap().into_inner()));
    schema.iter_errors(&file).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

fn as_json(toml: &DeValue<'_>) -> Value {
    match toml {
        DeValue::String(text) => text.as_ref().into(),
        DeValue::Integer(number) => number.as_str().parse::<i64>().unwrap().into(),
        DeValue::Float(number) => number.as_str().parse::<f64>().unwrap().into(),
        DeValue::Boolean(flag) => (*flag).into(),
        DeValue::Datetime(time) => time.to_string().into(),
        DeValue::Array(list) => list.iter().map(|each| as_json(each.get_ref())).collect(),
        DeValue::Table(table) => {
            table.iter().map(|(key, each)| (key.get_ref().to_string(), as_json(each.get_ref()))).collect()
        }
    }
}

/// The problems that `config check` reports; it exits with 1.
fn problems(text: &str) -> String {
    problems_with(text, &[])
}

/// The problems with these environment variables.
fn problems_with(text: &str, variables: &[(&str, &str)]) -> String {
    let folder = folder_with(text);
    let ended = run(config(&folder, &["check"]).envs(variables.iter().copied()));
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{ended:?}");
    assert!(!ended.err.contains("secret@"), "{ended:?}");
    ended.err
}

fn output(ended: CompletionOutcome) -> String {
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
    ended.out
}

#[test]
fn init_writes_a_valid_file_and_never_overwrites() {
    let folder = tempdir().unwrap();
    let init = || run(&mut config(&folder, &["init"]));
    assert_eq!(init().code, Some(0));
    let text = fs::read_to_string(folder.path().join("postrider.toml")).unwrap();
    assert_eq!(schema_errors(&text), [""; 0]);
    let checked = run(&mut config(&folder, &["check"]));
    assert_eq!(checked.code, Some(0), "{checked:?}");
    assert_eq!(checked.err, "postrider.toml: ok: 1 database, 1 destination, 1 route\n");
    let again = init();
    assert_eq!(again.code, Some(1));
    insta::assert_snapshot!(again.err);
}

/// Every commented line of the starter file is valid as it is.
#[test]
fn init_comments_are_valid_when_uncommented() {
    let folder = tempdir().unwrap();
    assert_eq!(run(&mut config(&folder, &["init"])).code, Some(0));
    let file = folder.path().join("postrider.toml");
    let mut text = fs::read_to_string(&file).unwrap();
    if !cfg!(feature = "otlp") {
        text.truncate(text.find("# [otlp]").unwrap());
    }
    let uncommented: Vec<_> = text
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(rest) if rest.starts_with('[') || rest.contains(" = ") && !rest.starts_with("A URL") => rest,
            _ => line,
        })
        .collect();
    let text = uncommented.join("\n");
    assert_eq!(schema_errors(&text), [""; 0]);
    fs::write(&file, text.replace("\"nats\"", "\"webhook\"")).unwrap();
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
fn check_reports_every_problem_with_line_and_fix() {
    insta::assert_snapshot!(
        "unknown_keys",
        problems(
            "source = \"/shop\"\nlogs = 1\n[databases.shop]\nurl = \"shop.db\"\n[destinations.lines]\nkind = \"stdout\"\nurl = \"x\"\n\
             [[routes]]\nqueue = \"orders\"\nto = [{ destination = \"lines\", adress = \"x\" }]\nmax_atempts = 3\nzebra = 1\n"
        )
    );
    insta::assert_snapshot!(
        "wrong_types",
        problems(
            "source = 17\n[databases]\nshop = \"shop.db\"\n[destinations.lines]\nkind = \"stdot\"\n[[routes]]\nqueue = \"orders\"\n\
             to = \"lines\"\nconcurrency = 0\nmax_attempts = \"ten\"\nkeep_for = \"a week\"\nordered = true\n[http]\nlisten = \"here\"\n"
        )
    );
    insta::assert_snapshot!(
        "missing_references",
        problems(
            "source = \"/shop\"\n[databases.shop]\nurl_env = \"NOT_SET\"\n[databases.till]\nurl_file = \"/no/such/file\"\n\
             [databases.bar]\nurl = \"shop.db\"\nurl_env = \"SHOP_DB\"\n[databases.bank]\n\
             [destinations.events]\nkind = \"webhook\"\n\
             [[routes]]\ndatabase = \"shp\"\nqueue = \"orders\"\nto = [{ destination = \"event\", address = \"{tpye}\" }]\n\
             [[routes]]\nqueue = \"orders\"\nto = []\n"
        )
    );
    insta::assert_snapshot!(
        "duplicates",
        problems(
            "source = \"/shop\"\n[databases.shop]\nurl = \"shop.db\"\n[destinations.lines]\nkind = \"stdout\"\n\
             [[routes]]\nqueue = \"orders\"\nto = [{ destination = \"lines\", address = \"a\" }, { destination = \"lines\", address = \"b\" }]\n\
             [[routes]]\nqueue = \"orders\"\nto = [{ destination = \"lines\", address = \"a\" }]\n"
        )
    );
    insta::assert_snapshot!(
        "consumers_and_follow_ups",
        problems(
            "source = \"/shop\"\n[databases.shop]\nurl = \"shop.db\"\n\
             [[consumers]]\nname = \"billing\"\nto = \"my orders\"\nsource = { kind = \"webhok\" }\n\
             [[consumers]]\nname = \"mail\"\nto = \"orders\"\nsource = { kind = \"webhook\", queue = \"orders\" }\n\
             [[consumers]]\nname = \"mail\"\nto = \"orders\"\n\
             [[consumers]]\nname = \"mail\"\nto = \"orders\"\nsource = { kind = \"webhook\", path = \"/a\", listen = \"here\" }\n\
             [[follow_ups]]\nresolver = \"payments\"\noperations = []\naddress = \"{value}\"\ndone_on = 404\n"
        )
    );
    insta::assert_snapshot!(
        "invalid_consumers_and_follow_ups",
        problems(
            "source = \"/shop\"\n[databases.shop]\nurl = \"shop.db\"\n\
             [[consumers]]\nname = \"mail\"\nto = \"orders\"\nsource = { kind = \"webhook\", path = \"/a\", listen = \"here\" }\n\
             [[follow_ups]]\nresolver = \"payments\"\noperations = [\"erase\"]\nurl = \"payments.example\"\ndone_on = [200]\n"
        )
    );
    insta::assert_snapshot!(
        "databases",
        problems(
            "source = \"/shop\"\n[databases.shop]\nurl = \"shop.db\"\nbehind_pooler = true\nlisten_url = \"postgres://db/shop\"\n\
             [databases.till]\nurl_env = \"SHOP_DB\"\nbehind_poler = true\nlisten_url = \"till.db\"\n\
             [databases.bar]\nurl_env = \"SHOP_DB\"\nbehind_pooler = \"yes\"\nlisten_url_env = \"NOT_SET\"\n\
             [databases.bank]\nurl_env = \"SHOP_DB\"\nlisten_url = \"postgres://me@db:x/shop\"\n\
             [[routes]]\nqueue = \"orders\"\nto = []\n"
        )
    );
    insta::assert_snapshot!("empty_file", problems(""));
    insta::assert_snapshot!(
        "empty_sections",
        problems("source = \"/shop\"\n[databases]\n[[routes]]\nqueue = \"orders\"\nto = [\"lines\"]\n")
    );
    insta::assert_snapshot!("invalid_toml", problems("source = /shop\n[databases.shop\n"));
    insta::assert_snapshot!(
        "invalid_variables",
        problems_with(VALID, &[("POSTRIDER_HTTP_LISTEN", "here"), ("POSTRIDER_LOG_FORMAT", "jason")])
    );
    insta::assert_snapshot!("invalid_secret", problems_with(VALID, &[("HOOKS_SECRET", "secret")]));
}

/// Secrets come from a variable or a file, and no error message repeats one.
#[test]
fn check_rejects_secrets_in_the_file_without_showing_them() {
    let reported = problems(
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
    assert!(!reported.contains("clover"), "{reported}");
    insta::assert_snapshot!(reported);
}

/// Retries, types and conflicting keys of a route.
#[test]
fn check_validates_retries_and_conflicting_keys_of_a_route() {
    let route = |keys: &str| {
        problems(&format!(
            "source = \"/shop\"\n[databases.shop]\nurl = \"shop.db\"\n[destinations.lines]\nkind = \"stdout\"\nrate_limit = \"0/s\"\n\
             [[routes]]\nqueue = \"orders\"\nto = [{{ destination = \"lines\", address = \"a\", types = [\"*.placed\"] }}]\n{keys}\n"
        ))
    };
    insta::assert_snapshot!(
        "retries",
        route("retry = { intial = \"1s\", multiplier = \"two\", max_delay = \"soon\", jitter = \"some\" }")
    );
    insta::assert_snapshot!(
        "schedules",
        route(
            "max_attempts = 3\nretry = { schedule = [\"1s\"], initial = \"1s\" }\nordered = \"skip\"\nfair_by_tenant = true"
        )
    );
    insta::assert_snapshot!("empty_schedule", route("retry = { schedule = [] }"));
    insta::assert_snapshot!("shrinking_backoff", route("retry = { multiplier = 0.5 }"));
}

/// A key under its old name is rejected with its line, its new name, and the value to write.
#[test]
fn check_gives_the_new_name_of_a_renamed_key() {
    let reported = problems(
        "source = \"/shop\"\n[databases.shop]\nurl = \"shop.db\"\n\
         [destinations.lines]\nkind = \"stdout\"\nmax_per_second = 5\n\
         [[routes]]\nqueue = \"orders\"\nto = [{ destination = \"lines\", address = \"a\" }]\n\
         retry = { first = \"1s\", factor = 2, longest = \"5m\", give_up_after = \"1d\" }\n\
         [[consumers]]\nname = \"billing\"\nto = \"incoming\"\nredelivered_within = \"14d\"\nkeep_marks_for = \"15d\"\n\
         source = { kind = \"webhook\", listen = \"127.0.0.1:0\", path = \"/in\" }\n",
    );
    for (line, old, new) in [
        (6, "max_per_second", "rate_limit = \"5/s\""),
        (10, "first", "initial = \"1s\""),
        (10, "factor", "multiplier = 2"),
        (10, "longest", "max_delay = \"5m\""),
        (10, "give_up_after", "max_total = \"1d\""),
        (14, "redelivered_within", "redelivery_window = \"14d\""),
        (15, "keep_marks_for", "keep_deduplication_records_for = \"15d\""),
    ] {
        let mut lines = reported.lines();
        let problem = lines.find(|text| text.ends_with(&format!("{old:?} was renamed")));
        let problem = problem.unwrap_or_else(|| panic!("{old}: {reported}"));
        assert!(problem.contains(&format!("postrider.toml:{line}: ")), "{problem}");
        assert_eq!(lines.next(), Some(format!("  help: write {new}").as_str()));
    }
}

/// Keys that require each other are set together, and there is one login.
#[cfg(all(feature = "nats", feature = "kafka", feature = "redis"))]
#[test]
fn check_rejects_incomplete_and_conflicting_logins() {
    insta::assert_snapshot!(problems_with(
        "source = \"/shop\"\n[databases.shop]\nurl = \"shop.db\"\n\
         [destinations.kafka]\nkind = \"kafka\"\nurl = \"kafka+ssl://127.0.0.1:9093\"\nsasl = \"scram-sha-5\"\n\
         certificate_file = \"/no/such.pem\"\n\
         [destinations.nats]\nkind = \"nats\"\nurl = \"nats://127.0.0.1:4222\"\ntoken_env = \"TOKEN\"\nnkey_env = \"TOKEN\"\n\
         [destinations.redis]\nkind = \"redis\"\nurl = \"rediss://127.0.0.1:6379\"\ntoken = \"abc\"\nreplicas = \"one\"\n\
         [[routes]]\nqueue = \"orders\"\nto = [{ destination = \"kafka\", address = \"orders\" }]\n",
        &[("TOKEN", "t")],
    ));
}

/// Each kind reads its certificate files.
#[cfg(all(feature = "rabbitmq", feature = "nats", feature = "kafka", feature = "redis", feature = "sns"))]
#[test]
fn check_reports_missing_certificate_files() {
    for (kind, url) in [
        ("rabbitmq", "amqps://127.0.0.1"),
        ("nats", "tls://127.0.0.1:4222"),
        ("kafka", "kafka+ssl://127.0.0.1:9093"),
        ("redis", "rediss://127.0.0.1:6379"),
        ("sqs", "https://sqs.example"),
        ("sns", "https://sns.example"),
        ("webhook", "https://shop.example"),
    ] {
        for key in ["ca_file", "certificate_file"] {
            let more = if key == "certificate_file" { "key_file = \"/no/such/key.pem\"" } else { "" };
            let reported = problems(&format!(
                "source = \"/shop\"\n[databases.shop]\nurl = \"shop.db\"\n\
                 [destinations.place]\nkind = \"{kind}\"\nurl = \"{url}\"\n{key} = \"/no/such/file.pem\"\n{more}\n\
                 [[routes]]\nqueue = \"orders\"\nto = [{{ destination = \"place\", address = \"orders\" }}]\n"
            ));
            assert!(
                reported.contains("/no/such/") && reported.contains("No such file"),
                "{kind} {key}: {reported}"
            );
        }
    }
}

#[test]
fn check_reports_certificates_that_a_database_cannot_use() {
    let certificates = Certificates::issue();
    let bundle = format!("ca_file = {:?}", certificates.authority(Signer::Bundle));
    let problems_of = |keys: &str| {
        problems(&format!(
            "source = \"/shop\"\n[destinations.lines]\nkind = \"stdout\"\n\
             [[routes]]\nqueue = \"orders\"\nto = [{{ destination = \"lines\", address = \"all\" }}]\n[databases.shop]\n{keys}\n"
        ))
    };
    let server = "url = \"postgres://db.example/shop\"";
    let no_tls = "has no TLS, but certificates are configured";
    for (keys, expected) in [
        (
            format!("{server}\nca_file = \"/no/ca.pem\""),
            "databases.shop.ca_bundle: /no/ca.pem cannot be read",
        ),
        (
            format!("{server}\ntrust = \"both\""),
            "databases.shop.trust: \"both\" needs a CA bundle; write ca_file",
        ),
        (format!("{server}\ncertificate_file = \"relay.pem\""), "databases.shop.key_file is missing"),
        (format!("url = \"postgres://db.example/shop?sslmode=disable\"\n{bundle}"), no_tls),
        (
            format!("{server}\n{bundle}\nlisten_url = \"postgres://db.example/shop?sslmode=disable\""),
            "databases.shop.listen_url: has no TLS",
        ),
        (format!("url = \"shop.db\"\n{bundle}"), "databases.shop.ca_file does not apply to a SQLite file"),
    ] {
        let shown = problems_of(&keys);
        assert!(shown.contains(expected), "{keys}\n{shown}");
    }
    let valid = folder_with_valid(&format!(
        "source = \"/shop\"\n[destinations.lines]\nkind = \"stdout\"\n\
         [[routes]]\nqueue = \"orders\"\nto = [{{ destination = \"lines\", address = \"all\" }}]\n\
         [databases.shop]\n{server}\n{bundle}\nrequest_timeout = \"90s\"\n"
    ));
    let checked = run(&mut config(&valid, &["check"]));
    assert_eq!(checked.code, Some(0), "{checked:?}");
}

/// Every setting of every kind is printed, with its origin.
#[cfg(all(feature = "nats", feature = "kafka", feature = "redis", feature = "sns"))]
#[test]
fn show_prints_every_destination_setting_with_its_origin() {
    let folder = folder_with_valid(
        "source = \"/shop\"\n[databases.shop]\nurl = \"shop.db\"\n\
         [destinations.kafka]\nkind = \"kafka\"\nurl = \"kafka+ssl://127.0.0.1:9093\"\nsasl = \"scram-sha-512\"\nuser = \"relay\"\n\
         password_env = \"SECRET\"\n\
         [destinations.nats]\nkind = \"nats\"\nurl = \"nats://127.0.0.1:4222\"\ntoken_env = \"SECRET\"\nstream = \"ORDERS\"\n\
         [destinations.redis]\nkind = \"redis\"\nurl = \"redis://127.0.0.1:6379\"\nreplicas = 1\nmust_exist = true\n\
         [destinations.topic]\nkind = \"sns\"\nregion = \"eu-central-1\"\n\
         [destinations.hooks]\nkind = \"webhook\"\nauthorization_env = \"SECRET\"\nrequest_timeout = \"20s\"\nrate_limit = \"300/m\"\n\
         [[routes]]\nqueue = \"orders\"\ndead_letters = false\nfair_by_tenant = true\n\
         retry = { schedule = [\"1s\", \"1m\"], jitter = \"full\", max_total = \"1h30m\" }\n\
         to = [{ destination = \"topic\", address = \"orders\", types = [\"order.*\"] }]\n",
    );
    let shown = output(run(config(&folder, &["show", "--origin"]).env("SECRET", "clover")));
    assert!(!shown.contains("clover"), "{shown}");
    insta::assert_snapshot!(shown);
}

#[cfg(all(feature = "rabbitmq", feature = "nats", feature = "redis", feature = "kafka", feature = "sqs"))]
#[test]
fn full_build_accepts_every_kind() {
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
    let checked = run(&mut config(&folder_with_valid(&text), &["check"]));
    assert_eq!(checked.err, "postrider.toml: ok: 1 database, 5 destinations, 5 routes\n");
}

#[cfg(not(feature = "kafka"))]
#[test]
fn check_names_the_feature_of_a_kind_that_the_build_lacks() {
    insta::assert_snapshot!(problems(
        "source = \"/shop\"\n[databases.shop]\nurl = \"shop.db\"\n[destinations.events]\nkind = \"kafka\"\nurl = \"kafka://127.0.0.1:9092\"\n\
         [[routes]]\nqueue = \"orders\"\nto = [{ destination = \"events\", address = \"orders\" }]\n"
    ));
}

#[test]
fn show_prints_effective_configuration_without_secrets() {
    let folder = folder_with_valid(VALID);
    let mut show = config(&folder, &["show", "--origin", "--listen", "off"]);
    let shown = output(run(show.env("POSTRIDER_LOG_FORMAT", "human")));
    assert!(!shown.contains("secret@") && !shown.contains("whsec"), "{shown}");
    insta::assert_snapshot!(shown);
    let json = output(run(&mut config(&folder, &["show", "--json"])));
    assert!(!json.contains("secret@") && !json.contains("whsec"), "{json}");
    insta::assert_snapshot!("effective_configuration_as_json", json);
}

/// Precedence: flags, environment variables, file, defaults.
#[test]
fn flags_override_environment_file_and_deproblems() {
    let folder = folder_with_valid(&format!("{VALID}\n[http]\nlisten = \"127.0.0.1:1\"\n"));
    let listen = |command: &mut Command| {
        let shown = output(run(command));
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
    assert!(missing.err.contains("create one with postrider config init"), "{missing:?}");
}

#[cfg(all(feature = "rabbitmq", feature = "nats", feature = "otlp"))]
#[test]
fn example_of_the_daemon_guide_is_valid() {
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

/// Every whole file in the documents.
#[test]
fn schema_accepts_the_examples_in_the_documents() {
    fn pages(folder: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries.flat_map(|path| if path.is_dir() { pages(&path) } else { vec![path] }).collect()
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = pages(&root.join("docs"));
    pages.push(root.join("README.md"));
    let mut count = 0;
    for page in pages.iter().filter(|page| page.extension().is_some_and(|extension| extension == "md")) {
        let text = fs::read_to_string(page).unwrap();
        let blocks = text.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
        for block in blocks.filter(|block| block.contains("source = ") && block.contains("[databases")) {
            assert_eq!(schema_errors(block), [""; 0], "{}", page.display());
            count += 1;
        }
    }
    assert!(count > 1, "only {count} examples were found");
}

/// A wrong line of each sort: the schema and `config check` reject it.
#[test]
fn schema_rejects_invalid_files() {
    let file = |source: &str, database: &str, destination: &str, route: &str| {
        format!(
            "{source}\n[databases.shop]\n{database}\n[destinations.lines]\n{destination}\n[[routes]]\nqueue = \"orders\"\n{route}\n"
        )
    };
    let (source, database, destination) = ("source = \"/shop\"", "url = \"shop.db\"", "kind = \"stdout\"");
    let route = "to = [{ destination = \"lines\", address = \"a\" }]";
    assert_eq!(schema_errors(&file(source, database, destination, route)), [""; 0]);
    let with_route = |line: &str| file(source, database, destination, &format!("{route}\n{line}"));
    let with_destination = |lines: &str| file(source, database, lines, route);
    for (text, place) in [
        (file("", database, destination, route), ""),
        (file("source = 17", database, destination, route), "/source"),
        (file(source, "", destination, route), "/databases/shop"),
        (file(source, "url = \"shop.db\"\nurl_env = \"SHOP_DB\"", destination, route), "/databases/shop"),
        (file(source, "urll = \"shop.db\"", destination, route), "/databases/shop"),
        (file(source, "url_env = \"not a name\"", destination, route), "/databases/shop/url_env"),
        (with_destination("kind = \"stdot\""), "/destinations/lines/kind"),
        (with_destination(""), "/destinations/lines"),
        (with_destination("kind = \"stdout\"\nurl = \"x\""), "/destinations/lines"),
        (with_destination("kind = \"webhook\"\nsecret = \"whsec_x\""), "/destinations/lines"),
        (with_destination("kind = \"stdout\"\nrate_limit = \"fast\""), "/destinations/lines"),
        (with_destination("kind = \"nats\""), "/destinations/lines"),
        (with_destination("kind = \"kafka\"\nurl = \"kafka://a\"\nsasl = \"plain\""), "/destinations/lines"),
        (
            with_destination("kind = \"nats\"\nurl = \"nats://a\"\ntoken_env = \"A\"\nnkey_env = \"A\""),
            "/destinations/lines",
        ),
        (file(source, database, destination, "to = []"), "/routes/0/to"),
        (file(source, database, destination, "to = [{ destination = \"lines\" }]"), "/routes/0/to/0"),
        (with_route("max_atempts = 3"), "/routes/0"),
        (with_route("max_attempts = \"ten\""), "/routes/0/max_attempts"),
        (with_route("concurrency = 0"), "/routes/0/concurrency"),
        (with_route("dead_letters = \"no\""), "/routes/0/dead_letters"),
        (with_route("keep_for = \"a week\""), "/routes/0/keep_for"),
        (with_route("ordered = \"strictly\""), "/routes/0/ordered"),
        (with_route("retry = { initial = \"1s\", schedule = [\"1s\"] }"), "/routes/0/retry"),
        (with_route("[http]\nlisten = \"here\""), "/http/listen"),
        (format!("{source}\n[databases.shop]\n{database}\n"), ""),
        (format!("{source}\nroutes = []\n[databases.shop]\n{database}\n"), ""),
    ] {
        let errors = schema_errors(&text);
        assert!(errors.iter().any(|error| error.starts_with(&format!("{place}: "))), "{text}{errors:#?}");
        assert!(problems(&text).starts_with("error[config]"), "{text}");
    }
}

#[test]
fn schema_is_valid_json_schema() {
    let schema: Value = serde_json::from_str(&output(run(&mut postrider(&["config", "schema"])))).unwrap();
    jsonschema::meta::validate(&schema).unwrap();
    let format = &schema["properties"]["routes"]["items"]["properties"]["format"];
    assert_eq!(format["enum"], json!(["binary", "structured", "plain", "debezium"]));
    assert_eq!(format["default"], "binary");
    assert!(format["description"].as_str().unwrap().starts_with("Wire format"), "{format}");
}
