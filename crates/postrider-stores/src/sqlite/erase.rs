//! Removing what is kept of a subject, in every room and every queue.

use super::{
    Names,
    drivers::{Cells, Driver},
    evict,
    operate::{note, remove},
    writer::Write,
};
use postrider_core::{Error, MessageId, SubjectId, TenantId, follow_up::Erased, inspect::Action};
use std::collections::BTreeMap;
use uuid::Uuid;

/// Every message about a subject: its room, its queue, its identity, and whether it is a follow-up. Plain SQL may have put anything
/// into the headers.
pub(super) fn about_template() -> String {
    let rooms = ["ready", "later", "dead", "archive"].map(|room| {
        format!(
            "select '{room}', m.queue, m.message_id, case when json_valid(m.headers) \
               then json_extract(m.headers, '$.\"followup-resolver\"') is not null else 0 end \
             from {{{room}}} m indexed by {{{room}_subject}} where m.subject = ?1 and m.tenant is ?2"
        )
    });
    rooms.join(" union all ")
}

/// Removes what is about the subject, but for what is in somebody's hands and follow-ups that have not succeeded. A follow-up in
/// somebody's hands has not.
pub(super) async fn subject(
    write: &mut Write,
    names: &Names,
    tenant: Option<&TenantId>,
    subject: &SubjectId,
    action: &Action,
) -> Result<Erased, Error> {
    let now = write.now;
    let connection = &mut write.connection;
    let about = names.statement(&about_template()).bind(subject.as_str()).bind(tenant.map(TenantId::as_str));
    let mut erased = Erased::default();
    let mut gone: BTreeMap<i64, Vec<MessageId>> = BTreeMap::new();
    for row in connection.rows(about).await? {
        let (room, queue, id): (&str, i64, Uuid) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let removed = match room {
            "archive" => {
                remove(connection, names, "{archive}", queue, id).await?;
                &mut erased.archived
            }
            _ if row.get(3)? => {
                erased.follow_ups += 1;
                continue;
            }
            "dead" => {
                remove(connection, names, "{dead}", queue, id).await?;
                &mut erased.dead
            }
            _ if evict::living(connection, names, queue, id, now).await? => &mut erased.waiting,
            _ => {
                erased.in_hand += 1;
                continue;
            }
        };
        *removed += 1;
        gone.entry(queue).or_default().push(MessageId::from_uuid(id));
    }
    for (queue, ids) in gone {
        note(connection, names, action, "erase_subject", Some(queue), &ids, None, now).await?;
    }
    Ok(erased)
}
