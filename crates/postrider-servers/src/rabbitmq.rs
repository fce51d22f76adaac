//! RabbitMQ.

mod probe;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};
use nix::sys::signal::Signal;

use crate::home::Home;
use crate::kind::Kind;
use crate::recipe::Recipe;

/// How to run RabbitMQ.
///
/// A node registers with Erlang's port mapper, `epmd`. Left alone it would use the one that serves the whole machine, or start
/// one that outlives it. So every server here has a mapper of its own, started before it and stopped after it.
#[derive(Debug, Clone)]
pub struct RabbitMq {
    program: PathBuf,
    settings: String,
}

impl RabbitMq {
    /// With `rabbitmq-server` in a folder. It must be the program itself: Debian's `/usr/sbin/rabbitmq-server` changes the
    /// user and the folder first.
    pub fn new(programs: &Path) -> Self {
        Self { program: programs.join("rabbitmq-server"), settings: String::new() }
    }

    /// With these lines in its configuration file.
    #[must_use]
    pub fn with_settings(mut self, lines: &[&str]) -> Self {
        self.settings.extend(lines.iter().map(|line| format!("{line}\n")));
        self
    }

    fn node(home: &Home) -> String {
        format!("{}@localhost", home.tag())
    }
}

impl Recipe for RabbitMq {
    fn kind(&self) -> Kind {
        Kind::RabbitMq
    }

    /// For clients, for other nodes, and for the port mapper.
    fn ports(&self) -> usize {
        3
    }

    fn prepare(&self, home: &Home) -> Result<()> {
        if !self.program.is_file() {
            bail!("there is no {}", self.program.display());
        }
        home.folder("data")?;
        if !self.settings.is_empty() {
            home.file("settings.conf", &self.settings)?;
        }
        home.file("plugins", "[].\n").map(drop)
    }

    fn commands(&self, home: &Home, ports: &[u16]) -> Vec<Command> {
        let [clients, nodes, mapper] = [0, 1, 2].map(|index| ports[index].to_string());
        let mut epmd = home.command(Path::new("epmd"), self.crash());
        epmd.args(["-port", &mapper, "-address", "127.0.0.1"]);

        let mut rabbitmq = home.command(&self.program, self.crash());
        rabbitmq
            // The cookie that nodes know each other by is kept here.
            .env("HOME", home.path())
            .env("RABBITMQ_NODENAME", Self::node(home))
            .env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
            .env("RABBITMQ_NODE_PORT", clients)
            .env("RABBITMQ_DIST_PORT", nodes)
            .env("ERL_EPMD_PORT", mapper)
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .env(
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
                "-start_epmd false -kernel inet_dist_use_interface {127,0,0,1}",
            )
            .env("RABBITMQ_MNESIA_BASE", home.path().join("data"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", home.path().join("plugins"))
            .env("RABBITMQ_LOG_BASE", home.path())
            .env("RABBITMQ_LOGS", "-")
            // What the machine has configured for its own server is not ours.
            .env("RABBITMQ_CONFIG_FILE", home.path().join("settings"))
            .env("RABBITMQ_ADVANCED_CONFIG_FILE", home.path().join("none.config"))
            .env("RABBITMQ_CONF_ENV_FILE", "/dev/null")
            // The script then becomes the server, instead of a parent that dies without it.
            .env("RUNNING_UNDER_SYSTEMD", "true")
            .env_remove("NOTIFY_SOCKET");
        vec![epmd, rabbitmq]
    }

    fn identify(&self, home: &Home, ports: &[u16], _: u32) -> Result<String> {
        let identity = probe::identify(ports[0])?;
        // It calls its cluster after its own name, at the name of the machine.
        if identity.cluster.split('@').next() != Some(home.tag()) {
            bail!("port {} belongs to {}", ports[0], identity.cluster);
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
