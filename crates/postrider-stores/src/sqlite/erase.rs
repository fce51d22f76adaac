//! Erasing the data of a subject in every table and every queue.

use super::{
    SqliteNames,
    drivers::{Driver, DriverRow},
    operate::{remove, write_audit_row},
    removal,
    writer::Write,
};
use crate::template::Template;
use postrider_core::{Error, MessageId, SubjectId, TenantId, follow_up::ErasureReport, inspect::Action};
use std::collections::BTreeMap;
use uuid::Uuid;

/// Every message about a subject: its table, its queue, its id, and whether it is a follow-up. Plain SQL may have stored invalid
/// JSON in the headers.
pub(super) fn by_subject_template() -> Template {
    let selects = ["ready", "scheduled", "dead", "archive"].map(|name| {
        sql!(
            "select '{name}', m.queue, m.message_id, case when json_valid(m.headers) \
               then json_extract(m.headers, '$.\"followup-resolver\"') is not null else 0 end \
             from {table} m indexed by {index} where m.subject = ?1 and m.tenant is ?2",
            name = Template::of_schema(name),
            table = Template::of_object(name),
            index = Template::of_object(&format!("{name}_subject"))
        )
    });
    Template::join(selects, " union all ")
}

/// Removes all messages about the subject, except messages in flight and follow-ups that have not succeeded. A follow-up in flight has
/// not succeeded.
pub(super) async fn subject(
    write: &mut Write,
    names: &SqliteNames,
    tenant: Option<&TenantId>,
    subject: &SubjectId,
    action: &Action,
) -> Result<ErasureReport, Error> {
    let now = write.now;
    let connection = &mut write.connection;
    let about =
        names.statement(&by_subject_template()).bind(subject.as_str()).bind(tenant.map(TenantId::as_str));
    let mut erased = ErasureReport::default();
    let mut removed_ids: BTreeMap<i64, Vec<MessageId>> = BTreeMap::new();
    for row in connection.rows(about).await? {
        let (table, queue, id): (&str, i64, Uuid) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let removed = match table {
            "archive" => {
                remove(connection, names, &sql!("{archive}"), queue, id).await?;
                &mut erased.archived
            }
            _ if row.get(3)? => {
                erased.follow_ups += 1;
                continue;
            }
            "dead" => {
                remove(connection, names, &sql!("{dead}"), queue, id).await?;
                &mut erased.dead
            }
            _ if removal::remove_unleased(connection, names, queue, id, now).await? => &mut erased.waiting,
            _ => {
                erased.in_flight += 1;
                continue;
            }
        };
        *removed += 1;
        removed_ids.entry(queue).or_default().push(MessageId::from_uuid(id));
    }
    for (queue, ids) in removed_ids {
        write_audit_row(connection, names, action, "erase_subject", Some(queue), &ids, None, now).await?;
    }
    Ok(erased)
}
