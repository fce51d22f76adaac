//! What `--only` can name.
//!
//! A test that needs a server lives in an integration test binary named after it:
//! `tests/postgres.rs` or `tests/postgres_….rs`, in any crate. One that needs two is named after the rarer one, whose suite
//! lists both.

use anyhow::{Result, bail};
use postrider_servers::Kind;

use crate::tools::{self, Tool};

/// Which tests belong to a suite.
#[derive(Debug, Clone, Copy)]
enum Tests {
    /// Those of one package.
    Package(&'static str),
    /// Integration test binaries whose name starts so, in every package.
    Binaries(&'static str),
}

/// One name that `--only` takes.
#[derive(Debug)]
pub(crate) struct Suite {
    name: &'static str,
    servers: &'static [Kind],
    tools: &'static [Tool],
    tests: Tests,
}

const SUITES: &[Suite] = &[
    Suite { name: "core", servers: &[], tools: &[], tests: Tests::Package("postrider-core") },
    Suite { name: "memory", servers: &[], tools: &[], tests: Tests::Binaries("memory") },
    Suite { name: "sqlite", servers: &[], tools: tools::SQLITE, tests: Tests::Binaries("sqlite") },
    Suite {
        name: "postgres",
        servers: &[Kind::Postgres],
        tools: tools::POSTGRES,
        tests: Tests::Binaries("postgres"),
    },
    // The receivers of webhooks are servers that the tests start themselves. With a database, because messages go from one to another.
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
    // One daemon that carries everywhere, out of the transactions of other languages.
    Suite {
        name: "daemon",
        servers: &[Kind::Postgres, Kind::RabbitMq, Kind::Nats, Kind::Redis, Kind::Kafka],
        tools: tools::POSTGRES,
        tests: Tests::Binaries("daemon"),
    },
];

/// What `cargo xtask faults` can name: the relay's fault matrix, on each kind of broker.
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
    pub(crate) fn documented(&self) -> Option<&'static str> {
        match self.tests {
            Tests::Package(package) => Some(package),
            Tests::Binaries(_) => None,
        }
    }

    /// Cargo's own arguments that build and run these tests and no others.
    pub(crate) fn targets(&self) -> Vec<String> {
        match self.tests {
            Tests::Package(package) => vec!["--package".into(), package.into()],
            Tests::Binaries(prefix) => vec!["--workspace".into(), "--test".into(), format!("{prefix}*")],
        }
    }

    /// The same tests as a nextest expression, which unlike cargo's arguments can be joined.
    pub(crate) fn expression(&self) -> String {
        match self.tests {
            Tests::Package(package) => format!("package({package})"),
            Tests::Binaries(prefix) => format!("binary(/^{prefix}/)"),
        }
    }
}

/// The tests that a run is narrowed to.
#[derive(Debug)]
pub(crate) struct Selection {
    suites: Vec<&'static Suite>,
}

impl Selection {
    /// Looks names up; none means everything.
    pub(crate) fn named(names: &[String]) -> Result<Self> {
        Self::among(SUITES, names)
    }

    /// The fault matrix on these brokers; none means all that have one.
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
                bail!("`--only` does not know `{name}`; it knows: {known}");
            };
            if !suites.iter().any(|chosen| chosen.name == suite.name) {
                suites.push(suite);
            }
        }
        Ok(Self { suites })
    }

    /// The chosen suites; empty means everything.
    pub(crate) fn suites(&self) -> &[&'static Suite] {
        &self.suites
    }

    /// The programs of other languages that these tests need.
    pub(crate) fn tools(&self) -> Vec<Tool> {
        let mut tools: Vec<Tool> = self.meant().flat_map(|suite| suite.tools.iter().copied()).collect();
        tools.sort_unstable();
        tools.dedup();
        tools
    }

    /// The servers that these tests need.
    pub(crate) fn servers(&self) -> Vec<Kind> {
        let mut servers: Vec<Kind> = self.meant().flat_map(|suite| suite.servers.iter().copied()).collect();
        servers.sort_unstable();
        servers.dedup();
        servers
    }

    fn meant(&self) -> impl Iterator<Item = &'static Suite> {
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
    fn programs_are_asked_for_by_the_tests_that_run_them() {
        let packages = |names: &[&str]| -> Vec<_> {
            only(names).tools().into_iter().map(|(_, package)| package).collect()
        };
        assert!(packages(&["core", "memory"]).is_empty());
        assert_eq!(packages(&["sqlite"]), ["python3", "sqlite3"]);
        assert_eq!(packages(&[]), packages(&["sqlite", "postgres"]));
        assert_eq!(packages(&[]).len(), tools::POSTGRES.len() + 1, "each once, and the shell of SQLite");
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = Selection::named(&["postgress".into()]).unwrap_err().to_string();
        assert_eq!(
            error,
            "`--only` does not know `postgress`; it knows: core, memory, sqlite, postgres, http, rabbitmq, nats, redis, kafka, sqs, daemon"
        );
    }

    #[test]
    fn faults_are_binaries_of_their_own() {
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
    fn a_suite_of_a_server_is_the_binaries_named_after_it() {
        let suite = only(&["postgres"]).suites()[0];
        assert_eq!(suite.targets(), ["--workspace", "--test", "postgres*"]);
        assert_eq!(suite.expression(), "binary(/^postgres/)");
    }
}
