//! A database of messages, with everything that runners and operators need of it.

use crate::{Store, inspect::Operate, notifier::Notifier, schema::Schema};

/// A complete store, behind one handle: the delivery path ([`Store`]), wake-up ([`Notifier`]), the operators' view and actions
/// ([`Inspect`](crate::inspect::Inspect), [`Operate`]), and tables, policies and checks ([`Schema`]).
///
/// It has no methods of its own: a type that implements its parts is a `Backend`. Object safe: runners and the program hold an
/// `Arc<dyn Backend>` for each database. Transactions, which have the type of a driver, are in [`TxBackend`](crate::TxBackend).
pub trait Backend: Store + Notifier + Operate + Schema {}

impl<B: Store + Notifier + Operate + Schema> Backend for B {}
