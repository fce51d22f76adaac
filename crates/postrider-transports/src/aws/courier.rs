//! Carries a batch to a service: looks up where it goes, cuts it into requests, and gives each message its own answer.

use super::{AwsOptions, Entry, Kind, Listed, Trouble, client, halted::Halted, plan, wire};
use async_trait::async_trait;
use aws_config::SdkConfig;
use futures_util::future::join_all;
use postrider_core::{Invalid, Outgoing, PublishError, Receipt};
use std::{
    collections::BTreeMap,
    fmt,
    sync::{Mutex, PoisonError},
};
use tokio::sync::{OnceCell, RwLock, RwLockReadGuard, Semaphore};

/// Requests under way at once, of all calls.
const AT_ONCE: usize = 32;

pub(crate) type Answer = Result<Receipt, PublishError>;

/// One of the two services.
#[async_trait]
pub(crate) trait Service: Send + Sync + 'static {
    /// The most bytes of a message, and of a request.
    const BYTES: usize;

    fn new(config: &SdkConfig) -> Self;

    /// Looks up what requests are addressed to: the URL of a queue, the ARN of a topic.
    async fn find(&self, destination: &str) -> Result<String, Trouble>;

    /// Sends the entries under the ids `0`, `1`, … in one request. An error is that of all of them.
    async fn send(&self, address: &str, entries: &[&Entry]) -> Result<Listed, Trouble>;

    /// How to make what is missing.
    fn make(destination: &str) -> String;
}

/// A service, from the first message to the closing.
pub(crate) struct Courier<S> {
    options: AwsOptions,
    /// Nobody has it for long but closing, which waits for everybody else.
    service: RwLock<Option<OnceCell<S>>>,
    /// The addresses of those destinations that had to be looked up.
    addresses: Mutex<BTreeMap<String, String>>,
    room: Semaphore,
}

impl<S: Service> Courier<S> {
    pub(crate) fn new(options: AwsOptions) -> Result<Self, Invalid> {
        options.check()?;
        let service = RwLock::new(Some(OnceCell::new()));
        Ok(Self { options, service, addresses: Mutex::default(), room: Semaphore::new(AT_ONCE) })
    }

    pub(crate) async fn publish(&self, batch: &[Outgoing]) -> Vec<Answer> {
        if batch.is_empty() {
            return Vec::new();
        }
        let service = match self.service().await {
            Ok(service) => service,
            Err(trouble) => return batch.iter().map(|_| Err(trouble.clone().into())).collect(),
        };
        let mut destinations: BTreeMap<&str, Vec<(usize, &Outgoing)>> = BTreeMap::new();
        for (place, outgoing) in batch.iter().enumerate() {
            destinations.entry(&outgoing.destination).or_default().push((place, outgoing));
        }
        let sending =
            destinations.into_iter().map(|(destination, mail)| self.send_to(&service, destination, mail));
        let mut answers: Vec<Result<(), Trouble>> = vec![Err(unanswered()); batch.len()];
        for (place, answer) in join_all(sending).await.into_iter().flatten() {
            answers[place] = answer;
        }
        answers.into_iter().map(|answer| answer.map(|()| Receipt::new()).map_err(Into::into)).collect()
    }

