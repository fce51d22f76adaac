//! The programs that tests run besides the servers: those of other languages, and a pooler.

use std::process::Command;

use anyhow::{Result, bail};
use nix::unistd::geteuid;

use crate::postgres::Missing;
use crate::postgres::apt::{Policy, apt_get};
use crate::process::succeeds;
use crate::terminal::say;

/// How to see that a program is there, and the Debian package that brings it.
pub(crate) type Tool = (&'static [&'static str], &'static str);

const PYTHON: Tool = (&["python3", "--version"], "python3");

/// What the tests of SQLite run their examples with: Python brings a client along.
pub(crate) const SQLITE: &[Tool] = &[PYTHON];

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

/// Installs those of the programs that are missing. A missing program is a failure, like a missing server.
pub(crate) fn ensure(tools: &[Tool], missing: Missing) -> Result<()> {
    let there = |command: &[&str]| succeeds(Command::new(command[0]).args(&command[1..]));
    let packages: Vec<&str> =
        tools.iter().filter(|(command, _)| !there(command)).map(|(_, package)| *package).collect();
    if packages.is_empty() {
        return Ok(());
    }
    let names = packages.join(" ");
    if missing == Missing::Fail || !geteuid().is_root() || !succeeds(Command::new("apt-get").arg("--version"))
    {
        bail!(
            "programs that the tests need are missing; as root, run: \
             apt-get update && apt-get install -y --no-install-recommends {names}"
        );
    }
    say(&format!("installing {names}"));
    // Some of them bring a service, which nobody asked for.
    let _policy = Policy::forbid_services()?;
    apt_get(&["update"])?;
    apt_get(&[&["install", "-y", "--no-install-recommends"], &packages[..]].concat())
}
