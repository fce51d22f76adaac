//! The dependency rules of the workspace, checked against cargo's metadata.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use cargo_metadata::{DependencyKind, MetadataCommand, Package};
use std::collections::{BTreeMap, BTreeSet};

/// The dependencies that each crate may have, in addition to those in `ANY_CRATE`.
const CRATES: [(&str, &[&str]); 14] = [
    ("postrider-core", &["opentelemetry", "rand", "sha2", "tracing", "tracing-opentelemetry"]),
    (
        "postrider-stores",
        &[
            "postrider-core",
            "postrider-tls",
            "diesel",
            "diesel-async",
            "sea-orm",
            "sqlx",
            "time",
            "tokio",
            "tokio-postgres",
            "tracing",
        ],
    ),
    (
        "postrider-transports",
        &[
            "postrider-core",
            "postrider-tls",
            "async-nats",
            "aws-config",
            "aws-credential-types",
            "aws-sdk-sns",
            "aws-sdk-sqs",
            "aws-smithy-runtime-api",
            "aws-smithy-types",
            "axum",
            "futures-util",
            "hmac",
            "httpdate",
            "hyper-rustls",
            "hyper-util",
            "ipnet",
            "lapin",
            "percent-encoding",
            "rdkafka",
            "redis",
            "reqwest",
            "sha2",
            "tokio",
            "tokio-rustls",
            "tower-service",
        ],
    ),
    (
        "postrider-engine",
        &[
            "postrider-core",
            "croner",
            "futures-util",
            "jiff",
            "metrics",
            "opentelemetry",
            "rand",
            "tokio",
            "tokio-util",
            "tracing",
            "tracing-opentelemetry",
        ],
    ),
    ("postrider-tls", &["postrider-core", "rustls", "rustls-native-certs", "rustls-platform-verifier"]),
    ("postrider-macros", &["proc-macro2", "quote", "syn"]),
    ("postrider-servers", &["anyhow", "nix", "tempfile"]),
    (
        "postrider-testkit",
        &[
            "postrider-core",
            "postrider-engine",
            "postrider-servers",
            "nix",
            "opentelemetry",
            "rand",
            "rcgen",
            "rustls",
            "sqlx",
            "tempfile",
            "tokio",
            "tokio-rustls",
        ],
    ),
    ("postrider-testing", &["postrider-core", "postrider-engine", "postrider-stores"]),
    (
        "postrider",
        &[
            "postrider-core",
            "postrider-engine",
            "postrider-macros",
            "postrider-stores",
            "postrider-testing",
            "postrider-transports",
        ],
    ),
    (
        "postrider-cli",
        &[
            "postrider",
            "axum",
            "clap",
            "clap_complete",
            "clap_mangen",
            "comfy-table",
            "hdrhistogram",
            "indicatif",
            "jiff",
            "metrics",
            "metrics-exporter-prometheus",
            "miette",
            "opentelemetry",
            "opentelemetry-otlp",
            "opentelemetry_sdk",
            "rand",
            "ratatui",
            "rustls",
            "sd-notify",
            "sqlx",
            "strsim",
            "tempfile",
            "terminal_size",
            "tokio",
            "tokio-util",
            "toml",
            "tracing",
            "tracing-opentelemetry",
            "tracing-subscriber",
        ],
    ),
    (
        "bench",
        &[
            "postrider",
            "postrider-core",
            "postrider-engine",
            "postrider-stores",
            "postrider-transports",
            "anyhow",
            "async-nats",
            "clap",
            "diesel",
            "diesel-async",
            "lapin",
            "rdkafka",
            "redis",
            "sea-orm",
            "sqlx",
            "tempfile",
            "time",
            "tokio",
            "tokio-postgres",
        ],
    ),
    (
        "soak",
        &[
            "postrider-core",
            "postrider-engine",
            "postrider-stores",
            "postrider-testkit",
            "postrider-transports",
            "anyhow",
            "async-nats",
            "clap",
            "indicatif",
            "nix",
            "rand",
            "sqlx",
            "tempfile",
            "tokio",
            "tracing-subscriber",
        ],
    ),
    ("xtask", &["postrider-servers", "anyhow", "clap", "nix", "signal-hook", "tempfile"]),
];

/// Plain data: no I/O, no runtime, no clock.
const ANY_CRATE: [&str; 7] = ["async-trait", "base64", "bytes", "serde", "serde_json", "thiserror", "uuid"];

fn workspace() -> Vec<Package> {
    let metadata = MetadataCommand::new().no_deps().exec().unwrap();
    metadata.workspace_packages().into_iter().cloned().collect()
}

