//! The programs that tests need in addition to the servers (other languages, a pooler), and the tools that a build with all
//! features needs in addition to Rust.

use std::process::Command;

use postrider_servers::process::succeeds;

/// A command that succeeds if a program is installed, and the Debian package of the program.
pub(crate) type Tool = (&'static [&'static str], &'static str);

const PYTHON: Tool = (&["python3", "--version"], "python3");

/// By its path: Debian installs it in a folder that is only on root's PATH.
pub(crate) const POOLER: Tool = (&["/usr/sbin/pgbouncer", "--version"], "pgbouncer");

/// The tools of the SQLite tests: Python includes a client; SQLite's shell repairs a damaged file.
pub(crate) const SQLITE: &[Tool] = &[PYTHON, (&["sqlite3", "--version"], "sqlite3")];

/// The tools of the PostgreSQL tests.
pub(crate) const POSTGRES: &[Tool] = &[
    (&["psql", "--version"], "postgresql-client"),
    PYTHON,
    (&["python3", "-m", "pip", "--version"], "python3-pip"),
    (&["node", "--version"], "nodejs"),
    (&["npm", "--version"], "npm"),
    POOLER,
    (&["faketime", "--version"], "faketime"),
];

/// The tools that compile the Kafka client, which is written in C.
pub(crate) const BUILD: &[Tool] = &[
    (&["gcc", "--version"], "gcc"),
    (&["g++", "--version"], "g++"),
    (&["make", "--version"], "make"),
    (&["pkg-config", "--version"], "pkg-config"),
    (&["pkg-config", "--exists", "openssl"], "libssl-dev"),
];

/// The packages of the missing programs. A missing program fails the run, like a missing server.
pub(crate) fn missing_packages(tools: &[Tool]) -> Vec<&'static str> {
    let there = |command: &[&str]| succeeds(Command::new(command[0]).args(&command[1..]));
    tools.iter().filter(|(command, _)| !there(command)).map(|(_, package)| *package).collect()
}
