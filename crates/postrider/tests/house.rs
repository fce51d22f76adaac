//! The plan of the house: which room may touch which, checked against what cargo knows.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use cargo_metadata::{DependencyKind, MetadataCommand, Package};
use std::collections::{BTreeMap, BTreeSet};

/// What each room may depend on besides the libraries in `ANYBODY`. A room that is not listed here is not built yet.
const ROOMS: [(&str, &[&str]); 11] = [
    ("postrider-core", &["opentelemetry", "rand", "sha2", "tracing", "tracing-opentelemetry"]),
    (
        "postrider-stores",
        &[
            "postrider-core",
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
            "async-nats",
            "aws-config",
            "aws-credential-types",
            "aws-sdk-sns",
            "aws-sdk-sqs",
            "aws-smithy-http-client",
            "aws-smithy-runtime-api",
            "aws-smithy-types",
            "axum",
            "futures-util",
            "hmac",
            "httpdate",
            "hyper-util",
            "ipnet",
            "lapin",
            "percent-encoding",
            "rdkafka",
            "redis",
            "reqwest",
            "rustls",
            "rustls-platform-verifier",
            "sha2",
            "tokio",
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
            "sqlx",
            "tokio",
        ],
    ),
    ("postrider-testing", &["postrider-core", "postrider-engine", "postrider-stores"]),
    (
        "postrider",
        &[
            "postrider-core",
            "postrider-engine",
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
            "hdrhistogram",
            "indicatif",
            "metrics",
            "metrics-exporter-prometheus",
            "miette",
            "opentelemetry",
            "opentelemetry-otlp",
            "opentelemetry_sdk",
            "rand",
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
    ("xtask", &["postrider-servers", "anyhow", "clap", "nix", "signal-hook", "tempfile"]),
];

/// Plain data: no I/O, no runtime, no clock.
const ANYBODY: [&str; 7] = ["async-trait", "base64", "bytes", "serde", "serde_json", "thiserror", "uuid"];

fn workspace() -> Vec<Package> {
    let metadata = MetadataCommand::new().no_deps().exec().unwrap();
    metadata.workspace_packages().into_iter().cloned().collect()
}

fn normal_dependencies(package: &Package) -> BTreeSet<String> {
    let normal = package.dependencies.iter().filter(|dependency| dependency.kind == DependencyKind::Normal);
    normal.map(|dependency| dependency.name.clone()).collect()
}

#[test]
fn every_room_touches_only_what_it_may() {
    let rooms: BTreeMap<_, _> = ROOMS.into_iter().collect();
    for package in workspace() {
        let name = package.name.as_str();
        let may = rooms.get(name).unwrap_or_else(|| panic!("{name} is no room of the plan: add it to ROOMS"));
        for dependency in normal_dependencies(&package) {
            assert!(
                may.contains(&dependency.as_str()) || ANYBODY.contains(&dependency.as_str()),
                "{name} must not touch {dependency}"
            );
        }
    }
}

#[test]
fn only_tests_depend_on_the_test_kit() {
    for package in workspace() {
        assert!(!normal_dependencies(&package).contains("postrider-testkit"), "{} does", package.name);
    }
}

/// Nothing that we ship starts servers.
#[test]
fn only_those_who_test_depend_on_servers() {
    for package in workspace() {
        let may = ["postrider-testkit", "xtask"].contains(&package.name.as_str());
        assert!(may || !normal_dependencies(&package).contains("postrider-servers"), "{} does", package.name);
    }
}

/// What users test with is theirs to ask for. It brings the store in memory and no driver, and nothing that we ship needs it.
#[test]
fn what_users_test_with_is_optional_and_brings_no_driver() {
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
                assert!(!dependency.features.contains(&"testing".to_owned()), "{name} rehearses");
            }
        }
    }
}

