//! Forwarding for wrappers of a backend: metrics, faults in tests, a layer of your own.

/// Implements parts of a [`Backend`](crate::Backend) for a wrapper by forwarding every call to a field that is one, itself or in an
/// `Arc`: `notifier`, `inspect`, `operate`, `schema`. The wrapper implements the rest, in which it differs.
///
/// ```
/// # use postrider_core::*;
/// # use std::{sync::Arc, time::{Duration, SystemTime}};
/// #[derive(Debug)]
/// struct Counted {
///     inner: Arc<dyn Backend>,
/// }
///
/// postrider_core::forward_backend!(Counted, inner: notifier, inspect, operate, schema);
/// // impl Store for Counted { … }
/// ```
#[macro_export]
macro_rules! forward_backend {
    ($wrapper:ty, $field:ident: $($part:ident),+) => {
        $($crate::forward_backend! { @$part $wrapper, $field })+
    };
    (@notifier $wrapper:ty, $field:ident) => {
        $crate::forward_backend! { @impl $wrapper, $field, $crate::notifier::Notifier,
            async fn register_idle(idle: &$crate::notifier::IdleWorker, lasting: ::std::time::Duration) -> ();
            async fn deregister_idle(idle: &$crate::notifier::IdleWorker) -> ();
            async fn listen(queues: &[$crate::QueueName]) -> ::std::boxed::Box<dyn $crate::notifier::Listener>;
        }
    };
    (@schema $wrapper:ty, $field:ident) => {
        $crate::forward_backend! { @impl $wrapper, $field, $crate::schema::Schema,
            fn print() -> ::std::string::String;
            async fn migrate() -> ();
            async fn migrations() -> $crate::schema::Migrations;
            async fn validate() -> ::std::vec::Vec<$crate::schema::Drift>;
            async fn declare(queue: &$crate::QueueName, policy: &$crate::QueuePolicy) -> ();
            async fn checkup(request: &$crate::CheckupRequest) -> ::std::vec::Vec<$crate::Finding>;
        }
    };
    (@inspect $wrapper:ty, $field:ident) => {
        $crate::forward_backend! { @impl $wrapper, $field, $crate::inspect::Inspect,
            async fn counts() -> ::std::collections::BTreeMap<$crate::QueueName, $crate::inspect::Counts>;
            async fn lag(queue: &$crate::QueueName) -> ::std::option::Option<::std::time::Duration>;
            async fn blocked_keys(queue: &$crate::QueueName, limit: usize) -> ::std::vec::Vec<$crate::inspect::BlockedKey>;
            async fn list(request: &$crate::inspect::ListRequest) -> $crate::inspect::Page;
            async fn get(queue: &$crate::QueueName, id: $crate::MessageId) -> ::std::option::Option<$crate::inspect::MessageRow>;
            async fn summarize(selection: &$crate::inspect::Selection) -> $crate::inspect::SelectionSummary;
            async fn dead_groups(queue: ::std::option::Option<&$crate::QueueName>, limit: usize) -> ::std::vec::Vec<$crate::inspect::DeadGroup>;
            async fn find(by: &$crate::inspect::FindBy, limit: usize) -> ::std::vec::Vec<$crate::inspect::MessageRow>;
            async fn ahead(queue: &$crate::QueueName, id: $crate::MessageId) -> ::std::option::Option<$crate::inspect::CappedCount>;
            async fn deduplication_records(tenant: ::std::option::Option<&$crate::TenantId>, id: $crate::MessageId) -> ::std::vec::Vec<$crate::inspect::DeduplicationRecord>;
            async fn timers(queue: ::std::option::Option<&$crate::QueueName>, limit: usize) -> ::std::vec::Vec<$crate::inspect::ActiveTimer>;
            async fn prunable(request: &$crate::PruneRequest, audit_older_than: ::std::option::Option<::std::time::Duration>) -> $crate::inspect::Prunable;
            async fn schedules() -> ::std::vec::Vec<$crate::inspect::ScheduleRow>;
            async fn clock() -> ::std::time::SystemTime;
            async fn audit_of(id: $crate::MessageId, limit: usize) -> ::std::vec::Vec<$crate::inspect::AuditRow>;
            async fn audit(limit: usize) -> ::std::vec::Vec<$crate::inspect::AuditRow>;
            async fn status_counts(queue: &$crate::QueueName) -> $crate::follow_up::StatusCounts;
            async fn follow_up_rows(queue: &$crate::QueueName, filter: $crate::follow_up::FollowUpFilter, limit: usize) -> ::std::vec::Vec<$crate::follow_up::FollowUpRow>;
        }
    };
    (@operate $wrapper:ty, $field:ident) => {
        $crate::forward_backend! { @impl $wrapper, $field, $crate::inspect::Operate,
            async fn requeue(queue: &$crate::QueueName, ids: &[$crate::MessageId], action: &$crate::inspect::Action) -> ::std::vec::Vec<$crate::MessageId>;
            async fn discard(queue: &$crate::QueueName, ids: &[$crate::MessageId], action: &$crate::inspect::Action) -> ::std::vec::Vec<$crate::MessageId>;
            async fn release_key(queue: &$crate::QueueName, key: &$crate::OrderingKey, action: &$crate::inspect::Action) -> bool;
            async fn pause(what: &$crate::Pausable, action: &$crate::inspect::Action) -> bool;
            async fn resume(what: &$crate::Pausable, action: &$crate::inspect::Action) -> bool;
            async fn drop_timer(queue: &$crate::QueueName, timer: &$crate::TimerName, action: &$crate::inspect::Action) -> bool;
            async fn prune_audit(age: ::std::time::Duration, limit: usize, action: &$crate::inspect::Action) -> u64;
            async fn erase_subject(tenant: ::std::option::Option<&$crate::TenantId>, subject: &$crate::SubjectId, action: &$crate::inspect::Action) -> $crate::follow_up::ErasureReport;
            async fn requeue_next(selection: &$crate::inspect::Selection, chunk: &$crate::inspect::Chunk, action: &$crate::inspect::Action) -> $crate::inspect::ChangeReport;
            async fn discard_next(selection: &$crate::inspect::Selection, chunk: &$crate::inspect::Chunk, action: &$crate::inspect::Action) -> $crate::inspect::ChangeReport;
            async fn replay(queue: &$crate::QueueName, originals: &[$crate::MessageId], copies: &[$crate::Message], action: &$crate::inspect::Action) -> $crate::StageReport;
        }
    };
    (@impl $wrapper:ty, $field:ident, $part:path,
        $(fn $plain:ident() -> $plain_output:ty;)?
        $(async fn $method:ident($($argument:ident: $type:ty),*) -> $output:ty;)+
    ) => {
        #[$crate::async_trait]
        impl $part for $wrapper {
            $(fn $plain(&self) -> $plain_output {
                use $crate::prelude::*;
                self.$field.$plain()
            })?

            $(async fn $method(&self, $($argument: $type),*) -> ::std::result::Result<$output, $crate::Error> {
                use $crate::prelude::*;
                self.$field.$method($($argument),*).await
            })+
        }
    };
}
