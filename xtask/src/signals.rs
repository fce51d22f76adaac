//! Ctrl-C, SIGTERM and SIGHUP as a value that the waiting loops poll.
//!
//! The handlers only store a number. So every destructor runs, and servers that are still starting are stopped like running
//! ones.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

const WATCHED: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// The last signal that asked xtask to stop.
#[derive(Debug)]
pub(crate) struct Signals {
    last: Arc<AtomicUsize>,
}

impl Signals {
    /// Installs the handlers: from now on these signals no longer end the process.
    pub(crate) fn install() -> Result<Self> {
        let last = Arc::new(AtomicUsize::new(0));
        for signal in WATCHED {
            signal_hook::flag::register_usize(signal as i32, Arc::clone(&last), signal as usize)
                .with_context(|| format!("cannot handle {signal}"))?;
        }
        Ok(Self { last })
    }

    /// The signal that arrived since the last call.
    pub(crate) fn take(&self) -> Option<Signal> {
        let number = self.last.swap(0, Ordering::SeqCst);
        WATCHED.into_iter().find(|signal| *signal as usize == number)
    }

    /// Whether a signal has arrived that was not taken yet.
    pub(crate) fn pending(&self) -> bool {
        self.last.load(Ordering::SeqCst) != 0
    }

    /// Fails if a signal has asked xtask to stop.
    pub(crate) fn check(&self) -> Result<()> {
        self.take().map_or(Ok(()), |signal| Err(Interrupted(signal).into()))
    }
}

/// A signal ended the run before it was complete.
#[derive(Debug)]
pub(crate) struct Interrupted(pub(crate) Signal);

impl Interrupted {
    /// The exit code that a shell reports for a program ended by this signal.
    pub(crate) fn exit_code(&self) -> u8 {
        u8::try_from(128 + self.0 as i32).unwrap_or(u8::MAX)
    }
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stopped by {}", self.0)
    }
}

impl std::error::Error for Interrupted {}
