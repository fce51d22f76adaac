//! The suites that `--only` selects.
//!
//! A test that needs a server is in an integration test binary named after the server:
//! `tests/postgres.rs` or `tests/postgres_….rs`, in any crate. A test that needs two servers is named after the rarer one, whose
//! suite lists both.

use anyhow::{Result, bail};
use postrider_servers::Kind;

use crate::tools::{self, Tool};

/// The tests of a suite.
#[derive(Debug, Clone, Copy)]
enum Tests {
    /// The tests of one package.
    Package(&'static str),
    /// The integration test binaries with this prefix, in every package.
    Binaries(&'static str),
}

/// A suite that `--only` can select.
#[derive(Debug)]
pub(crate) struct Suite {
    name: &'static str,
    servers: &'static [Kind],
    tools: &'static [Tool],
    tests: Tests,
}

const SUITES: &[Suite] = &[
    Suite { name: "core", servers: &[], tools: &[], tests: Tests::Package("postrider-core") },
    Suite { name: "tls", servers: &[], tools: &[], tests: Tests::Package("postrider-tls") },
    Suite { name: "memory", servers: &[], tools: &[], tests: Tests::Binaries("memory") },
    Suite { name: "sqlite", servers: &[], tools: tools::SQLITE, tests: Tests::Binaries("sqlite") },
    Suite {
        name: "postgres",
        servers: &[Kind::Postgres],
        tools: tools::POSTGRES,
        tests: Tests::Binaries("postgres"),
    },
    // The tests start the receivers of webhooks themselves. They need a database, because messages go from one to another.
    Suite { name: "http", servers: &[Kind::Postgres], tools: &[], tests: Tests::Binaries("http") },
    Suite {
        name: "rabbitmq",
        servers: &[Kind::Postgres, Kind::RabbitMq],
        tools: &[],
        tests: Tests::Binaries("rabbitmq"),
    },
    Suite {
        name: "nats",
        servers: &[Kind::Postgres, Kind::Nats],
        tools: &[],
        tests: Tests::Binaries("nats"),
    },
    Suite {
        name: "redis",
        servers: &[Kind::Postgres, Kind::Redis],
        tools: &[],
        tests: Tests::Binaries("redis"),
    },
    Suite {
        name: "kafka",
        servers: &[Kind::Postgres, Kind::Kafka],
        tools: &[],
        tests: Tests::Binaries("kafka"),
    },
    Suite { name: "sqs", servers: &[Kind::Postgres, Kind::Sqs], tools: &[], tests: Tests::Binaries("sqs") },
    // One daemon that relays to every broker, from the transactions of other languages.
    Suite {
        name: "daemon",
        servers: &[Kind::Postgres, Kind::RabbitMq, Kind::Nats, Kind::Redis, Kind::Kafka],
        tools: tools::POSTGRES,
        tests: Tests::Binaries("daemon"),
    },
    // A short run of `cargo xtask soak`, which starts its own servers.
    Suite {
        name: "soak",
        servers: &[Kind::Postgres, Kind::Nats],
        tools: &[tools::POOLER],
        tests: Tests::Binaries("soak"),
    },
];

/// The suites of `cargo xtask faults`: the relay's fault matrix on each kind of broker.
const FAULTS: &[Suite] = &[
    Suite { name: "http", servers: &[], tools: &[], tests: Tests::Binaries("http_faults") },
    Suite {
        name: "rabbitmq",
        servers: &[Kind::RabbitMq],
        tools: &[],
        tests: Tests::Binaries("rabbitmq_faults"),
    },
    Suite { name: "nats", servers: &[Kind::Nats], tools: &[], tests: Tests::Binaries("nats_faults") },
    Suite { name: "redis", servers: &[Kind::Redis], tools: &[], tests: Tests::Binaries("redis_faults") },
    Suite { name: "kafka", servers: &[Kind::Kafka], tools: &[], tests: Tests::Binaries("kafka_faults") },
    Suite { name: "sqs", servers: &[Kind::Sqs], tools: &[], tests: Tests::Binaries("sqs_faults") },
];

impl Suite {
    /// The package whose documentation tests belong to this suite.
    pub(crate) fn doc_test_package(&self) -> Option<&'static str> {
        match self.tests {
            Tests::Package(package) => Some(package),
            Tests::Binaries(_) => None,
        }
    }

    /// The arguments of cargo that build and run exactly these tests.
    pub(crate) fn targets(&self) -> Vec<String> {
        match self.tests {
            Tests::Package(package) => vec!["--package".into(), package.into()],
            Tests::Binaries(prefix) => vec!["--workspace".into(), "--test".into(), format!("{prefix}*")],
        }
    }

    /// The same tests as a nextest filter expression, which can be combined with others.
    pub(crate) fn expression(&self) -> String {
        match self.tests {
            Tests::Package(package) => format!("package({package})"),
            Tests::Binaries(prefix) => format!("binary(/^{prefix}/)"),
        }
    }
}

/// The suites that a run is limited to.
#[derive(Debug)]
pub(crate) struct Selection {
    suites: Vec<&'static Suite>,
}

impl Selection {
    /// Selects suites by name; no name selects everything.
    pub(crate) fn named(names: &[String]) -> Result<Self> {
        Self::among(SUITES, names)
    }

