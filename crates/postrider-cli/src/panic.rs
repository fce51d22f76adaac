//! What is said when the program meets a mistake of its own.

use std::{
    backtrace::Backtrace,
    panic::{self, PanicHookInfo},
};

const VERSION: &str = env!("CARGO_PKG_VERSION");
const ISSUES: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/issues/new");

/// From now on whoever reads a panic knows that nothing is lost, and where to report it.
pub(crate) fn explain() {
    panic::set_hook(Box::new(|panic| {
        let trace = Backtrace::force_capture();
        eprintln!("{}", report(panic, &trace.to_string()));
    }));
}

fn report(panic: &PanicHookInfo<'_>, trace: &str) -> String {
    let words = panic.payload_as_str().unwrap_or("a panic without words");
    let place = panic.location().map(|place| format!(" ({place})")).unwrap_or_default();
    let system = format!("{} {}", std::env::consts::OS, std::env::consts::ARCH);
    format!(
        "error[mistake]: postrider {VERSION} has met a mistake of its own: {words}{place}\n  \
         Nothing that was committed is lost: what was in its hands stays in the database, and is claimed again when its lease\n  \
         lapses.\n  \
         help: please report it at {ISSUES} with these lines ({system}), after you have looked that they hold no secret\n\n{trace}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// A hook belongs to the whole process, so that this test must have one of its own: nextest gives it one.
    #[test]
    fn a_panic_says_that_nothing_is_lost_and_where_to_report_it() {
        let said = Arc::new(Mutex::new(String::new()));
        let heard = Arc::clone(&said);
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| *heard.lock().unwrap() = report(panic, "<trace>")));
        let ended = panic::catch_unwind(|| panic!("the {} is gone", "lease"));
        panic::set_hook(before);
        assert!(ended.is_err());
        let said = said.lock().unwrap();
        for words in [
            "error[mistake]: postrider",
            "the lease is gone (crates/postrider-cli/src/panic.rs:",
            "Nothing that was committed is lost",
            "/issues/new",
            "<trace>",
        ] {
            assert!(said.contains(words), "{words:?} in {said}");
        }
    }
}