fn normal_dependencies(package: &Package) -> BTreeSet<String> {
    let normal = package.dependencies.iter().filter(|dependency| dependency.kind == DependencyKind::Normal);
    normal.map(|dependency| dependency.name.clone()).collect()
}

#[test]
fn every_crate_has_only_allowed_dependencies() {
    let crates: BTreeMap<_, _> = CRATES.into_iter().collect();
    for package in workspace() {
        let name = package.name.as_str();
        let may = crates.get(name).unwrap_or_else(|| panic!("{name} is not listed: add it to CRATES"));
        for dependency in normal_dependencies(&package) {
            assert!(
                may.contains(&dependency.as_str()) || ANY_CRATE.contains(&dependency.as_str()),
                "{name} must not depend on {dependency}"
            );
        }
    }
}

/// The soak test is a test, although it is a program.
#[test]
fn only_tests_depend_on_the_test_kit() {
    for package in workspace().into_iter().filter(|package| package.name != "soak") {
        assert!(!normal_dependencies(&package).contains("postrider-testkit"), "{} does", package.name);
    }
}

/// No published crate starts servers.
#[test]
fn only_test_crates_depend_on_servers() {
    for package in workspace() {
        let may = ["postrider-testkit", "xtask"].contains(&package.name.as_str());
        assert!(may || !normal_dependencies(&package).contains("postrider-servers"), "{} does", package.name);
    }
}

/// The crate for users' tests is optional, brings the memory store and no driver, and no other crate needs it.
#[test]
fn testing_crate_is_optional_and_has_no_driver() {
    for package in workspace() {
        for dependency in &package.dependencies {
            let name = package.name.as_str();
            let is_normal = dependency.kind == DependencyKind::Normal;
            if dependency.name == "postrider-testing" && is_normal {
                assert!(name == "postrider" && dependency.optional, "{name} depends on it");
            }
            if name == "postrider-testing" && dependency.name == "postrider-stores" && is_normal {
                assert_eq!(dependency.features, ["memory"]);
                assert!(!dependency.uses_default_features);
            }
            if dependency.name == "postrider-engine" && is_normal && name != "postrider-testing" {
                assert!(
                    !dependency.features.contains(&"testing".to_owned()),
                    "{name} enables fault injection"
                );
            }
        }
    }
}

/// OpenTelemetry is optional, and its SDK is the application's choice. The core depends on neither it nor `tracing` by default. The
/// program is an application itself, and may be built with it.
#[test]
fn opentelemetry_is_optional_and_never_its_sdk() {
    for package in workspace() {
        let name = package.name.as_str();
        let normal = package.dependencies.iter().filter(|each| each.kind == DependencyKind::Normal);
        for dependency in normal.filter(|_| name != "postrider-testkit") {
            let of_core = name == "postrider-core" && dependency.name == "tracing";
            if of_core || dependency.name.contains("opentelemetry") {
                assert!(dependency.optional, "{name} always depends on {}", dependency.name);
                let is_sdk = dependency.name == "opentelemetry_sdk" && name != "postrider-cli";
                assert!(!is_sdk, "{name} depends on {}", dependency.name);
            }
        }
        for feature in package.features.get("default").into_iter().flatten() {
            let is_of_it = feature.contains("opentelemetry") || feature == "otlp";
            assert!(!is_of_it, "{name} enables it by default");
        }
    }
}

#[test]
fn nothing_depends_on_the_program() {
    for package in workspace() {
        let dependencies = &package.dependencies;
        assert!(dependencies.iter().all(|each| each.name != "postrider-cli"), "{} does", package.name);
    }
}

/// One module per store, and one driver in each.
#[test]
fn no_store_uses_another() {
    let stores = concat!(env!("CARGO_MANIFEST_DIR"), "/../postrider-stores/src");
    let names = ["memory", "sqlite", "postgres"];
    for name in names {
        for file in std::fs::read_dir(format!("{stores}/{name}")).unwrap() {
            let path = file.unwrap().path();
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            for other in names.iter().filter(|other| **other != name) {
                assert!(!text.contains(&format!("crate::{other}")), "{} uses {other}", path.display());
            }
        }
    }
}

