//! NATS with JetStream.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use crate::home::Home;
use crate::http;
use crate::kind::Kind;
use crate::ports::connect;
use crate::recipe::Recipe;

/// How to run NATS. It keeps streams in files; what it has confirmed survives the end of the process.
#[derive(Debug, Clone)]
pub struct Nats {
    program: PathBuf,
    arguments: Vec<String>,
}

impl Nats {
    /// With `nats-server` in a folder.
    pub fn new(programs: &Path) -> Self {
        Self { program: programs.join("nats-server"), arguments: Vec::new() }
    }

    /// With more arguments on its command line.
    #[must_use]
    pub fn with_arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(ToString::to_string));
        self
    }
}

impl Recipe for Nats {
    fn kind(&self) -> Kind {
        Kind::Nats
    }

    /// For clients, and for questions about its health.
    fn ports(&self) -> usize {
        2
    }

    fn prepare(&self, home: &Home) -> Result<()> {
        home.check(&self.program)?;
        home.folder("data").map(drop)
    }

    fn commands(&self, home: &Home, ports: &[u16]) -> Vec<Command> {
        let mut nats = home.command(&self.program, self.crash());
        nats.args(["--addr", "127.0.0.1", "--port", &ports[0].to_string()]);
        nats.args(["--http_port", &ports[1].to_string(), "--name", home.tag()]);
        nats.arg("--jetstream").arg("--store_dir").arg(home.path().join("data"));
        nats.args(&self.arguments);
        vec![nats]
    }

    fn identify(&self, home: &Home, ports: &[u16], _: u32) -> Result<String> {
        // Healthy means, among other things, that the streams have been read.
        http::get(ports[1], "/healthz")?;
        let mut greeting = String::new();
        BufReader::new(connect(ports[0])?).read_line(&mut greeting)?;
        let greeting = greeting.strip_prefix("INFO ").context("this is not NATS")?;
        let greeting: serde_json::Value = serde_json::from_str(greeting)?;
        let field = |name: &str| greeting[name].as_str().unwrap_or_default().to_owned();
        if field("server_name") != home.tag() {
            bail!("port {} belongs to {}", ports[0], field("server_name"));
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
