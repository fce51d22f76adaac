//! Messages in flight: received and not yet acked.

use crate::byte_budget::BytesInFlight;
use async_nats::Subject;
use postrider_core::AckHandle;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Messages by their stream sequence, each with the ack subject of its latest delivery: a redelivery replaces the delivery before it.
#[derive(Debug, Default)]
pub(super) struct InFlight(Arc<Mutex<BTreeMap<u64, Subject>>>);

/// The content of an ack handle: one delivery of a message.
#[derive(Debug)]
pub(super) struct DeliveryRef {
    in_flight: Arc<Mutex<BTreeMap<u64, Subject>>>,
    sequence: u64,
    pub(super) reply: Subject,
    _bytes: BytesInFlight,
}

impl InFlight {
    pub(super) fn add(&self, sequence: u64, reply: Subject, bytes: BytesInFlight) -> DeliveryRef {
        lock(&self.0).insert(sequence, reply.clone());
        DeliveryRef { in_flight: Arc::clone(&self.0), sequence, reply, _bytes: bytes }
    }

    /// The delivery of the handle, if it is still in flight here.
    pub(super) fn delivery<'t>(&self, handle: &'t AckHandle) -> Option<&'t DeliveryRef> {
        let delivery =
            handle.downcast::<DeliveryRef>().filter(|delivery| Arc::ptr_eq(&delivery.in_flight, &self.0))?;
        delivery.is_current(&lock(&self.0)).then_some(delivery)
    }

    /// Removes all messages, and returns their ack subjects.
    pub(super) fn drain(&self) -> Vec<Subject> {
        std::mem::take(&mut *lock(&self.0)).into_values().collect()
    }
}

impl DeliveryRef {
    /// The delivery is acked.
    pub(super) fn remove(&self) {
        let mut in_flight = lock(&self.in_flight);
        if self.is_current(&in_flight) {
            in_flight.remove(&self.sequence);
        }
    }

    fn is_current(&self, in_flight: &BTreeMap<u64, Subject>) -> bool {
        in_flight.get(&self.sequence).is_some_and(|reply| *reply == self.reply)
    }
}

impl Drop for DeliveryRef {
    /// Without its handle the delivery cannot be acked any more.
    fn drop(&mut self) {
        self.remove();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
