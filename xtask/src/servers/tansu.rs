//! Tansu, which implements Kafka's protocol: from Rust's package registry, compiled once and cached.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use postrider_servers::process::{cannot_run, output, succeeds};

use crate::packages::OnMissing;
use crate::terminal::info;
use crate::workspace::program_cache;

const VERSION: &str = "0.6.0";
/// SQLite is the storage that survives a crash.
const FEATURES: &str = "libsql";
/// Optimised for build time: every run on a new machine waits for the build. Only SQLite is optimised for speed.
const PROFILE: &[(&str, &str)] = &[
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "false"),
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_STRIP", "symbols"),
];
const FAST_SQLITE: &str = "profile.release.package.libsql-ffi.opt-level=2";
const POLL: Duration = Duration::from_millis(100);
/// The interval of progress messages during the build, which takes minutes.
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// The folder with the program.
pub(crate) fn programs(missing: OnMissing) -> Result<PathBuf> {
    let home = program_cache()?.join(format!("tansu-{VERSION}"));
    let programs = home.join("bin");
    if !programs.exists() {
        if missing == OnMissing::Fail {
            bail!("Tansu {VERSION} is not in {}, and --no-install is set", home.display());
        }
        build(&home)?;
    }
    if !succeeds(Command::new(programs.join("tansu")).arg("--version")) {
        bail!("the Tansu in {} does not run here: remove the folder to build it again", home.display());
    }
    Ok(programs)
}

fn build(home: &Path) -> Result<()> {
    let cache = program_cache()?;
    fs::create_dir_all(&cache).with_context(|| format!("cannot create {}", cache.display()))?;
    // Two builds at a time would take twice as long. The lock ends with the process that holds it, and the next build reuses
    // what an interrupted one has compiled.
    let lock = File::create(cache.join(format!("tansu-{VERSION}.lock")))?;
    if lock.try_lock().is_err() {
        info(&format!("waiting for another xtask that builds Tansu {VERSION}"));
        lock.lock()?;
    }
    if home.exists() {
        return Ok(());
    }
    info(&format!("building Tansu {VERSION} into {}: takes minutes, once", home.display()));
    let draft = cache.join(format!("tansu-{VERSION}.building"));
    fs::create_dir_all(&draft)?;
    let (root, log) = (draft.join("root"), draft.join("log"));
    let mut command = isolated_cargo(&draft);
    command.args(["install", "--locked", "tansu", "--version", VERSION]);
    command
        .args(["--no-default-features", "--features", FEATURES, "--config", FAST_SQLITE, "--root"])
        .arg(&root);
    run(&mut command, &log)?;
    // The server runs as another user than the one who builds.
    output(Command::new("chmod").args(["-R", "a+rX"]).arg(&root))?;
    // One rename publishes it completely or not at all.
    fs::rename(&root, home).with_context(|| format!("cannot create {}", home.display()))?;
    fs::remove_dir_all(&draft).with_context(|| format!("cannot remove {}", draft.display()))
}

/// A cargo without the settings of this checkout and of the build that runs it.
fn isolated_cargo(draft: &Path) -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in env::vars_os().filter(|(name, _)| belongs_to_a_build(name)) {
        cargo.env_remove(name);
    }
    cargo.current_dir(draft).env("CARGO_TARGET_DIR", draft.join("target")).envs(PROFILE.iter().copied());
    cargo
}

/// Whether a variable belongs to a build. Cargo's home and its access to registries stay as they are.
fn belongs_to_a_build(variable: &OsStr) -> bool {
    const KEPT: [&str; 5] = ["CARGO_HOME", "CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTR", "CARGO_SOURCE_"];
    let name = variable.to_string_lossy();
    let is_kept = KEPT.iter().any(|kept| name.starts_with(kept));
    !is_kept && (name.starts_with("CARGO_") || name.starts_with("RUSTC") || name == "RUSTFLAGS")
}

/// Runs a command that takes minutes, with progress messages.
fn run(command: &mut Command, log: &Path) -> Result<()> {
    let file = File::create(log)?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let mut child = command.spawn().with_context(|| cannot_run(command))?;
    let (began, mut reported_at) = (Instant::now(), Duration::ZERO);
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        let elapsed = began.elapsed();
        if elapsed >= reported_at + REPORT_EVERY {
            reported_at = elapsed;
            let compiled = fs::read_to_string(log).unwrap_or_default().matches(" Compiling ").count();
            info(&format!("still building Tansu: {compiled} crates in {} s", elapsed.as_secs()));
        }
        sleep(POLL);
    };
    if !status.success() {
        let text = fs::read_to_string(log).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(40)..].join("\n");
        bail!("`cargo install tansu` failed ({status}):\n{tail}");
    }
    info(&format!("built Tansu {VERSION} in {} s", began.elapsed().as_secs()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_isolated_build_does_not_inherit_build_variables() {
        for of_a_build in ["CARGO_TARGET_DIR", "CARGO_ENCODED_RUSTFLAGS", "RUSTFLAGS", "RUSTC_WRAPPER"] {
            assert!(belongs_to_a_build(OsStr::new(of_a_build)), "{of_a_build}");
        }
        for kept in ["CARGO_HOME", "CARGO_HTTP_PROXY", "CARGO_REGISTRIES_OURS_INDEX", "RUSTUP_HOME", "PATH"] {
            assert!(!belongs_to_a_build(OsStr::new(kept)), "{kept}");
        }
    }
}
