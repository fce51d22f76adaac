//! The programs that tests run besides the servers: those of other languages, and a pooler. And what a build with all features
//! needs besides Rust.

use std::process::Command;

use postrider_servers::process::succeeds;

/// How to see that a program is there, and the Debian package that brings it.
pub(crate) type Tool = (&'static [&'static str], &'static str);

const PYTHON: Tool = (&["python3", "--version"], "python3");

/// What the tests of SQLite run their examples with: Python brings a client along. A damaged file is mended by its own shell.
pub(crate) const SQLITE: &[Tool] = &[PYTHON, (&["sqlite3", "--version"], "sqlite3")];

/// What the tests of PostgreSQL run their examples with.
pub(crate) const POSTGRES: &[Tool] = &[
    (&["psql", "--version"], "postgresql-client"),
    PYTHON,
    (&["python3", "-m", "pip", "--version"], "python3-pip"),
    (&["node", "--version"], "nodejs"),
    (&["npm", "--version"], "npm"),
    // By its path: Debian puts it where only root looks.
    (&["/usr/sbin/pgbouncer", "--version"], "pgbouncer"),
];

/// What compiles the client of Kafka, which is written in C.
pub(crate) const BUILD: &[Tool] = &[
    (&["gcc", "--version"], "gcc"),
    (&["g++", "--version"], "g++"),
    (&["make", "--version"], "make"),
    (&["pkg-config", "--version"], "pkg-config"),
    (&["pkg-config", "--exists", "openssl"], "libssl-dev"),
];

/// The packages of those programs that are missing. A missing program is a failure, like a missing server.
pub(crate) fn missing_packages(tools: &[Tool]) -> Vec<&'static str> {
    let there = |command: &[&str]| succeeds(Command::new(command[0]).args(&command[1..]));
    tools.iter().filter(|(command, _)| !there(command)).map(|(_, package)| *package).collect()
}