/// Nobody gets OpenTelemetry who did not ask for it, and nobody gets its machinery: that is the application's choice. The core
/// takes nothing of it, nor of `tracing`, unless it is asked to. The program is an application itself, and may be built with it.
#[test]
fn opentelemetry_is_optional_and_never_its_sdk() {
    for package in workspace() {
        let name = package.name.as_str();
        let normal = package.dependencies.iter().filter(|each| each.kind == DependencyKind::Normal);
        for dependency in normal.filter(|_| name != "postrider-testkit") {
            let of_core = name == "postrider-core" && dependency.name == "tracing";
            if of_core || dependency.name.contains("opentelemetry") {
                assert!(dependency.optional, "{name} always depends on {}", dependency.name);
                let is_machinery = dependency.name == "opentelemetry_sdk" && name != "postrider-cli";
                assert!(!is_machinery, "{name} depends on {}", dependency.name);
            }
        }
        for feature in package.features.get("default").into_iter().flatten() {
            let is_of_it = feature.contains("opentelemetry") || feature == "otlp";
            assert!(!is_of_it, "{name} has it by default");
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

/// Siblings do not know each other: one module per store, and one driver in each.
#[test]
fn no_store_knows_another() {
    let stores = concat!(env!("CARGO_MANIFEST_DIR"), "/../postrider-stores/src");
    let names = ["memory", "sqlite", "postgres"];
    for name in names {
        for file in std::fs::read_dir(format!("{stores}/{name}")).unwrap() {
            let path = file.unwrap().path();
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            for other in names.iter().filter(|other| **other != name) {
                assert!(!text.contains(&format!("crate::{other}")), "{} knows {other}", path.display());
            }
        }
    }
}

/// Nobody gets a driver that they did not ask for, and no driver's module knows another.
#[test]
fn every_driver_is_optional_and_alone() {
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
            // SeaORM has no rows of its own in SQLite: they are those of the sqlx below, and so are the types in them.
            let text = text.replace("use sqlx::{Decode, Sqlite, Type};", "");
            for other in modules.iter().filter(|other| *other != module) {
                assert!(!text.contains(&format!("{other}::")), "{store}: {module} knows {other}");
            }
        }
    }
}

/// A file, or all that are in a folder and in those below it.
fn files_in(path: std::path::PathBuf) -> Vec<std::path::PathBuf> {
    if !path.is_dir() {
        return vec![path];
    }
    std::fs::read_dir(&path).unwrap().flat_map(|entry| files_in(entry.unwrap().path())).collect()
}

/// Nobody gets a client that they did not ask for, and no transport knows another.
#[test]
fn every_client_is_optional_and_alone() {
    let packages = workspace();
    let transports = packages.iter().find(|package| package.name.as_str() == "postrider-transports").unwrap();
    let always = ["postrider-core", "tokio"];
    for dependency in transports.dependencies.iter().filter(|each| each.kind == DependencyKind::Normal) {
        let name = dependency.name.as_str();
        assert!(
            dependency.optional || always.contains(&name) || ANYBODY.contains(&name),
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
                assert!(!text.contains(&format!("{client}::")), "{} knows {client}", file.display());
            }
        }
    }
}

/// SQL text is put together in one place; everywhere else it comes from a template, and values are bound.
#[test]
fn sql_is_asserted_safe_in_one_place_only() {
    let stores = concat!(env!("CARGO_MANIFEST_DIR"), "/../postrider-stores/src");
    // PostgreSQL's schema.rs runs the migrations, which are templates too.
    let places = [
        ("postgres", &["names.rs", "schema.rs"][..]),
        ("postgres/drivers", &[]),
        ("sqlite", &["names.rs"]),
        ("sqlite/drivers", &[]),
    ];
    for (store, expected) in places {
        let mut places = Vec::new();
        for file in std::fs::read_dir(format!("{stores}/{store}")).unwrap() {
            let path = file.unwrap().path();
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            if text.contains("AssertSqlSafe(") {
                places.push(path.file_name().unwrap().to_string_lossy().into_owned());
            }
        }
        places.sort();
        assert_eq!(places, expected, "{store}");
    }
}
