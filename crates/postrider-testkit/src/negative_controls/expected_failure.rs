//! Runs a case that is expected to fail, without printing its panic.

use std::{future::Future, panic, pin::Pin, sync::Once, time::Duration};
use tokio::{task_local, time::timeout};

/// The name of a case, and the case.
pub(super) type Case<F> = (&'static str, fn(F) -> CaseFuture);

/// A running case.
pub(super) type CaseFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Lists cases of the store suite with their names.
macro_rules! cases {
    ($($module:ident::$case:ident),+ $(,)?) => {
        vec![$((
            concat!(stringify!($module), "::", stringify!($case)),
            |fixture| -> $crate::negative_controls::expected_failure::CaseFuture { Box::pin($crate::store::$module::$case(fixture)) },
        )),+]
    };
}
pub(super) use cases;

task_local! {
    /// Set while a case runs that is expected to fail.
    static EXPECTED: ();
}

/// Runs a case and returns whether it failed, by a panic or a timeout.
pub async fn case_fails(case: impl Future<Output = ()> + Send + 'static) -> bool {
    static SILENCE_PANICS: Once = Once::new();
    SILENCE_PANICS.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if EXPECTED.try_with(|()| ()).is_err() {
                report(panic);
            }
        }));
    });
    let case = timeout(Duration::from_secs(20), EXPECTED.scope((), case));
    !matches!(tokio::spawn(case).await, Ok(Ok(())))
}

#[cfg(test)]
mod tests {
    use super::case_fails;

    #[tokio::test]
    async fn only_a_failing_case_is_detected() {
        assert!(!case_fails(async {}).await);
        assert!(case_fails(async { panic!("expected") }).await);
    }
}
