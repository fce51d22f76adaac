//! moto, which plays SQS and SNS in memory.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use nix::sys::signal::Signal;

use crate::home::Home;
use crate::http;
use crate::kind::Kind;
use crate::process;
use crate::recipe::Recipe;

/// Starts it such that requests take turns.
const ORDERLY: &str = include_str!("moto/orderly.py");
/// The name of that in its folder.
const SCRIPT: &str = "orderly.py";

/// How to run moto. What it holds is gone with the process.
#[derive(Debug, Clone)]
pub struct Moto {
    python: PathBuf,
}

impl Moto {
    /// With the `python` of a virtual environment in a folder, in which moto is installed.
    pub fn new(programs: &Path) -> Self {
        Self { python: programs.join("python") }
    }
}

impl Recipe for Moto {
    fn kind(&self) -> Kind {
        Kind::Sqs
    }

    fn ports(&self) -> usize {
        1
    }

    fn prepare(&self, home: &Home) -> Result<()> {
        home.check(&self.python)?;
        home.file(SCRIPT, ORDERLY).map(drop)
    }

    fn commands(&self, home: &Home, ports: &[u16]) -> Vec<Command> {
        let mut moto = home.command(&self.python, self.crash());
        // It must not write its bytecode where it is installed.
        moto.env("PYTHONDONTWRITEBYTECODE", "1").env("PYTHONUNBUFFERED", "1").env("HOME", home.path());
        moto.arg(home.path().join(SCRIPT)).args(["-H", "127.0.0.1", "-p", &ports[0].to_string()]);
        vec![moto]
    }

    fn identify(&self, home: &Home, ports: &[u16], _: u32) -> Result<String> {
        http::get(ports[0], "/moto-api/")?;
        let version = "import importlib.metadata; print(importlib.metadata.version('moto'))";
        let mut python = home.command(&self.python, self.crash());
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
