//! One step of a plan.

use crate::{
    EventType, Invalid, ResolverName,
    limits::{self, Charset},
};
use std::sync::Arc;

/// One step of a plan, validated when the plan was built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    name: Arc<str>,
    resolver: ResolverName,
    operation: EventType,
    kind: StepKind,
}

/// The kind of a step: the consequence of its failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepKind {
    /// The step has a compensation. If it fails, the steps before it are compensated.
    Compensatable {
        /// The compensating operation of the same resolver. It must succeed eventually, and be idempotent.
        undo: EventType,
    },
    /// The pivot. If it fails, the steps before it are compensated; once it has succeeded the saga can only go forward.
    Pivot,
    /// The step is retried until it succeeds.
    Retryable,
}

impl StepKind {
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
    pub(super) fn new(name: &str, call: StepCall, kind: Result<StepKind, Invalid>) -> Result<Self, Invalid> {
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

    /// The name, unique in its plan.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The resolver that executes and compensates it.
    pub fn resolver(&self) -> &ResolverName {
        &self.resolver
    }

    /// The operation.
    pub fn operation(&self) -> &EventType {
        &self.operation
    }

    /// The kind.
    pub fn kind(&self) -> &StepKind {
        &self.kind
    }
}

/// A call in a plan, validated when the plan is built.
#[derive(Debug, Clone)]
pub struct StepCall {
    resolver: String,
    operation: String,
}

impl StepCall {
    /// A call of `operation` on `resolver`.
    pub fn to(resolver: impl Into<String>, operation: impl Into<String>) -> Self {
        Self { resolver: resolver.into(), operation: operation.into() }
    }

    /// Sets the compensating operation of the same resolver.
    pub fn undone_by(self, operation: impl Into<String>) -> Undoable {
        Undoable { call: self, undo: operation.into() }
    }
}

/// A call with its compensation.
#[derive(Debug, Clone)]
pub struct Undoable {
    pub(super) call: StepCall,
    pub(super) undo: String,
}
