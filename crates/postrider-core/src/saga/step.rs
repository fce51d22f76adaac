//! One step of a plan.

use crate::{
    EventType, Invalid, ResolverName,
    limits::{self, Charset},
};
use std::sync::Arc;

/// One step of a plan: checked when the plan was built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    name: Arc<str>,
    resolver: ResolverName,
    operation: EventType,
    kind: Kind,
}

/// What a failure of a step leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// It can be undone. If it fails, what came before it is.
    Compensatable {
        /// The operation that undoes it, by the same resolver. It must succeed at last, and do no harm if it is called twice.
        undo: EventType,
    },
    /// It cannot be undone and need not succeed. If it fails, what came before it is undone; once it has succeeded there is no way back.
    Pivot,
    /// It cannot be undone and must succeed at last: it is tried until it does.
    Retryable,
}

impl Kind {
    /// Its name.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Compensatable { .. } => "compensatable",
            Self::Pivot => "pivot",
            Self::Retryable => "retryable",
        }
    }
}

impl Step {
    pub(super) fn new(name: &str, call: Call, kind: Result<Kind, Invalid>) -> Result<Self, Invalid> {
        limits::name("step", Charset::Word, name)?;
        let of = |what: &'static str| {
            move |error: Invalid| Invalid::new(format!("step {name:?}: {what}"), error.problem().clone())
        };
        Ok(Self {
            name: name.into(),
            resolver: ResolverName::new(call.resolver).map_err(of("resolver"))?,
            operation: EventType::new(call.operation).map_err(of("operation"))?,
            kind: kind.map_err(of("operation that undoes it"))?,
        })
    }

    /// Its name, unique in its plan.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Who carries it out, and undoes it.
    pub fn resolver(&self) -> &ResolverName {
        &self.resolver
    }

    /// What is to be done.
    pub fn operation(&self) -> &EventType {
        &self.operation
    }

    /// What a failure of it leads to.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }
}

/// A call as a plan declares it. It is checked when the plan is built.
#[derive(Debug, Clone)]
pub struct Call {
    resolver: String,
    operation: String,
}

impl Call {
    /// `resolver` is to carry out `operation`.
    pub fn to(resolver: impl Into<String>, operation: impl Into<String>) -> Self {
        Self { resolver: resolver.into(), operation: operation.into() }
    }

    /// The same resolver undoes it by this operation.
    pub fn undone_by(self, operation: impl Into<String>) -> Undoable {
        Undoable { call: self, undo: operation.into() }
    }
}

/// A call that can be undone.
#[derive(Debug, Clone)]
pub struct Undoable {
    pub(super) call: Call,
    pub(super) undo: String,
}
