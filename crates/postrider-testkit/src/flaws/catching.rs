//! Running a case to see it fail, without the noise.

use std::{future::Future, panic, pin::Pin, sync::Once, time::Duration};
use tokio::{task_local, time::timeout};

/// A case of the suite, and its name.
pub(super) type Case<F> = (&'static str, fn(F) -> Running);

/// A case under way.
pub(super) type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Names cases of the store suite.
macro_rules! cases {
    ($($module:ident::$case:ident),+ $(,)?) => {
        vec![$((
            concat!(stringify!($module), "::", stringify!($case)),
            |fixture| -> $crate::flaws::catching::Running { Box::pin($crate::store::$module::$case(fixture)) },
        )),+]
    };
}
pub(super) use cases;

task_local! {
    /// Set while a case runs that is expected to fail.
    static EXPECTED: ();
}

/// Runs a case and says whether it failed, by panicking or by not coming to an end.
pub async fn caught(case: impl Future<Output = ()> + Send + 'static) -> bool {
    static HUSH: Once = Once::new();
    HUSH.call_once(|| {
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
    use super::caught;

    #[tokio::test]
    async fn only_a_case_that_fails_is_caught() {
        assert!(!caught(async {}).await);
        assert!(caught(async { panic!("expected") }).await);
    }
}
