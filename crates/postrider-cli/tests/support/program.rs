//! The program, run as a process.

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use std::{
    io::{BufRead, BufReader, Read},
    mem,
    process::{Child, ChildStderr, ChildStdout, Command, Stdio},
};

/// `postrider` with these arguments, and with none of the caller's settings.
pub(crate) fn postrider(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
    command.args(arguments).stdin(Stdio::null()).env("USER", "nell");
    for setting in ["POSTRIDER_DB", "POSTRIDER_BEHIND_POOLER", "POSTRIDER_LOG", "NO_COLOR"] {
        command.env_remove(setting);
    }
    command
}

/// The output and exit code of a process.
#[derive(Debug)]
pub(crate) struct CompletionOutcome {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

pub(crate) fn run(command: &mut Command) -> CompletionOutcome {
    let output = command.output().unwrap();
    CompletionOutcome {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

impl CompletionOutcome {
    /// The one object on stdout.
    pub(crate) fn report(&self) -> Value {
        assert_eq!(self.out.lines().count(), 1, "more than one line on stdout: {self:?}");
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Asserts that the report accounts for every message exactly once.
    pub(crate) fn adds_up(&self) -> Value {
        let report = self.report();
        let number = |key: &str| report[key].as_u64().unwrap_or_else(|| panic!("no {key} in {report}"));
        assert!(number("staged") > 0, "{report}");
        assert_eq!(number("staged"), number("done") + number("dead") + number("waiting"), "{report}");
        for none in ["lost", "duplicates", "invented"] {
            assert_eq!(number(none), 0, "{none} in {report}");
        }
        for key in ["rolled_back", "retried"] {
            number(key);
        }
        for key in ["seconds", "per_second"] {
            assert!(report[key].as_f64().is_some_and(|value| value > 0.0), "{key} in {report}");
        }
        for key in ["p50", "p95", "p99"] {
            assert!(report["latency_ms"][key].as_f64().is_some(), "{key} in {report}");
        }
        assert_eq!(self.code, Some(0), "{self:?}");
        report
    }
}

/// A running process whose stderr is read. It is killed if the test fails.
pub(crate) struct AtWork {
    child: Option<Child>,
    err: BufReader<ChildStderr>,
    stderr: String,
    /// Its stdout, after the first call of `line`.
    out: Option<BufReader<ChildStdout>>,
}

impl AtWork {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let err = BufReader::new(child.stderr.take().unwrap());
        Self { child: Some(child), err, stderr: String::new(), out: None }
    }

    /// Waits for a line on stderr that contains `words`, and returns it.
    pub(crate) fn until(&mut self, words: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.err.read_line(&mut line).unwrap() > 0, "exited without {words:?}: {}", self.stderr);
            self.stderr.push_str(&line);
            if line.contains(words) {
                return line;
            }
        }
    }

    /// Waits for the next line on stdout.
    pub(crate) fn line(&mut self) -> String {
        let child = self.child.as_mut().unwrap();
        let out = self.out.get_or_insert_with(|| BufReader::new(child.stdout.take().unwrap()));
        let mut line = String::new();
        assert!(out.read_line(&mut line).unwrap() > 0, "exited without another line");
        line
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.as_ref().unwrap().id().try_into().unwrap()), signal).unwrap();
    }

    pub(crate) fn end(mut self) -> CompletionOutcome {
        self.err.read_to_string(&mut self.stderr).unwrap();
        let mut out = String::new();
        if let Some(mut rest) = self.out.take() {
            rest.read_to_string(&mut out).unwrap();
        }
        let output = self.child.take().unwrap().wait_with_output().unwrap();
        out.push_str(&String::from_utf8(output.stdout).unwrap());
        CompletionOutcome { code: output.status.code(), out, err: mem::take(&mut self.stderr) }
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().ok();
            child.wait().ok();
        }
    }
}
