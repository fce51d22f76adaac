//! A private server of one test, which can stop and restart it. Dropping it stops the server and removes its data.
//!
//! Starting a server blocks, so it runs outside the async runtime: other tasks of the test continue meanwhile.

use crate::shared;
use postrider_servers::{Cleanup, Kind, Server, ServerSpec, TempFolder};
use std::path::{Path, PathBuf};
use tokio::task::spawn_blocking;

#[derive(Debug)]
pub(crate) struct PrivateServer {
    // Dropped in this order: the folder must outlive the server.
    server: Option<Server>,
    temp_folder: TempFolder,
    url: String,
    port: u16,
    home: PathBuf,
}

impl PrivateServer {
    pub(crate) async fn start(kind: Kind) -> Self {
        Self::start_by(kind.spec(&shared::programs(kind))).await
    }

    pub(crate) async fn start_by(spec: Box<dyn ServerSpec>) -> Self {
        let folder = TempFolder::create(Cleanup::Remove).unwrap();
        let starting = spawn_blocking(move || {
            let server = Server::start(spec, &folder, &|| false);
            (server, folder)
        });
        let (server, folder) = starting.await.unwrap();
        let server = server.unwrap_or_else(|error| panic!("{error:?}"));
        let (url, port, home) = (server.url(), server.port(), server.folder().to_owned());
        Self { url, port, home, server: Some(server), temp_folder: folder }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.home
    }

    /// Its data stays when it is stopped.
    pub(crate) fn keep(&mut self) {
        self.temp_folder.keep();
    }

    pub(crate) fn ids(&self) -> Vec<u32> {
        self.server.as_ref().map(Server::ids).unwrap_or_default()
    }

    /// Ends it as a crash does, and waits for its end.
    pub(crate) fn crash(&mut self) {
        self.running().crash().unwrap_or_else(|error| panic!("{error:?}"));
    }

    /// Stops it gracefully, and waits for its end.
    pub(crate) fn stop(&mut self) {
        self.running().stop().unwrap_or_else(|error| panic!("{error:?}"));
    }

    /// Restarts it at the same address with its data, and waits until it is ready.
    pub(crate) async fn resume(&mut self) {
        let mut server = self.server.take().expect("an earlier restart was given up");
        let resuming = spawn_blocking(move || server.resume(&|| false).map(|()| server));
        self.server = Some(resuming.await.unwrap().unwrap_or_else(|error| panic!("{error:?}")));
    }

    fn running(&mut self) -> &mut Server {
        self.server.as_mut().expect("an earlier restart was given up")
    }
}
