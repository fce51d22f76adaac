//! Checks the migrations that a store reports: applied ones with number, name and time, pending ones with number and name.

use postrider_core::schema::{AppliedMigration, Schema};
use std::time::{Duration, SystemTime};

/// The store has no tables yet; `table` is the record of its migrations, and `run` runs a statement beside the store.
pub(crate) async fn check_reported(store: &impl Schema, table: &str, run: impl AsyncFn(String)) {
    let before = store.migrations().await.unwrap();
    assert_eq!(before.applied, []);
    assert!(before.pending.iter().map(|pending| pending.number).eq(1..=before.needed));

    store.migrate().await.unwrap();
    run(format!("update {table} set installed_on = '2026-03-01 12:00:00+00:00' where version = 1")).await;
    let after = store.migrations().await.unwrap();
    assert_eq!((after.pending.as_slice(), after.needed), ([].as_slice(), before.needed));
    let noon = SystemTime::UNIX_EPOCH + Duration::from_secs(1_772_366_400);
    assert_eq!((after.applied[0].number, after.applied[0].at), (1, noon));
    let applied = after.applied.iter().map(|applied| (applied.number, &applied.name));
    assert!(applied.eq(before.pending.iter().map(|pending| (pending.number, &pending.name))));

    run(format!(
        "insert into {table} select 1000, 'tomorrow', installed_on, success, checksum, execution_time from {table} where version = 1"
    ))
    .await;
    run(format!("delete from {table} where version = {}", before.needed)).await;
    let changed = store.migrations().await.unwrap();
    assert_eq!(changed.pending.as_slice(), before.pending.last().map(std::slice::from_ref).unwrap());
    assert_eq!(
        changed.applied.last().unwrap(),
        &AppliedMigration { number: 1000, name: "tomorrow".to_owned(), at: noon }
    );
    assert_eq!(changed.needed, before.needed, "the newest version that this program knows");
}
