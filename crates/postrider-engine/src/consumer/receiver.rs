//! Receiving, and keeping what was received.

use super::{
    mail::Mail,
    work::{Floor, Work},
};
use crate::carry::trouble::Backoff;
use postrider_core::{Receive, SourceError};
use std::{
    sync::{Arc, PoisonError, atomic::Ordering::SeqCst},
    time::Duration,
};
use tokio::time::{Instant, sleep};

/// The most that is asked for at once.
const MOST: usize = 1_000;
/// The first pause after the source failed.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

impl<R: Receive> Work<R> {
    /// The loop that receives, until it is stopped.
    pub(super) async fn receive(self: Arc<Self>, floor: Arc<Floor>) {
        let mut pauses = Backoff::new(FIRST_PAUSE.min(self.restart_within), self.restart_within);
        let mut is_down = false;
        loop {
            let received = tokio::select! {
                biased;
                () = floor.stop.cancelled() => return,
                received = self.receive_some(&floor) => received,
            };
            match received {
                Ok(mails) => {
                    if std::mem::take(&mut is_down) {
                        tracing::info!(name: "postrider.source_works", consumer = %self.name, "messages come through again");
                    }
                    pauses = Backoff::new(FIRST_PAUSE.min(self.restart_within), self.restart_within);
                    // Told before the next call begins, so that what that one brings is in order.
                    let back = floor.hall.put(mails);
                    self.hand_back(back, &floor).await;
                }
                Err(error) => {
                    self.counts.source_failed();
                    if !std::mem::replace(&mut is_down, true) {
                        tracing::warn!(name: "postrider.source_failed", consumer = %self.name, %error, "nothing comes through; trying again");
                    }
                    tokio::select! {
                        () = sleep(pauses.pause()) => {}
                        () = floor.stop.cancelled() => return,
                    }
                }
            }
        }
    }

    async fn receive_some(&self, floor: &Floor) -> Result<Vec<Mail>, SourceError> {
        // Room is only ever taken here.
        let Ok(one) = floor.room.acquire().await else { return Ok(Vec::new()) };
        let most = (floor.room.available_permits() + 1).min(MOST);
        drop(one);
        let call = floor.calls.fetch_add(1, SeqCst) + 1;
        let parcels = self.source.receive(most).await?;
        floor.room.forget_permits(parcels.len());
        *floor.came_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        let mut mails: Vec<Mail> =
            parcels.into_iter().map(|parcel| Mail::read(parcel, &self.queue, call)).collect();
        if self.abilities.holds_for.is_some() {
            floor.hold(&mut mails);
        }
        self.counts.in_hand(self.in_hand - floor.room.available_permits().min(self.in_hand));
        Ok(mails)
    }

    /// The loop that keeps in hand what is lent for a time only.
    pub(super) async fn extend(self: Arc<Self>, floor: Arc<Floor>) {
        let Some(holds_for) = self.abilities.holds_for else { return };
        loop {
            sleep(holds_for / 3).await;
            let tickets = floor.tickets();
            if tickets.is_empty() {
                continue;
            }
            let failed = self.source.extend(&tickets).await.into_iter().filter_map(Result::err);
            // It was answered meanwhile, or it comes again, and the mark tells.
            for error in failed {
                tracing::debug!(name: "postrider.not_extended", consumer = %self.name, %error);
            }
        }
    }
}
