//! `postrider pause`, `resume` and `paused`: work that waits because somebody said so.

use crate::{
    answer,
    exit::Exit,
    opened::Opened,
    problem::Problem,
    shared::{Doer, Listing, Target},
    table::Table,
};
use postrider::{DestinationName, Error, Pausable, Paused, QueueName, cloudevents::rfc3339};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "Examples:
  postrider pause --queue orders --why 'the warehouse moves' --db shop.db
  postrider pause --destination billing --why 'they asked for it' --db shop.db
  postrider resume --queue orders --why 'it has moved' --db shop.db
  postrider paused --db shop.db

Every worker, relay, consumer and runner keeps to it within about a second. What is in somebody's hands ends as usual, staging
goes on, and nothing is lost. A paused queue is not claimed from by anybody; to a paused destination relays send nothing, and
where a queue goes to several, only its copies wait, in a queue such as orders>billing. To change what is paused ends with 4 when
there is nothing to change.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,

    #[command(flatten)]
    what: What,

    #[command(flatten)]
    doer: Doer,

    /// Print one object of JSON, and nothing else, on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct What {
    /// A queue
    #[arg(long, value_name = "NAME")]
    queue: Option<QueueName>,

    /// A destination of relays, by the name that their routes have for it
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

/// Something that is paused, for programs. Its keys are a promise.
#[derive(Debug, Serialize)]
pub(crate) struct Pause {
    pub(crate) queue: Option<QueueName>,
    pub(crate) destination: Option<DestinationName>,
    pub(crate) since: String,
    pub(crate) actor: String,
    pub(crate) why: String,
}

/// What became of it, for programs. Its keys are a promise.
#[derive(Debug, Serialize)]
struct Changed {
    queue: Option<QueueName>,
    destination: Option<DestinationName>,
    paused: bool,
}

impl From<Paused> for Pause {
    fn from(Paused { what, since, action }: Paused) -> Self {
        let (queue, destination) = parts(what);
        Self { queue, destination, since: rfc3339::format(since), actor: action.actor, why: action.why }
    }
}

impl Pause {
    /// In a line, for people.
    pub(crate) fn told(&self) -> String {
        let Self { since, actor, why, .. } = self;
        format!("{} has been paused since {since} by {actor}: {why}", self.what())
    }

    fn what(&self) -> String {
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

impl What {
    /// Clap lets exactly one of them through.
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

/// Everything that is paused, longest first.
pub(crate) async fn all(opened: &Opened) -> Result<Vec<Pause>, Error> {
    Ok(opened.store().paused().await?.into_iter().map(Pause::from).collect())
}

async fn change(opened: &Opened, args: &Args, paused: bool) -> Result<Exit, Problem> {
    let (action, operate) = (args.doer.action()?, opened.operate());
    let Some(what) = args.what.pausable() else {
        return Err(Problem::new("nothing is named", "give --queue or --destination").ending(Exit::Misused));
    };
    let changed =
        if paused { operate.pause(&what, &action).await } else { operate.resume(&what, &action).await };
    if !changed.map_err(|error| opened.problem(&error))? {
        let is = if paused { "is paused already" } else { "is not paused" };
        let advice = "look with postrider paused";
        return Err(Problem::new(format!("{what} {is}"), advice).ending(Exit::NotFound));
    }
    if args.json {
        let (queue, destination) = parts(what);
        answer::json(&Changed { queue, destination, paused })?;
    } else {
        answer::text(&format!("{what} {}", if paused { "is paused" } else { "goes on" }))?;
    }
    Ok(Exit::Well)
}

async fn list(opened: &Opened, listing: &Listing) -> Result<Exit, Problem> {
    let pauses = all(opened).await.map_err(|error| opened.problem(&error))?;
    listing.answer(
        pauses,
        |pauses| {
            let mut table = Table::new(["WHAT", "SINCE", "BY", "WHY"]);
            for pause in pauses {
                table.push([pause.what(), pause.since.clone(), pause.actor.clone(), pause.why.clone()]);
            }
            table.to_string()
        },
        "pauses",
    )
}
