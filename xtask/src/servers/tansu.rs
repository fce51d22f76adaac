//! Tansu, which plays Kafka: from Rust's package registry, compiled once and kept.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use postrider_servers::process::{cannot_run, output, succeeds};

use crate::packages::Missing;
use crate::terminal::say;
use crate::workspace::program_cache;

const VERSION: &str = "0.6.0";
/// SQLite is the storage that survives a crash.
const FEATURES: &str = "libsql";
/// Compiled fast rather than to be fast: on fresh machines every run waits for it. What takes time in it is SQLite.
const PROFILE: &[(&str, &str)] = &[
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "false"),
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_STRIP", "symbols"),
];
const FAST_SQLITE: &str = "profile.release.package.libsql-ffi.opt-level=2";
const POLL: Duration = Duration::from_millis(100);
/// How often a build that takes minutes says that it goes on.
const NEWS: Duration = Duration::from_secs(60);

/// The folder with the program.
pub(crate) fn programs(missing: Missing) -> Result<PathBuf> {
    let home = program_cache()?.join(format!("tansu-{VERSION}"));
    let programs = home.join("bin");
    if !programs.exists() {
        if missing == Missing::Fail {
            bail!("it is not in {}, and building Tansu {VERSION} was ruled out", home.display());
        }
        build(&home)?;
    }
    if !succeeds(Command::new(programs.join("tansu")).arg("--version")) {
        bail!("{} holds no Tansu that runs here: remove it to build it again", home.display());
    }
    Ok(programs)
}

fn build(home: &Path) -> Result<()> {
    let cache = program_cache()?;
    fs::create_dir_all(&cache).with_context(|| format!("cannot create {}", cache.display()))?;
    // Two at a time would take twice as long. The lock is gone with the process that holds it, and what one that was
    // interrupted has compiled is used by the next.
    let lock = File::create(cache.join(format!("tansu-{VERSION}.lock")))?;
    if lock.try_lock().is_err() {
        say(&format!("waiting for another xtask, which builds Tansu {VERSION}"));
        lock.lock()?;
    }
    if home.exists() {
        return Ok(());
    }
    say(&format!("building Tansu {VERSION} into {}: minutes, and only once", home.display()));
    let draft = cache.join(format!("tansu-{VERSION}.building"));
    fs::create_dir_all(&draft)?;
    let (root, log) = (draft.join("root"), draft.join("log"));
    let mut command = cargo_outside(&draft);
    command.args(["install", "--locked", "tansu", "--version", VERSION]);
    command
        .args(["--no-default-features", "--features", FEATURES, "--config", FAST_SQLITE, "--root"])
        .arg(&root);
    run(&mut command, &log)?;
    // The server runs as another user than the one who builds.
    output(Command::new("chmod").args(["-R", "a+rX"]).arg(&root))?;
    // One rename publishes it whole or not at all.
    fs::rename(&root, home).with_context(|| format!("cannot create {}", home.display()))?;
    fs::remove_dir_all(&draft).with_context(|| format!("cannot remove {}", draft.display()))
}

/// A cargo that knows nothing of this checkout: neither its settings nor those of whoever builds it.
fn cargo_outside(draft: &Path) -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in env::vars_os().filter(|(name, _)| is_of_a_build(name)) {
        cargo.env_remove(name);
    }
    cargo.current_dir(draft).env("CARGO_TARGET_DIR", draft.join("target")).envs(PROFILE.iter().copied());
    cargo
}

/// Where cargo lives and how it reaches registries stays as it is.
fn is_of_a_build(variable: &OsStr) -> bool {
    const KEPT: [&str; 5] = ["CARGO_HOME", "CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTR", "CARGO_SOURCE_"];
    let name = variable.to_string_lossy();
    let is_kept = KEPT.iter().any(|kept| name.starts_with(kept));
    !is_kept && (name.starts_with("CARGO_") || name.starts_with("RUSTC") || name == "RUSTFLAGS")
}

/// Runs a command that takes long, and tells now and then that it is still there.
fn run(command: &mut Command, log: &Path) -> Result<()> {
    let file = File::create(log)?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let mut child = command.spawn().with_context(|| cannot_run(command))?;
    let (began, mut told) = (Instant::now(), Duration::ZERO);
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        let elapsed = began.elapsed();
        if elapsed >= told + NEWS {
            told = elapsed;
            let compiled = fs::read_to_string(log).unwrap_or_default().matches(" Compiling ").count();
            say(&format!("still building Tansu: {compiled} crates in {} s", elapsed.as_secs()));
        }
        sleep(POLL);
    };
    if !status.success() {
        let text = fs::read_to_string(log).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(40)..].join("\n");
        bail!("`cargo install tansu` failed ({status}):\n{tail}");
    }
    say(&format!("built Tansu {VERSION} in {} s", began.elapsed().as_secs()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_outside_knows_nothing_of_this_one() {
        for of_a_build in ["CARGO_TARGET_DIR", "CARGO_ENCODED_RUSTFLAGS", "RUSTFLAGS", "RUSTC_WRAPPER"] {
            assert!(is_of_a_build(OsStr::new(of_a_build)), "{of_a_build}");
        }
        for kept in ["CARGO_HOME", "CARGO_HTTP_PROXY", "CARGO_REGISTRIES_OURS_INDEX", "RUSTUP_HOME", "PATH"] {
            assert!(!is_of_a_build(OsStr::new(kept)), "{kept}");
        }
    }
}