    /// Selects the fault matrix on these brokers; no name selects all.
    pub(crate) fn faults(names: &[String]) -> Result<Self> {
        match names {
            [] => Ok(Self { suites: FAULTS.iter().collect() }),
            names => Self::among(FAULTS, names),
        }
    }

    fn among(known: &'static [Suite], names: &[String]) -> Result<Self> {
        let mut suites: Vec<&'static Suite> = Vec::new();
        for name in names {
            let Some(suite) = known.iter().find(|suite| suite.name == name) else {
                let known = known.iter().map(|suite| suite.name).collect::<Vec<_>>().join(", ");
                bail!("unknown suite `{name}` in `--only`; known suites: {known}");
            };
            if !suites.iter().any(|chosen| chosen.name == suite.name) {
                suites.push(suite);
            }
        }
        Ok(Self { suites })
    }

    /// The selected suites; empty means everything.
    pub(crate) fn suites(&self) -> &[&'static Suite] {
        &self.suites
    }

    /// The tools that these tests need.
    pub(crate) fn tools(&self) -> Vec<Tool> {
        let mut tools: Vec<Tool> = self.selected().flat_map(|suite| suite.tools.iter().copied()).collect();
        tools.sort_unstable();
        tools.dedup();
        tools
    }

    /// The servers that these tests need.
    pub(crate) fn servers(&self) -> Vec<Kind> {
        let mut servers: Vec<Kind> =
            self.selected().flat_map(|suite| suite.servers.iter().copied()).collect();
        servers.sort_unstable();
        servers.dedup();
        servers
    }

    fn selected(&self) -> impl Iterator<Item = &'static Suite> {
        let everything = if self.suites.is_empty() { SUITES } else { &[] };
        self.suites.iter().copied().chain(everything)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(names: &[&str]) -> Selection {
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        Selection::named(&names).unwrap()
    }

    #[test]
    fn servers_start_only_for_the_tests_that_need_them() {
        assert_eq!(only(&[]).servers(), Kind::ALL);
        assert_eq!(only(&["nats", "core", "postgres"]).servers(), [Kind::Postgres, Kind::Nats]);
        assert!(only(&["core", "memory"]).servers().is_empty());
    }

    #[test]
    fn tools_are_required_only_by_the_tests_that_run_them() {
        let packages = |names: &[&str]| -> Vec<_> {
            only(names).tools().into_iter().map(|(_, package)| package).collect()
        };
        assert!(packages(&["core", "memory"]).is_empty());
        assert_eq!(packages(&["sqlite"]), ["python3", "sqlite3"]);
        assert_eq!(packages(&[]), packages(&["sqlite", "postgres"]));
        assert_eq!(packages(&[]).len(), tools::POSTGRES.len() + 1, "each once, and SQLite's shell");
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = Selection::named(&["postgress".into()]).unwrap_err().to_string();
        assert_eq!(
            error,
            "unknown suite `postgress` in `--only`; known suites: core, tls, memory, sqlite, postgres, http, rabbitmq, nats, redis, kafka, sqs, daemon, soak"
        );
    }

    #[test]
    fn fault_tests_are_separate_binaries() {
        let faults = Selection::faults(&["rabbitmq".into()]).unwrap();
        assert_eq!(faults.servers(), [Kind::RabbitMq]);
        assert_eq!(faults.suites()[0].targets(), ["--workspace", "--test", "rabbitmq_faults*"]);
        assert_eq!(Selection::faults(&[]).unwrap().suites().len(), FAULTS.len());
        assert!(Selection::faults(&["core".into()]).is_err());
    }

    #[test]
    fn a_name_given_twice_counts_once() {
        assert_eq!(only(&["core", "core"]).suites().len(), 1);
    }

    #[test]
    fn a_server_suite_selects_the_binaries_with_its_name() {
        let suite = only(&["postgres"]).suites()[0];
        assert_eq!(suite.targets(), ["--workspace", "--test", "postgres*"]);
        assert_eq!(suite.expression(), "binary(/^postgres/)");
    }
}
