//! The folders of the workspace, and the cargo that builds it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};
use nix::unistd::geteuid;

/// The root of the workspace.
pub(crate) fn root() -> &'static Path {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest)
}

/// The folder that cargo builds into.
pub(crate) fn target() -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    root().join(target)
}

/// The cache of unpacked server builds.
pub(crate) fn server_cache() -> PathBuf {
    target().join("xtask").join("servers")
}

/// The cache of programs from other registries, shared by all checkouts and readable for the account that runs servers.
pub(crate) fn program_cache() -> Result<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = match (set("XDG_CACHE_HOME"), set("HOME")) {
        (Some(caches), _) => caches,
        // Only root can enter root's home.
        _ if geteuid().is_root() => "/var/cache".into(),
        (None, Some(home)) => home.join(".cache"),
        (None, None) => bail!("set HOME or XDG_CACHE_HOME: programs that the tests need are cached there"),
    };
    Ok(folder.join("postrider"))
}

/// The cargo that started xtask, run from the root of the workspace.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}
