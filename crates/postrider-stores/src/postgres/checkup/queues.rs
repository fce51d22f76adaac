//! The numbers of queues, which are limited.

use super::super::PostgresStore;
use postrider_core::{Error, Finding, Severity};

const FACTS: &str = "select count(*) from {queue}";

/// Queues have numbers of 16 bits, from 1.
const NUMBERS: i64 = 32_767;
/// With fewer free numbers there is a finding.
const FEW: i64 = 1_000;

pub(super) async fn findings(store: &PostgresStore) -> Result<Vec<Finding>, Error> {
    match store.fact(store.inner.names.sql(&sql!(FACTS)).query()).await {
        // The schema check reports missing tables.
        Err(Error::SchemaMismatch(_)) => Ok(Vec::new()),
        Err(error) => Err(error),
        Ok((queues,)) => Ok(assess(queues).into_iter().collect()),
    }
}

fn assess(queues: i64) -> Option<Finding> {
    let free = NUMBERS - queues;
    let text =
        format!("{free} of {NUMBERS} queue numbers are free: staging on a new queue fails when none is left");
    let finding = Finding::warning("few_queue_numbers", "queues").because(text).fixed_by(
        "use keys, tenants or subjects instead of a queue for each of them; stop the program that names new queues",
    );
    match free {
        FEW.. => None,
        1.. => Some(finding),
        _ => Some(Finding { severity: Severity::Problem, ..finding }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_free_queue_numbers_are_reported() {
        let severity = |queues| assess(queues).map(|finding| finding.severity);
        assert_eq!(severity(10), None);
        assert_eq!(severity(NUMBERS - FEW), None);
        assert_eq!(severity(NUMBERS - FEW + 1), Some(Severity::Warning));
        assert_eq!(severity(NUMBERS), Some(Severity::Problem));
    }
}
