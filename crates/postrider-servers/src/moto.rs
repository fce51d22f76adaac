//! moto, which emulates SQS and SNS in memory.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use nix::sys::signal::Signal;

use crate::http;
use crate::kind::Kind;
use crate::process;
use crate::server_dir::ServerDir;
use crate::spec::ServerSpec;

/// Starts moto and serializes the requests to its queues.
const SERIALIZE_REQUESTS: &str = include_str!("moto/serialize_requests.py");
/// The name of that script in the server's folder.
const SCRIPT: &str = "serialize_requests.py";

/// How to run moto. Its data is lost at the end of the process.
#[derive(Debug, Clone)]
pub struct Moto {
    python: PathBuf,
}

impl Moto {
    /// Uses the `python` in the folder `programs` of a virtual environment with moto.
    pub fn new(programs: &Path) -> Self {
        Self { python: programs.join("python") }
    }
}

impl ServerSpec for Moto {
    fn kind(&self) -> Kind {
        Kind::Sqs
    }

    fn ports(&self) -> usize {
        1
    }

    fn prepare(&self, dir: &ServerDir) -> Result<()> {
        dir.check(&self.python)?;
        dir.file(SCRIPT, SERIALIZE_REQUESTS).map(drop)
    }

    fn commands(&self, dir: &ServerDir, ports: &[u16]) -> Vec<Command> {
        let mut moto = dir.command(&self.python, self.crash());
        // It must not write bytecode into its installation.
        moto.env("PYTHONDONTWRITEBYTECODE", "1").env("PYTHONUNBUFFERED", "1").env("HOME", dir.path());
        moto.arg(dir.path().join(SCRIPT)).args(["-H", "127.0.0.1", "-p", &ports[0].to_string()]);
        vec![moto]
    }

    fn identify(&self, dir: &ServerDir, ports: &[u16], _: u32) -> Result<String> {
        http::get(ports[0], "/moto-api/")?;
        let version = "import importlib.metadata; print(importlib.metadata.version('moto'))";
        let mut python = dir.command(&self.python, self.crash());
        Ok(process::output(python.args(["-c", version]))?.trim().to_owned())
    }

    fn url(&self, ports: &[u16]) -> String {
        format!("http://127.0.0.1:{}", ports[0])
    }

    fn stop(&self) -> Signal {
        Signal::SIGTERM
    }

    fn crash(&self) -> Signal {
        Signal::SIGKILL
    }
}
