//! Runs the doctor, reads its findings, and applies its fixes.

use super::program::{CompletionOutcome, postrider, run};
use serde_json::Value;
use std::{
    env,
    path::Path,
    process::{Command, Stdio},
};

/// The findings of `postrider doctor`.
pub(crate) struct Diagnosis {
    ended: CompletionOutcome,
    findings: Vec<Value>,
}

impl Diagnosis {
    pub(crate) fn of(command: &mut Command) -> Self {
        let ended = run(command);
        let findings = ended.report()["findings"].as_array().unwrap().clone();
        let worst = |severity: &str| findings.iter().any(|finding| finding["severity"] == severity);
        let expected = if worst("problem") {
            1
        } else if worst("warning") {
            3
        } else {
            0
        };
        assert_eq!(ended.code, Some(expected), "{ended:?}");
        Self { ended, findings }
    }

    pub(crate) fn is_silent(&self) {
        assert_eq!((self.ended.code, &self.findings[..]), (Some(0), &[][..]), "{:?}", self.ended);
    }

    pub(crate) fn finding(&self, code: &str) -> &Value {
        let finding = self.findings.iter().find(|finding| finding["code"] == code);
        finding.unwrap_or_else(|| panic!("no {code} in {:#?}", self.findings))
    }

    /// The fix of the finding with this code.
    pub(crate) fn fix(&self, code: &str) -> &str {
        self.finding(code)["fix"].as_str().unwrap()
    }

    /// The fixes of all findings, in their order.
    pub(crate) fn fixes(&self) -> Vec<String> {
        self.findings.iter().map(|finding| finding["fix"].as_str().unwrap().to_owned()).collect()
    }
}

/// The doctor with these arguments.
pub(crate) fn doctor(arguments: &[&str]) -> Command {
    postrider(&[&["doctor", "--json"], arguments].concat())
}

/// Runs a printed command in a shell, in this folder. `programs` are added to the PATH.
pub(crate) fn shell(command: &str, folder: &Path, programs: &[&Path]) {
    let program = Path::new(env!("CARGO_BIN_EXE_postrider")).parent().unwrap();
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = [program].into_iter().chain(programs.iter().copied()).map(Path::to_owned);
    let path = env::join_paths(folders.chain(env::split_paths(&path))).unwrap();
    let mut shell = Command::new("sh");
    shell
        .args(["-c", command])
        .current_dir(folder)
        .env("PATH", path)
        .env("USER", "nell")
        .stdin(Stdio::null());
    let ended = run(&mut shell);
    assert_eq!(ended.code, Some(0), "{command}: {ended:?}");
}
