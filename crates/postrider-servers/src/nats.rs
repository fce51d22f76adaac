//! NATS with JetStream.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use crate::http;
use crate::kind::Kind;
use crate::ports::connect;
use crate::server_dir::ServerDir;
use crate::spec::ServerSpec;

/// How to run NATS. It stores streams in files; confirmed messages survive the end of the process.
#[derive(Debug, Clone)]
pub struct Nats {
    program: PathBuf,
    arguments: Vec<String>,
}

impl Nats {
    /// Uses `nats-server` in the folder `programs`.
    pub fn new(programs: &Path) -> Self {
        Self { program: programs.join("nats-server"), arguments: Vec::new() }
    }

    /// Adds arguments to its command line.
    #[must_use]
    pub fn with_arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(ToString::to_string));
        self
    }
}

impl ServerSpec for Nats {
    fn kind(&self) -> Kind {
        Kind::Nats
    }

    /// One for clients and one for health checks.
    fn ports(&self) -> usize {
        2
    }

    fn prepare(&self, dir: &ServerDir) -> Result<()> {
        dir.check(&self.program)?;
        dir.folder("data").map(drop)
    }

    fn commands(&self, dir: &ServerDir, ports: &[u16]) -> Vec<Command> {
        let mut nats = dir.command(&self.program, self.crash());
        nats.args(["--addr", "127.0.0.1", "--port", &ports[0].to_string()]);
        nats.args(["--http_port", &ports[1].to_string(), "--name", dir.tag()]);
        nats.arg("--jetstream").arg("--store_dir").arg(dir.path().join("data"));
        nats.args(&self.arguments);
        vec![nats]
    }

    fn identify(&self, dir: &ServerDir, ports: &[u16], _: u32) -> Result<String> {
        // Healthy means, among other things, that the streams are loaded.
        http::get(ports[1], "/healthz")?;
        let mut greeting = String::new();
        BufReader::new(connect(ports[0])?).read_line(&mut greeting)?;
        let greeting = greeting.strip_prefix("INFO ").context("not NATS")?;
        let greeting: serde_json::Value = serde_json::from_str(greeting)?;
        let field = |name: &str| greeting[name].as_str().unwrap_or_default().to_owned();
        if field("server_name") != dir.tag() {
            bail!("port {} belongs to another server, {}", ports[0], field("server_name"));
        }
        Ok(field("version"))
    }

    fn url(&self, ports: &[u16]) -> String {
        format!("nats://127.0.0.1:{}", ports[0])
    }

    fn stop(&self) -> Signal {
        Signal::SIGTERM
    }

    fn crash(&self) -> Signal {
        Signal::SIGKILL
    }
}
