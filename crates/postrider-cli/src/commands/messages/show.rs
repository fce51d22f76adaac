//! Shows one message.

use super::view::{View, text};
use crate::{answer, exit::Exit, opened::Opened, problem::Problem, shared::Target};
use postrider::{
    MessageId, QueueName, State,
    inspect::{Clue, Entry, Room},
};
use tokio_util::sync::CancellationToken;

/// In how many queues a message is looked for.
const MOST_QUEUES: usize = 100;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,

    /// The queue; without it, all are searched
    #[arg(long)]
    queue: Option<QueueName>,

    /// The message
    id: MessageId,

    /// Print the payload too
    #[arg(long)]
    payload: bool,

    /// Print one object of JSON, and nothing else, on stdout
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(args: Args, room: Option<Room>, stop: &CancellationToken) -> Result<Exit, Problem> {
    args.target.look(stop, async |opened| show(opened, &args, room).await).await
}

async fn show(opened: &Opened, args: &Args, room: Option<Room>) -> Result<Exit, Problem> {
    let id = &args.id;
    let absent = |what: &str, advice: String| Err(Problem::new(what, advice).ending(Exit::NotFound));
    let Some(entry) = entry(opened, args, room).await? else {
        let place = args.queue.as_ref().map_or("no queue".to_owned(), |queue| format!("queue {queue}"));
        return absent(
            &format!("{place} has {} message {id}", if args.queue.is_some() { "no" } else { "a" }),
            "check the queue with postrider status; what is delivered is kept only where the queue says so"
                .to_owned(),
        );
    };
    let queue = entry.message.queue();
    if room == Some(Room::Dead) && entry.state != State::Dead {
        let what = format!("message {id} of queue {queue} is no dead letter: it is {}", entry.state);
        return absent(&what, format!("postrider messages show --queue {queue} {id} shows it"));
    }
    let view = View::new(&entry, args.payload);
    if args.json { answer::json(&view) } else { answer::text(&told(&view)) }?;
    Ok(Exit::Well)
}

/// The message: of the queue that is named, or of the only one that has it.
async fn entry(opened: &Opened, args: &Args, room: Option<Room>) -> Result<Option<Entry>, Problem> {
    let (inspect, problem) = (opened.inspect(), |error| opened.problem(&error));
    if let Some(queue) = &args.queue {
        return inspect.get(queue, args.id).await.map_err(problem);
    }
    let mut found = inspect.find(&Clue::Id(args.id), MOST_QUEUES).await.map_err(problem)?;
    if room == Some(Room::Dead) && found.iter().any(|entry| entry.state == State::Dead) {
        found.retain(|entry| entry.state == State::Dead);
    }
    let queues: Vec<_> = found.iter().map(|entry| entry.message.queue().to_string()).collect();
    match queues.as_slice() {
        [] => Ok(None),
        [_] => Ok(found.pop()),
        _ => Err(Problem::new(
            format!("message {} is in several queues: {}", args.id, queues.join(", ")),
            "name one of them with --queue, or see them all with postrider messages trace",
        )
        .ending(Exit::Misused)),
    }
}

fn told(view: &View) -> String {
    let mut lines = vec![
        ("id", view.id()),
        ("queue", view.queue.to_string()),
        ("state", view.state.to_string()),
        ("type", text(view.event_type.as_ref())),
        ("key", text(view.key.as_ref())),
        ("tenant", text(view.tenant.as_ref())),
        ("subject", text(view.subject.as_ref())),
        ("staged at", view.staged_at.clone()),
        ("at", view.at.clone()),
        ("deliveries", view.deliveries.to_string()),
        ("attempts", view.attempts.to_string()),
        ("reason", text(view.reason.as_ref())),
        ("error", text(view.error.as_ref())),
        ("content type", view.content_type.clone()),
    ];
    lines.extend(view.headers.iter().map(|(name, value)| ("header", format!("{name}: {value}"))));
    lines.push(match (&view.payload, &view.payload_hex) {
        (Some(payload), _) => ("payload", payload.clone()),
        (None, Some(hex)) => ("payload", format!("not text; in hexadecimal digits: {hex}")),
        (None, None) => ("payload", format!("{} bytes; --payload shows them", view.payload_bytes)),
    });
    let shown = lines.into_iter().filter(|(_, value)| !value.is_empty());
    // Nothing that a message says may write to the terminal as it likes.
    let tame = |text: &str| text.replace(|c: char| c.is_control() && c != '\n' && c != '\t', " ");
    shown.map(|(name, value)| format!("{name:<14}{}\n", tame(&value))).collect()
}
