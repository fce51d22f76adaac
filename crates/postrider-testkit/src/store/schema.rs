//! The migrations of a store.

use super::helpers::*;
use crate::Fixture;
use tokio::task::JoinSet;

/// A migrated store has the schema of this version.
pub async fn a_migrated_store_has_no_drift<F: Fixture>(fixture: F) {
    assert_eq!(fixture.schema().validate().await.unwrap(), []);
}

/// Migrating again, by many processes at once and with pending messages, changes nothing.
pub async fn migrating_again_changes_nothing<F: Fixture>(fixture: F) {
    let id = stage_one(&fixture, message("orders")).await;
    let mut migrations = JoinSet::new();
    for _ in 0..4 {
        let schema = fixture.schema();
        migrations.spawn(async move { schema.migrate().await.unwrap() });
    }
    migrations.join_all().await;

    assert_eq!(fixture.schema().validate().await.unwrap(), []);
    assert_eq!(drain(&fixture.store(), "orders").await, [id]);
}
