//! The parts of the backend without fault injection: every call goes to the in-memory store.

use crate::TestStore;

postrider_core::forward_backend!(TestStore, memory: notifier, inspect, operate, schema);