/// Drivers are optional, and no driver's module uses another.
#[test]
fn every_driver_is_optional_and_independent() {
    let drivers = ["sqlx", "tokio-postgres", "diesel-async", "sea-orm"];
    let packages = workspace();
    let stores = packages.iter().find(|package| package.name.as_str() == "postrider-stores").unwrap();
    for dependency in &stores.dependencies {
        let driver = drivers.contains(&dependency.name.as_str()) && dependency.kind == DependencyKind::Normal;
        assert!(!driver || dependency.optional, "{} is not optional", dependency.name);
    }
    let stores = concat!(env!("CARGO_MANIFEST_DIR"), "/../postrider-stores/src");
    let modules = drivers.map(|driver| driver.replace('-', "_"));
    for (store, own) in [("postgres", &modules[..]), ("sqlite", &[modules[0].clone(), modules[3].clone()])] {
        for module in own {
            let text = std::fs::read_to_string(format!("{stores}/{store}/drivers/{module}.rs")).unwrap();
            // SeaORM's rows in SQLite are those of the underlying sqlx.
            let text = text.replace("use sqlx::{Decode, Sqlite, Type};", "");
            for other in modules.iter().filter(|other| *other != module) {
                assert!(!text.contains(&format!("{other}::")), "{store}: {module} uses {other}");
            }
        }
    }
}

/// A file, or all files below a folder.
fn files_in(path: std::path::PathBuf) -> Vec<std::path::PathBuf> {
    if !path.is_dir() {
        return vec![path];
    }
    std::fs::read_dir(&path).unwrap().flat_map(|entry| files_in(entry.unwrap().path())).collect()
}

/// `Trust::Only` leaves out the system roots, which these features of sqlx would add to every bundle.
#[test]
fn sqlx_brings_no_system_roots() {
    for package in workspace() {
        let of_sqlx = package.dependencies.iter().filter(|dependency| dependency.name == "sqlx");
        let direct = of_sqlx.flat_map(|dependency| &dependency.features);
        for feature in package.features.values().flatten().chain(direct) {
            let brings = feature.contains("native-roots") || feature.contains("tls-native-tls");
            assert!(!brings, "{} enables {feature}", package.name);
        }
    }
}

/// Clients are optional, and no transport uses another's.
#[test]
fn every_client_is_optional_and_independent() {
    let packages = workspace();
    let transports = packages.iter().find(|package| package.name.as_str() == "postrider-transports").unwrap();
    let always = ["postrider-core", "tokio"];
    for dependency in transports.dependencies.iter().filter(|each| each.kind == DependencyKind::Normal) {
        let name = dependency.name.as_str();
        assert!(
            dependency.optional || always.contains(&name) || ANY_CRATE.contains(&name),
            "{name} is not optional"
        );
    }
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/../postrider-transports/src");
    let clients =
        [("rabbitmq", "lapin"), ("kafka", "rdkafka"), ("sqs", "aws_sdk_sqs"), ("sns", "aws_sdk_sns")];
    for module in std::fs::read_dir(sources).unwrap().map(|entry| entry.unwrap().path()) {
        let name = module.file_stem().unwrap().to_string_lossy().into_owned();
        for file in files_in(module) {
            let text = std::fs::read_to_string(&file).unwrap();
            for (_, client) in clients.iter().filter(|(own, _)| *own != name) {
                assert!(!text.contains(&format!("{client}::")), "{} uses {client}", file.display());
            }
        }
    }
}

/// SQL text is rendered in one place per store; everywhere else it comes from a template, and values are bound. A template is a
/// literal, except where it contains a part of the migrations.
#[test]
fn sql_is_asserted_safe_in_one_place_per_store() {
    let stores = concat!(env!("CARGO_MANIFEST_DIR"), "/../postrider-stores/src");
    // schema.rs runs the migrations, which are templates; SQLite's does so in a test.
    let places = [
        ("AssertSqlSafe(", "postgres", &["names.rs", "schema.rs"][..]),
        ("AssertSqlSafe(", "postgres/drivers", &[]),
        ("AssertSqlSafe(", "sqlite", &["names.rs", "schema.rs"]),
        ("AssertSqlSafe(", "sqlite/drivers", &[]),
        ("Template::of_", "postgres", &["repair.rs", "statement.rs"]),
        ("Template::of_", "sqlite", &["bulk_insert.rs", "erase.rs", "repair.rs", "schema.rs"]),
    ];
    for (call, store, expected) in places {
        let mut places = Vec::new();
        for file in std::fs::read_dir(format!("{stores}/{store}")).unwrap() {
            let path = file.unwrap().path();
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            if text.contains(call) {
                places.push(path.file_name().unwrap().to_string_lossy().into_owned());
            }
        }
        places.sort();
        assert_eq!(places, expected, "{call} in {store}");
    }
}
