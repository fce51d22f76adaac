//! A statement and its parameters, independent of the driver that runs it.
//!
//! Parameters borrow their values where they can.

use super::names::{Sql, SqliteNames};
use crate::template::Template;
use std::borrow::Cow;
use uuid::Uuid;

/// One statement with its parameters.
#[derive(Debug)]
pub(super) struct Statement<'p> {
    pub(super) sql: Sql,
    pub(super) params: Vec<Param<'p>>,
}

impl SqliteNames {
    /// A statement with the names of the tables filled in, without parameters yet.
    pub(super) fn statement<'p>(&self, template: &Template) -> Statement<'p> {
        Statement { sql: self.sql(template), params: Vec::new() }
    }
}

impl<'p> Statement<'p> {
    /// Adds the next parameter.
    #[must_use]
    pub(super) fn bind(mut self, param: impl Into<Param<'p>>) -> Self {
        self.params.push(param.into());
        self
    }
}

/// A parameter, in one of the types of SQLite.
#[derive(Debug)]
pub(super) enum Param<'p> {
    Null,
    Integer(i64),
    Text(Cow<'p, str>),
    Blob(Cow<'p, [u8]>),
    Id(Uuid),
}

impl From<i64> for Param<'_> {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl From<u32> for Param<'_> {
    fn from(value: u32) -> Self {
        Self::Integer(value.into())
    }
}

impl From<bool> for Param<'_> {
    fn from(value: bool) -> Self {
        Self::Integer(value.into())
    }
}

impl From<Uuid> for Param<'_> {
    fn from(value: Uuid) -> Self {
        Self::Id(value)
    }
}

impl From<String> for Param<'_> {
    fn from(value: String) -> Self {
        Self::Text(value.into())
    }
}

impl<'p> From<&'p str> for Param<'p> {
    fn from(value: &'p str) -> Self {
        Self::Text(value.into())
    }
}

impl<'p> From<Cow<'p, str>> for Param<'p> {
    fn from(value: Cow<'p, str>) -> Self {
        Self::Text(value)
    }
}

impl<'p> From<&'p [u8]> for Param<'p> {
    fn from(value: &'p [u8]) -> Self {
        Self::Blob(value.into())
    }
}

impl From<Vec<u8>> for Param<'_> {
    fn from(value: Vec<u8>) -> Self {
        Self::Blob(value.into())
    }
}

impl<'p, T: Into<Param<'p>>> From<Option<T>> for Param<'p> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}
