//! Running programs of other languages. A missing program is a failure, like a missing server.

#![allow(dead_code, reason = "each test that shares this file takes what it needs")]

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

pub(crate) const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/polyglot");

/// Runs a program to its end, and returns its output.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| {
        let package = match command.get_program().to_string_lossy().as_ref() {
            "npm" => "npm",
            "node" => "nodejs",
            _ => "python3",
        };
        panic!("{command:?} does not start ({error}): install the Debian package {package}")
    });
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?} failed (pip is in the Debian package python3-pip): {errors}"
    );
    String::from_utf8(output.stdout).unwrap()
}

/// The folder of a driver, which the first run fills. Tests that need the same one wait for each other.
pub(crate) fn driver(language: &str, install: impl FnOnce(&Path) -> Command) -> PathBuf {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../xtask");
    fs::create_dir_all(&home).unwrap();
    let lock = File::create(home.join(format!("{language}.lock"))).unwrap();
    lock.lock().unwrap();
    let (folder, complete) = (home.join(language), home.join(language).join(".complete"));
    if !complete.exists() {
        fs::create_dir_all(&folder).unwrap();
        run(&mut install(&folder));
        fs::write(complete, "").unwrap();
    }
    folder
}

/// The example for psycopg, with its driver.
pub(crate) fn python() -> Command {
    let folder = driver("python", |folder| {
        let mut pip = Command::new("python3");
        pip.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "psycopg[binary]>=3.2,<4",
        ]);
        pip.arg("--target").arg(folder);
        pip
    });
    let mut python = Command::new("python3");
    python.env("PYTHONPATH", folder).arg(format!("{EXAMPLES}/stage.py"));
    python
}