    /// The service, set up by whoever comes first.
    pub(crate) async fn service(&self) -> Result<RwLockReadGuard<'_, S>, Trouble> {
        let service = self.service.read().await;
        let Some(cell) = service.as_ref() else { return Err(Trouble::down("it was closed".to_owned())) };
        let set_up = async || Ok::<S, Trouble>(S::new(&client::configure(&self.options).await?));
        cell.get_or_try_init(set_up).await?;
        RwLockReadGuard::try_map(service, |service| service.as_ref()?.get()).map_err(|_| unanswered())
    }

    /// Refuses whoever comes, and waits for whoever is there.
    pub(crate) async fn close(&self) {
        self.service.write().await.take();
    }

    async fn send_to(
        &self,
        service: &S,
        destination: &str,
        mail: Vec<(usize, &Outgoing)>,
    ) -> Vec<(usize, Result<(), Trouble>)> {
        let is_fifo = destination.ends_with(".fifo");
        let address = match self.address(service, destination).await {
            Ok(address) => address,
            Err(trouble) => {
                return mail.into_iter().map(|(place, _)| (place, Err(trouble.clone()))).collect();
            }
        };
        let mut answers = Vec::with_capacity(mail.len());
        let (mut halted, mut entries) = (Halted::default(), Vec::with_capacity(mail.len()));
        for (place, outgoing) in mail {
            let group = is_fifo.then(|| wire::group(outgoing));
            if let Some(trouble) = halted.before(group.as_deref()) {
                answers.push((place, Err(trouble)));
                continue;
            }
            match Entry::write(outgoing, group.clone(), S::BYTES) {
                Ok(entry) => entries.push((place, entry)),
                Err(wrong) => {
                    let trouble = Trouble::new(Kind::Reject, wrong);
                    halted.at(group.as_deref(), &trouble);
                    answers.push((place, Err(trouble)));
                }
            }
        }
        // Those before a message that cannot be written are sent all the same.
        let mut halted = Halted::default();
        for mut round in plan::rounds(&entries, S::BYTES) {
            for request in &mut round {
                request.retain(|at| {
                    let (place, entry) = &entries[*at];
                    let trouble = halted.before(entry.group.as_deref());
                    let is_halted = trouble.is_some();
                    answers.extend(trouble.map(|trouble| (*place, Err(trouble))));
                    !is_halted
                });
            }
            let sending = round.into_iter().filter(|request| !request.is_empty()).map(async |request| {
                let of_request: Vec<&Entry> = request.iter().map(|at| &entries[*at].1).collect();
                let answers = self.send(service, destination, &address, &of_request).await;
                request.into_iter().zip(answers).collect::<Vec<_>>()
            });
            for (at, answer) in join_all(sending).await.into_iter().flatten() {
                let (place, entry) = &entries[at];
                if let Err(trouble) = &answer {
                    halted.at(entry.group.as_deref(), trouble);
                }
                answers.push((*place, answer));
            }
        }
        answers
    }

    /// One answer for each of the entries. Where one of them spoiled the whole request, and nobody says which, they go one by one.
    async fn send(
        &self,
        service: &S,
        destination: &str,
        address: &str,
        entries: &[&Entry],
    ) -> Vec<Result<(), Trouble>> {
        match self.request(service, destination, address, entries).await {
            Err(trouble) if trouble.kind == Kind::Reject && entries.len() > 1 => {
                let alone = entries.iter().map(async |entry| {
                    let listed = self.request(service, destination, address, &[entry]).await?;
                    listed.answers(1).pop().unwrap_or_else(|| Err(unanswered()))
                });
                join_all(alone).await
            }
            Err(trouble) => vec![Err(trouble); entries.len()],
            Ok(listed) => listed.answers(entries.len()),
        }
    }

    async fn request(
        &self,
        service: &S,
        destination: &str,
        address: &str,
        entries: &[&Entry],
    ) -> Result<Listed, Trouble> {
        let _room = self.room.acquire().await;
        let sent = service.send(address, entries).await;
        sent.map_err(|trouble| self.missing(destination, trouble))
    }

    async fn address(&self, service: &S, destination: &str) -> Result<String, Trouble> {
        if let Some(known) = self.known().get(destination) {
            return Ok(known.clone());
        }
        let found = service.find(destination).await;
        let address = found.map_err(|trouble| self.missing(destination, looked_up(trouble)))?;
        self.known().insert(destination.to_owned(), address.clone());
        Ok(address)
    }

    /// What is gone is looked up again next time, and whoever reads the error learns how to make it.
    fn missing(&self, destination: &str, mut trouble: Trouble) -> Trouble {
        if trouble.kind == Kind::Missing {
            self.known().remove(destination);
            trouble.said = format!("there is no {destination} ({}): {}", trouble.said, S::make(destination));
        }
        trouble
    }

    fn known(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, String>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whoever asked in vain has sent nothing.
fn looked_up(trouble: Trouble) -> Trouble {
    match trouble.kind {
        Kind::Unknown => Trouble::new(Kind::Retry(None), trouble.said),
        _ => trouble,
    }
}

fn unanswered() -> Trouble {
    Trouble::new(Kind::Unknown, "it was not answered".to_owned())
}

impl<S> fmt::Debug for Courier<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.options.fmt(f)
    }
}
