//! `postrider pause`, `resume` and `paused`: queues and destinations that an operator holds back.

use crate::{
    exit::Exit,
    open_database::OpenDatabase,
    output,
    problem::Problem,
    shared::{Listing, Operator, Target},
    table::Table,
};
use postrider::{DestinationName, Error, Pausable, PauseRecord, QueueName, cloudevents::rfc3339};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "Examples:
  postrider pause --queue orders --why 'warehouse moves' --db shop.db
  postrider pause --destination billing --why 'on request' --db shop.db
  postrider resume --queue orders --why 'warehouse moved' --db shop.db
  postrider paused --db shop.db

Every worker, relay, consumer and saga runner obeys within about a second.
Messages in flight finish as usual, staging continues, and nothing is lost.
Nobody claims from a paused queue. Relays send nothing to a paused destination;
when a queue has several destinations, only the copies for the paused one wait,
in a queue such as orders>billing. The exit code of pause and resume is 4 when
there is nothing to change.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,

    #[command(flatten)]
    subject: PauseSubject,

    #[command(flatten)]
    doer: Operator,

    /// Print one JSON object to stdout, and nothing else
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct PauseSubject {
    /// Queue
    #[arg(long, value_name = "NAME")]
    queue: Option<QueueName>,

    /// Destination, by the name that routes use
    #[arg(long, value_name = "NAME")]
    destination: Option<DestinationName>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    target: Target,

    #[command(flatten)]
    listing: Listing,
}

/// A paused queue or destination as JSON. Its keys are stable.
#[derive(Debug, Serialize)]
pub(crate) struct Pause {
    pub(crate) queue: Option<QueueName>,
    pub(crate) destination: Option<DestinationName>,
    pub(crate) since: String,
    pub(crate) actor: String,
    pub(crate) why: String,
}

/// The outcome as JSON. Its keys are stable.
#[derive(Debug, Serialize)]
struct PauseChange {
    queue: Option<QueueName>,
    destination: Option<DestinationName>,
    paused: bool,
}

impl From<PauseRecord> for Pause {
    fn from(PauseRecord { what, since, action }: PauseRecord) -> Self {
        let (queue, destination) = parts(what);
        Self { queue, destination, since: rfc3339::format(since), actor: action.actor, why: action.why }
    }
}

impl Pause {
    /// The pause in one line.
    pub(crate) fn to_line(&self) -> String {
        let Self { since, actor, why, .. } = self;
        format!("{} is paused since {since} by {actor}: {why}", self.subject())
    }

    fn subject(&self) -> String {
        match (&self.queue, &self.destination) {
            (Some(queue), _) => format!("queue {queue}"),
            (_, Some(destination)) => format!("destination {destination}"),
            (None, None) => String::new(),
        }
    }
}

fn parts(what: Pausable) -> (Option<QueueName>, Option<DestinationName>) {
    match what {
        Pausable::Queue(queue) => (Some(queue), None),
        Pausable::Destination(destination) => (None, Some(destination)),
    }
}

impl PauseSubject {
    /// Clap accepts exactly one of the two options.
    fn pausable(&self) -> Option<Pausable> {
        let queue = self.queue.clone().map(Pausable::Queue);
        queue.or_else(|| self.destination.clone().map(Pausable::Destination))
    }
}

pub(crate) async fn pause(args: Args) -> Result<Exit, Problem> {
    args.target.work(async |opened| change(opened, &args, true).await).await
}

pub(crate) async fn resume(args: Args) -> Result<Exit, Problem> {
    args.target.work(async |opened| change(opened, &args, false).await).await
}

pub(crate) async fn paused(args: ListArgs, stop: CancellationToken) -> Result<Exit, Problem> {
    args.target.look(&stop, async |opened| list(opened, &args.listing).await).await
}

/// All paused queues and destinations, longest first.
pub(crate) async fn all(opened: &OpenDatabase) -> Result<Vec<Pause>, Error> {
    Ok(opened.backend().paused().await?.into_iter().map(Pause::from).collect())
}

async fn change(opened: &OpenDatabase, args: &Args, paused: bool) -> Result<Exit, Problem> {
    let (action, operate) = (args.doer.action()?, opened.backend());
    let Some(what) = args.subject.pausable() else {
        return Err(Problem::new(
            "neither a queue nor a destination is named",
            "give --queue or --destination",
        )
        .with_exit(Exit::Usage));
    };
    let changed =
        if paused { operate.pause(&what, &action).await } else { operate.resume(&what, &action).await };
    if !changed.map_err(|error| opened.problem(&error))? {
        let is = if paused { "is paused already" } else { "is not paused" };
        let advice = "list what is paused: postrider paused";
        return Err(Problem::new(format!("{what} {is}"), advice).with_exit(Exit::NotFound));
    }
    if args.json {
        let (queue, destination) = parts(what);
        output::json(&PauseChange { queue, destination, paused })?;
    } else {
        output::text(&format!("{what} {}", if paused { "is paused" } else { "is resumed" }))?;
    }
    Ok(Exit::Success)
}

async fn list(opened: &OpenDatabase, listing: &Listing) -> Result<Exit, Problem> {
    let pauses = all(opened).await.map_err(|error| opened.problem(&error))?;
    listing.answer(
        pauses,
        |pauses| {
            let mut table = Table::new(["PAUSED", "SINCE", "ACTOR", "WHY"]);
            for pause in pauses {
                table.push([pause.subject(), pause.since.clone(), pause.actor.clone(), pause.why.clone()]);
            }
            table.to_string()
        },
        "pauses",
    )
}
