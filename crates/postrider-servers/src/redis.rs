//! Redis.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use crate::kind::Kind;
use crate::ports::connect;
use crate::server_dir::ServerDir;
use crate::spec::ServerSpec;

/// How to run Redis. It writes every command to its log before it replies; confirmed commands survive the end of the process.
#[derive(Debug, Clone)]
pub struct Redis {
    program: PathBuf,
    arguments: Vec<String>,
}

impl Redis {
    /// Uses `redis-server` in the folder `programs`.
    pub fn new(programs: &Path) -> Self {
        Self { program: programs.join("redis-server"), arguments: Vec::new() }
    }

    /// Adds arguments to its command line.
    #[must_use]
    pub fn with_arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(ToString::to_string));
        self
    }
}

impl ServerSpec for Redis {
    fn kind(&self) -> Kind {
        Kind::Redis
    }

    fn ports(&self) -> usize {
        1
    }

    fn prepare(&self, dir: &ServerDir) -> Result<()> {
        dir.check(&self.program)?;
        dir.folder("data").map(drop)
    }

    fn commands(&self, dir: &ServerDir, ports: &[u16]) -> Vec<Command> {
        let mut redis = dir.command(&self.program, self.crash());
        redis.args(["--bind", "127.0.0.1", "--port", &ports[0].to_string()]);
        redis.arg("--dir").arg(dir.path().join("data"));
        // Unlike `everysec`, `no` never delays a write because the disk is busy with the previous one.
        redis.args(["--appendonly", "yes", "--appendfsync", "no", "--save", ""]);
        redis.args(&self.arguments);
        vec![redis]
    }

    fn identify(&self, _: &ServerDir, ports: &[u16], id: u32) -> Result<String> {
        let mut stream = connect(ports[0])?;
        // While it loads its log it replies to both with an error.
        stream.write_all(b"PING\r\nINFO server\r\n")?;
        let mut lines = BufReader::new(stream).lines();
        let pong = lines.next().context("no reply")??;
        if pong != "+PONG" {
            bail!("PING: {pong}");
        }
        let mut version = None;
        for line in lines {
            let line = line?;
            match line.split_once(':') {
                Some(("redis_version", text)) => version = Some(text.to_owned()),
                Some(("process_id", text)) if text == id.to_string() => {
                    return version.context("INFO has no version");
                }
                Some(("process_id", text)) => bail!("port {} belongs to process {text}", ports[0]),
                _ => {}
            }
        }
        bail!("INFO has no process id")
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
