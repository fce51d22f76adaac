//! What a store tells of its migrations: those that were run with their number, name and time, the others with number and name.

use postrider_core::schema::{Applied, Pending, Schema};
use std::time::{Duration, SystemTime};

/// The store has no tables yet; its `table` of migrations is the driver's, and `run` runs a statement beside the store.
pub(crate) async fn are_told(store: &impl Schema, table: &str, run: impl AsyncFn(String)) {
    let before = store.migrations().await.unwrap();
    assert_eq!(before.applied, []);
    assert!(before.pending.iter().map(|pending| pending.number).eq(1..=before.needed));
    assert_eq!(before.pending[0], Pending { number: 1, name: "rooms".to_owned() });

    store.migrate().await.unwrap();
    run(format!("update {table} set installed_on = '2026-03-01 12:00:00+00:00' where version = 1")).await;
    let after = store.migrations().await.unwrap();
    assert_eq!((after.pending.as_slice(), after.needed), ([].as_slice(), before.needed));
    let noon = SystemTime::UNIX_EPOCH + Duration::from_secs(1_772_366_400);
    assert_eq!(after.applied[0], Applied { number: 1, name: "rooms".to_owned(), at: noon });
    let told = after.applied.iter().map(|applied| (applied.number, &applied.name));
    assert!(told.eq(before.pending.iter().map(|pending| (pending.number, &pending.name))));

    run(format!("delete from {table} where version = 2")).await;
    run(format!(
        "insert into {table} select 1000, 'tomorrow', installed_on, success, checksum, execution_time from {table} where version = 1"
    ))
    .await;
    let later = store.migrations().await.unwrap();
    assert_eq!(later.pending, [before.pending[1].clone()]);
    assert_eq!(
        later.applied.last().unwrap(),
        &Applied { number: 1000, name: "tomorrow".to_owned(), at: noon }
    );
    assert_eq!(later.needed, before.needed, "of what this version knows");
}
