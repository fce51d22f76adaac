//! Redis.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use crate::home::Home;
use crate::kind::Kind;
use crate::ports::connect;
use crate::recipe::Recipe;

/// How to run Redis. It writes every command to its log before it answers; what it has confirmed survives the end of the
/// process.
#[derive(Debug, Clone)]
pub struct Redis {
    program: PathBuf,
    arguments: Vec<String>,
}

impl Redis {
    /// With `redis-server` in a folder.
    pub fn new(programs: &Path) -> Self {
        Self { program: programs.join("redis-server"), arguments: Vec::new() }
    }

    /// With more arguments on its command line.
    #[must_use]
    pub fn with_arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(ToString::to_string));
        self
    }
}

impl Recipe for Redis {
    fn kind(&self) -> Kind {
        Kind::Redis
    }

    fn ports(&self) -> usize {
        1
    }

    fn prepare(&self, home: &Home) -> Result<()> {
        home.check(&self.program)?;
        home.folder("data").map(drop)
    }

    fn commands(&self, home: &Home, ports: &[u16]) -> Vec<Command> {
        let mut redis = home.command(&self.program, self.crash());
        redis.args(["--bind", "127.0.0.1", "--port", &ports[0].to_string()]);
        redis.arg("--dir").arg(home.path().join("data"));
        // Unlike `everysec`, `no` never puts off a write because the disk is busy with the one before.
        redis.args(["--appendonly", "yes", "--appendfsync", "no", "--save", ""]);
        redis.args(&self.arguments);
        vec![redis]
    }

    fn identify(&self, _: &Home, ports: &[u16], id: u32) -> Result<String> {
        let mut stream = connect(ports[0])?;
        // While it reads its log it answers both with an error.
        stream.write_all(b"PING\r\nINFO server\r\n")?;
        let mut lines = BufReader::new(stream).lines();
        let pong = lines.next().context("no answer")??;
        if pong != "+PONG" {
            bail!("it answers {pong}");
        }
        let mut version = None;
        for line in lines {
            let line = line?;
            match line.split_once(':') {
                Some(("redis_version", text)) => version = Some(text.to_owned()),
                Some(("process_id", text)) if text == id.to_string() => {
                    return version.context("it does not tell its version");
                }
                Some(("process_id", text)) => bail!("port {} belongs to process {text}", ports[0]),
                _ => {}
            }
        }
        bail!("it does not tell who it is")
    }

    fn url(&self, ports: &[u16]) -> String {
        format!("redis://127.0.0.1:{}", ports[0])
    }

    fn stop(&self) -> Signal {
        Signal::SIGTERM
    }

    fn crash(&self) -> Signal {
        Signal::SIGKILL
    }
}
