//! RabbitMQ.

mod probe;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};
use nix::sys::signal::Signal;

use crate::kind::Kind;
use crate::server_dir::ServerDir;
use crate::spec::ServerSpec;

/// How to run RabbitMQ.
///
/// A node registers with Erlang's port mapper, `epmd`. By default it would use the mapper of the whole machine, or start one that
/// outlives it. So every server here has its own mapper, started before it and stopped after it.
#[derive(Debug, Clone)]
pub struct RabbitMq {
    program: PathBuf,
    settings: String,
}

impl RabbitMq {
    /// Uses `rabbitmq-server` in the folder `programs`. It must be the program itself: Debian's `/usr/sbin/rabbitmq-server`
    /// switches the user and the folder first.
    pub fn new(programs: &Path) -> Self {
        Self { program: programs.join("rabbitmq-server"), settings: String::new() }
    }

    /// Adds lines to its configuration file.
    #[must_use]
    pub fn with_settings(mut self, lines: &[&str]) -> Self {
        self.settings.extend(lines.iter().map(|line| format!("{line}\n")));
        self
    }

    fn node(dir: &ServerDir) -> String {
        format!("{}@localhost", dir.tag())
    }
}

impl ServerSpec for RabbitMq {
    fn kind(&self) -> Kind {
        Kind::RabbitMq
    }

    /// For clients, other nodes and the port mapper.
    fn ports(&self) -> usize {
        3
    }

    fn prepare(&self, dir: &ServerDir) -> Result<()> {
        if !self.program.is_file() {
            bail!("{} does not exist", self.program.display());
        }
        dir.folder("data")?;
        if !self.settings.is_empty() {
            dir.file("settings.conf", &self.settings)?;
        }
        dir.file("plugins", "[].\n").map(drop)
    }

    fn commands(&self, dir: &ServerDir, ports: &[u16]) -> Vec<Command> {
        let [clients, nodes, mapper] = [0, 1, 2].map(|index| ports[index].to_string());
        let mut epmd = dir.command(Path::new("epmd"), self.crash());
        epmd.args(["-port", &mapper, "-address", "127.0.0.1"]);

        let mut rabbitmq = dir.command(&self.program, self.crash());
        rabbitmq
            // The folder of the Erlang cookie.
            .env("HOME", dir.path())
            .env("RABBITMQ_NODENAME", Self::node(dir))
            .env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
            .env("RABBITMQ_NODE_PORT", clients)
            .env("RABBITMQ_DIST_PORT", nodes)
            .env("ERL_EPMD_PORT", mapper)
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .env(
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
                "-start_epmd false -kernel inet_dist_use_interface {127,0,0,1}",
            )
            .env("RABBITMQ_MNESIA_BASE", dir.path().join("data"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", dir.path().join("plugins"))
            .env("RABBITMQ_LOG_BASE", dir.path())
            .env("RABBITMQ_LOGS", "-")
            // The configuration of the machine's own server must not apply.
            .env("RABBITMQ_CONFIG_FILE", dir.path().join("settings"))
            .env("RABBITMQ_ADVANCED_CONFIG_FILE", dir.path().join("none.config"))
            .env("RABBITMQ_CONF_ENV_FILE", "/dev/null")
            // Then the script execs the server, instead of being a parent that can die without it.
            .env("RUNNING_UNDER_SYSTEMD", "true")
            .env_remove("NOTIFY_SOCKET");
        vec![epmd, rabbitmq]
    }

    fn identify(&self, dir: &ServerDir, ports: &[u16], _: u32) -> Result<String> {
        let identity = probe::identify(ports[0])?;
        // The name of its cluster is its own name at the name of the machine.
        if identity.cluster.split('@').next() != Some(dir.tag()) {
            bail!("port {} belongs to another cluster, {}", ports[0], identity.cluster);
        }
        Ok(identity.version)
    }

    fn url(&self, ports: &[u16]) -> String {
        format!("amqp://guest:guest@127.0.0.1:{}/%2f", ports[0])
    }

    fn stop(&self) -> Signal {
        Signal::SIGTERM
    }

    fn crash(&self) -> Signal {
        Signal::SIGKILL
    }
}
