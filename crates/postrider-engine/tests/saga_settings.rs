//! Invalid settings of a saga runner, and their error texts.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use async_trait::async_trait;
use postrider_engine::{
    Failure, SagaRunner,
    saga::{Resolution, Resolver, ResolverCall, SagaBackoff, SagaRunnerBuilder},
};
use postrider_stores::memory::MemoryStore;
use std::time::Duration;

struct Named(&'static str, &'static [&'static str]);

#[async_trait]
impl Resolver for Named {
    fn name(&self) -> &str {
        self.0
    }

    fn operations(&self) -> &[&str] {
        self.1
    }

    async fn resolve(&self, _: &ResolverCall) -> Result<Resolution, Failure> {
        Ok(Resolution::Done)
    }
}

fn builder() -> SagaRunnerBuilder<MemoryStore> {
    SagaRunner::builder(MemoryStore::new())
}

fn payments() -> Named {
    Named("payments", &["erase"])
}

#[test]
fn invalid_settings_are_rejected() {
    let lease = Duration::from_secs(60);
    let backoff = SagaBackoff::new(lease, lease, lease).unwrap();
    let refused = [
        builder(),
        builder().resolver(payments()).resolver(payments()),
        builder().resolver(Named("", &["erase"])),
        builder().resolver(Named("payments", &["two words"])),
        builder().resolver(Named("saga", &["erase"])),
        builder().resolver(payments()).queue("two words"),
        builder().resolver(payments()).max_attempts(0),
        builder().resolver(payments()).concurrency(0),
        builder().resolver(payments()).timeout(Duration::ZERO),
        builder().resolver(payments()).retry(backoff).timeout(lease),
        builder().resolver(payments()).keep_for(Duration::ZERO),
        builder().resolver(payments()).complete_to(""),
    ];
    let errors: Vec<String> =
        refused.into_iter().map(|builder| builder.build().unwrap_err().to_string()).collect();
    insta::assert_snapshot!(errors.join("\n"), @r#"
    resolvers: a runner needs at least one: add it with `resolver`
    resolver: payments is given twice: give each resolver a name of its own
    resolver: must not be empty
    resolver payments: has an invalid operation: type: contains ' ' at byte 3; neither white space nor control characters are allowed
    resolver: saga is reserved for starting sagas: choose another name
    queue: contains ' ' at byte 3; neither white space nor control characters are allowed
    max_attempts: is 0; nothing would ever be called: set at least 1
    concurrency: is 0; nothing would ever be called: set at least 1
    timeout: is 0ns: it must be above zero and shorter than the lease of 300s, or another runner would make the same call at the same time
    timeout: is 60s: it must be above zero and shorter than the lease of 60s, or another runner would make the same call at the same time
    keep_for: is zero; leave it out to keep nothing
    queue: must not be empty
    "#);
    builder().resolver(payments()).build().unwrap();
}
