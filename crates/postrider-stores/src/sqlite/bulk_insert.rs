//! An insert of many messages, whose text does not depend on their number.
//!
//! A parameter costs more than the value that it binds: the driver allocates, names and copies it, and so does SQLite. Fourteen
//! parameters for each message cost as much as the insert itself. So a value that all rows share is bound once. The ids and
//! payloads are concatenated in one blob, from which `substr` cuts them without reading the bytes before. And `json_each` makes
//! rows from a list with the offset of each message and the values that differ between the rows.

use super::{
    row::{json, sql_limit},
    statement::Param,
};
use crate::{envelope, template::Template};
use postrider_core::{EventType, Message, SubjectId, TenantId, message::DEFAULT_CONTENT_TYPE};
use serde_json::Value;
use std::{iter, mem};
use uuid::Uuid;

/// The most payload bytes in one insert. The blob is copied, and SQLite accepts no more than a gigabyte.
pub(super) const MAX_BYTES: usize = 16 << 20;

/// A slice of the blob is one number: the offset of the payload, and its length in the low bits.
const LENGTH_BITS: u32 = 31;

const INSERT: &str =
    "insert into {table} ({columns}) select {values} from {with} json_each({list}) j {condition}";

/// The builder of an insert.
#[derive(Debug)]
pub(super) struct BulkInsert<'p> {
    columns: Vec<&'static str>,
    values: Vec<Template>,
    params: Vec<Param<'p>>,
    blob: Vec<u8>,
    slices: Vec<Value>,
    differing: Vec<Vec<Value>>,
}

impl<'p> BulkInsert<'p> {
    /// An insert with the columns that every table has, for a text whose first parameters are `params`.
    pub(super) fn new(
        params: Vec<Param<'p>>,
        messages: impl Iterator<Item = (Uuid, &'p Message)> + Clone,
    ) -> Self {
        let bytes = messages.clone().map(|(id, message)| id.as_bytes().len() + message.payload().len()).sum();
        let mut blob = Vec::with_capacity(bytes);
        let mut slices = Vec::new();
        for (id, message) in messages.clone() {
            blob.extend_from_slice(id.as_bytes());
            slices.push((sql_limit(blob.len()) << LENGTH_BITS | sql_limit(message.payload().len())).into());
            blob.extend_from_slice(message.payload());
        }
        let rows =
            Self { columns: Vec::new(), values: Vec::new(), params, blob, slices, differing: Vec::new() };
        let messages = messages.map(|(_, message)| message);
        rows.column("event_type", messages.clone().map(|message| message.event_type().map(EventType::as_str)))
            .column("content_type", messages.clone().map(content_type))
            .column("tenant", messages.clone().map(|message| message.tenant().map(TenantId::as_str)))
            .column("subject", messages.clone().map(|message| message.subject().map(SubjectId::as_str)))
            .column("headers", messages.map(envelope::encode))
    }

    /// Adds a column that SQLite computes.
    pub(super) fn computed(mut self, column: &'static str, expression: Template) -> Self {
        self.columns.push(column);
        self.values.push(expression);
        self
    }

    /// Adds a column with these values, one for each row.
    pub(super) fn column<T>(self, column: &'static str, cells: impl Iterator<Item = T> + Clone) -> Self
    where
        T: PartialEq + Into<Param<'p>> + Into<Value>,
    {
        let mut rest = cells.clone();
        let Some(first) = rest.next() else { return self };
        let mut rows = self;
        let value = if rest.all(|cell| cell == first) {
            rows.bind(first)
        } else {
            rows.differing.push(cells.map(Into::into).collect());
            sql!("j.value ->> {index}", index = rows.differing.len())
        };
        rows.computed(column, value)
    }

    fn bind(&mut self, param: impl Into<Param<'p>>) -> Template {
        self.params.push(param.into());
        sql!("?{number}", number = self.params.len())
    }

    /// The template of the insert into `table`, and its parameters. The alias of the rows is `j`; `with` is joined before them, and
    /// `condition` follows them.
    pub(super) fn insert(
        mut self,
        table: &Template,
        with: &Template,
        condition: &Template,
    ) -> (Template, Vec<Param<'p>>) {
        let slices = mem::take(&mut self.slices);
        let mut differing: Vec<_> = mem::take(&mut self.differing).into_iter().map(Vec::into_iter).collect();
        let (slice, list) = if differing.is_empty() {
            (sql!("j.value"), json(slices))
        } else {
            let row = |slice| -> Value {
                iter::once(slice).chain(differing.iter_mut().filter_map(Iterator::next)).collect()
            };
            (sql!("(j.value ->> 0)"), json(slices.into_iter().map(row)))
        };
        let blob = mem::take(&mut self.blob);
        let (blob, list) = (self.bind(blob), self.bind(list));
        let at = sql!("({slice} >> {bits})", slice, bits = LENGTH_BITS);
        let length = sql!("({slice} & {mask})", slice, mask = (1_u64 << LENGTH_BITS) - 1);
        let Self { columns, values, params, .. } = self
            .computed("message_id", sql!("substr({blob}, {at} - 15, 16)", blob, at))
            .computed("payload", sql!("substr({blob}, {at} + 1, {length})", blob, at, length));
        let columns = Template::of_schema(columns.join(", "));
        let values = Template::join(values, ", ");
        (sql!(INSERT, table, columns, values, with, list, condition), params)
    }
}

/// The content type, unless it is the default.
pub(super) fn content_type(message: &Message) -> Option<&str> {
    Some(message.content_type()).filter(|content_type| *content_type != DEFAULT_CONTENT_TYPE)
}
