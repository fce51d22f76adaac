//! The report of an internal error.

use std::{
    backtrace::Backtrace,
    panic::{self, PanicHookInfo},
};

const VERSION: &str = env!("CARGO_PKG_VERSION");
const ISSUES: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/issues/new");

/// Installs a panic hook whose report says that no data is lost, and where to file an issue.
pub(crate) fn install_hook() {
    panic::set_hook(Box::new(|panic| {
        let trace = Backtrace::force_capture();
        eprintln!("{}", report(panic, &trace.to_string()));
    }));
}

fn report(panic: &PanicHookInfo<'_>, trace: &str) -> String {
    let message = panic.payload_as_str().unwrap_or("no message");
    let location = panic.location().map(|location| format!(" ({location})")).unwrap_or_default();
    let system = format!("{} {}", std::env::consts::OS, std::env::consts::ARCH);
    format!(
        "error[mistake]: internal error in postrider {VERSION}: {message}{location}\n  \
         No committed message is lost: messages in flight stay in the database, and are claimed again when their leases\n  \
         expire.\n  \
         help: please report this bug at {ISSUES} with these lines ({system}), after checking that they contain no secret\n\n{trace}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// A panic hook belongs to the whole process; nextest runs each test in a process of its own.
    #[test]
    fn panic_report_says_that_nothing_is_lost_and_where_to_report_it() {
        let reported = Arc::new(Mutex::new(String::new()));
        let hook_report = Arc::clone(&reported);
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| *hook_report.lock().unwrap() = report(panic, "<trace>")));
        let caught = panic::catch_unwind(|| panic!("the {} is gone", "lease"));
        panic::set_hook(before);
        assert!(caught.is_err());
        let reported = reported.lock().unwrap();
        for words in [
            "error[mistake]: internal error in postrider",
            "the lease is gone (crates/postrider-cli/src/panic.rs:",
            "No committed message is lost",
            "/issues/new",
            "<trace>",
        ] {
            assert!(reported.contains(words), "{words:?} in {reported}");
        }
    }
}
