//! Checks the cron schedules: a schedule whose last tick is in the future does not tick until then.

use super::database::DatabaseCheck;
use crate::{database::Database, format};
use postrider::{Error, Finding, ScheduleName, inspect::Inspect};
use std::time::Duration;

/// After a failover, the clock of the new server may be behind that of the old one by this much.
const SKEW: Duration = Duration::from_secs(60);

pub(super) async fn check_all(
    check: &DatabaseCheck<'_>,
    inspect: &dyn Inspect,
) -> Result<Vec<Finding>, Error> {
    let now = inspect.clock().await?;
    let table = match check.database {
        Database::File(_) => "postrider_schedule",
        Database::Postgres { .. } => "postrider.schedule",
    };
    let schedules = match inspect.schedules().await {
        // The schema check reports this.
        Err(Error::SchemaMismatch(_)) => return Ok(Vec::new()),
        schedules => schedules?,
    };
    let ahead = schedules.into_iter().filter_map(|schedule| {
        let ahead = schedule.last.duration_since(now).ok().filter(|ahead| *ahead > SKEW)?;
        Some((schedule.name, ahead))
    });
    let finding = |(name, ahead): (ScheduleName, Duration)| {
        Finding::warning("schedule_ahead", format!("schedule {name}"))
            .because(format!(
                "its last tick is {} in the future of the database's clock, so it does not tick until then: the clock was ahead when \
                 that tick was staged. The fix makes the schedule begin now",
                format::span(ahead)
            ))
            .fixed_by(format!("delete from {table} where name = '{name}';"))
    };
    Ok(ahead.map(finding).collect())
}
