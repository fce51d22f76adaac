//! Programs that run to their end.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Runs a command and returns its standard output; on failure, the error contains the whole output.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| cannot_run(command))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("`{}` failed ({}):\n{}{}", display(command), output.status, stdout, stderr);
    }
    Ok(stdout)
}

/// Whether a command can be run here and succeeds.
pub fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The error message for a command that cannot be started.
pub fn cannot_run(command: &Command) -> String {
    format!("cannot run `{}`", display(command))
}

fn display(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
