//! Kafka, emulated by Tansu: one broker that speaks Kafka's protocol and stores records in SQLite.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;

use crate::kind::Kind;
use crate::ports::connect;
use crate::process;
use crate::server_dir::ServerDir;
use crate::spec::ServerSpec;

/// How to run Tansu. Confirmed records survive the end of the process.
#[derive(Debug, Clone)]
pub struct Kafka {
    program: PathBuf,
    advertised: Option<u16>,
    arguments: Vec<String>,
}

impl Kafka {
    /// Uses `tansu` in the folder `programs`.
    pub fn new(programs: &Path) -> Self {
        Self { program: programs.join("tansu"), advertised: None, arguments: Vec::new() }
    }

    /// Advertises this port of the loopback interface, where a proxy listens: clients continue with the advertised address,
    /// whatever address they began with.
    #[must_use]
    pub fn with_advertised(mut self, port: u16) -> Self {
        self.advertised = Some(port);
        self
    }

    /// Adds arguments to its command line.
    #[must_use]
    pub fn with_arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(ToString::to_string));
        self
    }
}

impl ServerSpec for Kafka {
    fn kind(&self) -> Kind {
        Kind::Kafka
    }

    fn ports(&self) -> usize {
        1
    }

    fn prepare(&self, dir: &ServerDir) -> Result<()> {
        dir.check(&self.program)?;
        dir.folder("data").map(drop)
    }

    fn commands(&self, dir: &ServerDir, ports: &[u16]) -> Vec<Command> {
        let at = |port: u16| format!("tcp://127.0.0.1:{port}");
        let mut tansu = dir.command(&self.program, self.crash());
        // Each of these has an environment variable with a common name that would override it, and a default other than loopback.
        tansu.args(["broker", "--cluster-id", dir.tag(), "--listener-url", &at(ports[0])]);
        tansu.args(["--advertised-listener-url", &at(self.advertised.unwrap_or(ports[0]))]);
        // Relative to the working folder, whatever the number of slashes.
        tansu.args(["--storage-engine", "sqlite://data/tansu.db"]);
        tansu.env_remove("SCHEMA_REGISTRY").env_remove("OTEL_EXPORTER_OTLP_ENDPOINT").env_remove("DATA_LAKE");
        tansu.env("RUST_LOG", "warn").args(&self.arguments);
        vec![tansu]
    }

    fn identify(&self, dir: &ServerDir, ports: &[u16], _: u32) -> Result<String> {
        let cluster = cluster_id(ports[0])?;
        if cluster != dir.tag() {
            bail!("port {} belongs to another cluster, {cluster}", ports[0]);
        }
        let version = process::output(dir.command(&self.program, self.crash()).arg("--version"))?;
        Ok(version.trim().trim_start_matches("tansu ").to_owned())
    }

    fn url(&self, ports: &[u16]) -> String {
        format!("kafka://127.0.0.1:{}", ports[0])
    }

    fn stop(&self) -> Signal {
        Signal::SIGTERM
    }

    fn crash(&self) -> Signal {
        Signal::SIGKILL
    }
}

/// Requests the metadata of no topic, which contains the cluster id.
fn cluster_id(port: u16) -> Result<String> {
    const METADATA: i16 = 3;
    const VERSION: i16 = 2;
    const CORRELATION_ID: i32 = 17;
    let mut request = Vec::new();
    request.extend(METADATA.to_be_bytes());
    request.extend(VERSION.to_be_bytes());
    request.extend(CORRELATION_ID.to_be_bytes());
    request.extend((-1_i16).to_be_bytes()); // no client id
    request.extend(0_i32.to_be_bytes()); // no topics
    let mut stream = connect(port)?;
    stream.write_all(&u32::try_from(request.len())?.to_be_bytes())?;
    stream.write_all(&request)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length);
    ensure!(length < 65_536, "not Kafka");
    let mut reply = vec![0; usize::try_from(length)?];
    stream.read_exact(&mut reply)?;
    let mut reply = ApiReply(&reply);
    ensure!(reply.number()? == CORRELATION_ID, "not Kafka");
    for _ in 0..reply.number()? {
        reply.number()?; // the node
        reply.text()?.context("a broker has no host")?;
        reply.number()?; // the port
        reply.text()?; // the rack
    }
    reply.text()?.context("the reply has no cluster id")
}

/// The unread rest of a reply.
struct ApiReply<'a>(&'a [u8]);

impl<'a> ApiReply<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8]> {
        let (taken, left) = self.0.split_at_checked(bytes).context("the reply is truncated")?;
        self.0 = left;
        Ok(taken)
    }

    fn number(&mut self) -> Result<i32> {
        Ok(i32::from_be_bytes(self.take(4)?.try_into()?))
    }

    fn text(&mut self) -> Result<Option<String>> {
        match usize::try_from(i16::from_be_bytes(self.take(2)?.try_into()?)) {
            Ok(length) => Ok(Some(String::from_utf8(self.take(length)?.to_vec())?)),
            Err(_) => Ok(None),
        }
    }
}
