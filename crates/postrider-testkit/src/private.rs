//! A server that one test has for itself, to stop it and start it again. Dropped, it is stopped, and its data is gone.
//!
//! Starting a server blocks, so it is done beside the runtime: whatever the test lets run goes on meanwhile.

use crate::shared;
use postrider_servers::{Afterwards, Folder, Kind, Recipe, Server};
use std::path::{Path, PathBuf};
use tokio::task::spawn_blocking;

#[derive(Debug)]
pub(crate) struct Private {
    // Dropped in this order: the folder must outlive the server.
    server: Option<Server>,
    _folder: Folder,
    url: String,
    port: u16,
    home: PathBuf,
}

impl Private {
    pub(crate) async fn start(kind: Kind) -> Self {
        Self::start_by(kind.recipe(&shared::programs(kind))).await
    }

    pub(crate) async fn start_by(recipe: Box<dyn Recipe>) -> Self {
        let folder = Folder::create(Afterwards::Remove).unwrap();
        let starting = spawn_blocking(move || {
            let server = Server::start(recipe, &folder, &|| false);
            (server, folder)
        });
        let (server, folder) = starting.await.unwrap();
        let server = server.unwrap_or_else(|error| panic!("{error:?}"));
        let (url, port, home) = (server.url(), server.port(), server.folder().to_owned());
        Self { url, port, home, server: Some(server), _folder: folder }
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

    pub(crate) fn ids(&self) -> Vec<u32> {
        self.server.as_ref().map(Server::ids).unwrap_or_default()
    }

    /// Ends it as a crash does, and waits for its end.
    pub(crate) fn crash(&mut self) {
        self.running().crash().unwrap_or_else(|error| panic!("{error:?}"));
    }

    /// Stops it properly, and waits for its end.
    pub(crate) fn stop(&mut self) {
        self.running().stop().unwrap_or_else(|error| panic!("{error:?}"));
    }

    /// Starts it again, at the same address and with its data, and waits until it answers.
    pub(crate) async fn resume(&mut self) {
        let mut server = self.server.take().expect("an earlier restart was given up");
        let resuming = spawn_blocking(move || server.resume(&|| false).map(|()| server));
        self.server = Some(resuming.await.unwrap().unwrap_or_else(|error| panic!("{error:?}")));
    }

    fn running(&mut self) -> &mut Server {
        self.server.as_mut().expect("an earlier restart was given up")
    }
}
