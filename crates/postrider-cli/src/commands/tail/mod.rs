//! `postrider tail`: what happens to messages, as it happens.
//!
//! It looks again and again, and tells what is different from the last time. Looking changes nothing. A commit that somebody is woken for
//! makes it look sooner; the interval is the truth.

mod event;
mod watch;

use crate::{answer, duration, exit::Exit, moment, opened::Opened, problem::Problem, shared::Target};
use event::{Event, What};
use postrider::{Error, MessageId, OrderingKey, QueueName, wake::Ear};
use std::time::{Duration, SystemTime};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use watch::Watch;

/// However often it is woken, it does not look more often than this.
const RESPITE: Duration = Duration::from_millis(50);

const EXAMPLES: &str = "Examples:
  postrider tail --db shop.db                                    everything, until Ctrl-C
  postrider tail --queue orders --key order-17 --db shop.db
  postrider tail --queue orders --since 1m --until dead --db shop.db
  postrider tail 0190f3a1-… --since 1h --for 10m --jsonl --db shop.db

Events are staged, leased, waiting (a retry, with its error), pending (handed back), dead, done and gone. It looks at up to a
thousand messages in each room of a queue. What happens between two looks is told as what it has led to; what is staged and
delivered between two looks is seen only where the queue keeps it: keep_for. Ctrl-C ends it with 130.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,

    /// Only this message
    #[arg(conflicts_with = "key")]
    id: Option<MessageId>,

    /// Only this queue
    #[arg(long)]
    queue: Option<QueueName>,

    /// Only this key
    #[arg(long)]
    key: Option<OrderingKey>,

    /// Begin with what has happened since then: 2026-10-14T12:00:00Z, or 2h for two hours ago
    #[arg(long, value_name = "MOMENT", value_parser = moment::parse)]
    since: Option<SystemTime>,

    /// How long to wait between two looks
    #[arg(long, value_name = "DURATION", default_value = "500ms", value_parser = duration::parse)]
    interval: Duration,

    /// End after so long
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse)]
    lasting: Option<Duration>,

    /// End after so many events
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// End when this has happened to a message
    #[arg(long, value_name = "EVENT")]
    until: Option<What>,

    /// Print one object of JSON a line, and nothing else, on stdout
    #[arg(long)]
    jsonl: bool,
}

pub(crate) async fn run(args: Args, stop: CancellationToken) -> Result<Exit, Problem> {
    args.target.look(&stop, async |opened| follow(opened, &args).await).await
}

async fn follow(opened: &Opened, args: &Args) -> Result<Exit, Problem> {
    let ends_at = args.lasting.map(|lasting| Instant::now() + lasting);
    let problem = |error: Error| opened.problem(&error);
    let inspect = opened.inspect();
    let mut watch = Watch::new(args);
    let mut teller = Teller { args, told: 0, is_done: false };
    teller.tell(watch.begin(&*inspect).await.map_err(problem)?)?;
    watch.warn();
    eprintln!("Watching; Ctrl-C ends it.");
    let mut ear = listen(opened, &watch).await;
    while !teller.is_done {
        let looked = Instant::now();
        tokio::select! {
            () = wait(args.interval, &mut ear) => {}
            () = ended(ends_at) => return Ok(Exit::Well),
        }
        sleep_until(looked + RESPITE.min(args.interval)).await;
        teller.tell(watch.look(&*inspect).await.map_err(problem)?)?;
        watch.warn();
    }
    Ok(Exit::Well)
}

async fn ended(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Whoever may not listen polls.
async fn listen(opened: &Opened, watch: &Watch) -> Option<Box<dyn Ear>> {
    opened.wake().listen(&watch.queues()).await.ok()
}

async fn wait(interval: Duration, ear: &mut Option<Box<dyn Ear>>) {
    let hearing = async {
        match ear {
            Some(ear) => ear.wait().await.map(drop),
            None => std::future::pending().await,
        }
    };
    let is_deaf = tokio::select! {
        heard = hearing => heard.is_err(),
        () = sleep(interval) => false,
    };
    if is_deaf {
        *ear = None;
    }
}

/// Writes events until it was enough.
#[derive(Debug)]
struct Teller<'a> {
    args: &'a Args,
    told: u64,
    is_done: bool,
}

impl Teller<'_> {
    fn tell(&mut self, events: Vec<Event>) -> Result<(), Problem> {
        for event in events {
            if self.is_done {
                break;
            }
            if self.args.jsonl { answer::json(&event) } else { answer::text(&event.line()) }?;
            self.told += 1;
            let is_last = self.args.count.is_some_and(|count| self.told >= count);
            self.is_done = is_last || self.args.until == Some(event.what());
        }
        Ok(())
    }
}
