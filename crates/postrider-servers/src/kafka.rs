//! Kafka, as Tansu plays it: one broker that speaks Kafka's protocol and keeps records in SQLite.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;

use crate::home::Home;
use crate::kind::Kind;
use crate::ports::connect;
use crate::process;
use crate::recipe::Recipe;

/// How to run Tansu. What it has confirmed survives the end of the process.
#[derive(Debug, Clone)]
pub struct Kafka {
    program: PathBuf,
    advertised: Option<u16>,
    arguments: Vec<String>,
}

impl Kafka {
    /// With `tansu` in a folder.
    pub fn new(programs: &Path) -> Self {
        Self { program: programs.join("tansu"), advertised: None, arguments: Vec::new() }
    }

    /// Tells clients to come to this port of the loopback interface, where a proxy is: whatever address a client begins with,
    /// it goes on with the one that it is told.
    #[must_use]
    pub fn with_advertised(mut self, port: u16) -> Self {
        self.advertised = Some(port);
        self
    }

    /// With more arguments on its command line.
    #[must_use]
    pub fn with_arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(ToString::to_string));
        self
    }
}

impl Recipe for Kafka {
    fn kind(&self) -> Kind {
        Kind::Kafka
    }

    fn ports(&self) -> usize {
        1
    }

    fn prepare(&self, home: &Home) -> Result<()> {
        home.check(&self.program)?;
        home.folder("data").map(drop)
    }

    fn commands(&self, home: &Home, ports: &[u16]) -> Vec<Command> {
        let at = |port: u16| format!("tcp://127.0.0.1:{port}");
        let mut tansu = home.command(&self.program, self.crash());
        // Each of these has a variable of a common name that would speak for it, and another default than loopback.
        tansu.args(["broker", "--cluster-id", home.tag(), "--listener-url", &at(ports[0])]);
        tansu.args(["--advertised-listener-url", &at(self.advertised.unwrap_or(ports[0]))]);
        // From the working folder, whatever the number of slashes.
        tansu.args(["--storage-engine", "sqlite://data/tansu.db"]);
        tansu.env_remove("SCHEMA_REGISTRY").env_remove("OTEL_EXPORTER_OTLP_ENDPOINT").env_remove("DATA_LAKE");
        tansu.env("RUST_LOG", "warn").args(&self.arguments);
        vec![tansu]
    }

    fn identify(&self, home: &Home, ports: &[u16], _: u32) -> Result<String> {
        let cluster = cluster_id(ports[0])?;
        if cluster != home.tag() {
            bail!("port {} belongs to the cluster {cluster}", ports[0]);
        }
        let version = process::output(home.command(&self.program, self.crash()).arg("--version"))?;
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

/// Asks for metadata of no topic, which tells the name of the cluster.
fn cluster_id(port: u16) -> Result<String> {
    const METADATA: i16 = 3;
    const VERSION: i16 = 2;
    const ASKED: i32 = 17;
    let mut request = Vec::new();
    request.extend(METADATA.to_be_bytes());
    request.extend(VERSION.to_be_bytes());
    request.extend(ASKED.to_be_bytes());
    request.extend((-1_i16).to_be_bytes()); // no client id
    request.extend(0_i32.to_be_bytes()); // no topics
    let mut stream = connect(port)?;
    stream.write_all(&u32::try_from(request.len())?.to_be_bytes())?;
    stream.write_all(&request)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length);
    ensure!(length < 65_536, "this is not Kafka");
    let mut answer = vec![0; usize::try_from(length)?];
    stream.read_exact(&mut answer)?;
    let mut answer = Answer(&answer);
    ensure!(answer.number()? == ASKED, "this is not Kafka");
    for _ in 0..answer.number()? {
        answer.number()?; // the node
        answer.text()?.context("a broker without a host")?;
        answer.number()?; // the port
        answer.text()?; // the rack
    }
    answer.text()?.context("it does not tell its cluster")
}

/// What is left to be read of an answer.
struct Answer<'a>(&'a [u8]);

impl<'a> Answer<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8]> {
        let (taken, left) = self.0.split_at_checked(bytes).context("the answer is cut off")?;
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
