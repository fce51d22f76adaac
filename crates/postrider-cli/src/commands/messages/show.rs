//! Shows one message.

use super::view::{MessageView, text};
use crate::{exit::Exit, open_database::OpenDatabase, output, problem::Problem, shared::Target};
use postrider::{
    MessageId, QueueName, State,
    inspect::{FindBy, MessageRow, StateFilter},
};
use tokio_util::sync::CancellationToken;

/// How many queues are searched for a message.
const MOST_QUEUES: usize = 100;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,

    /// Queue; without it, all queues are searched
    #[arg(long)]
    queue: Option<QueueName>,

    /// Id of the message
    id: MessageId,

    /// Print the payload
    #[arg(long)]
    payload: bool,

    /// Print one JSON object to stdout, and nothing else
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(
    args: Args,
    state: Option<StateFilter>,
    stop: &CancellationToken,
) -> Result<Exit, Problem> {
    args.target.look(stop, async |opened| show(opened, &args, state).await).await
}

async fn show(opened: &OpenDatabase, args: &Args, state: Option<StateFilter>) -> Result<Exit, Problem> {
    let id = &args.id;
    let absent = |what: &str, advice: String| Err(Problem::new(what, advice).with_exit(Exit::NotFound));
    let Some(entry) = entry(opened, args, state).await? else {
        let scope = args.queue.as_ref().map_or("no queue".to_owned(), |queue| format!("queue {queue}"));
        return absent(
            &format!("{scope} has {} message {id}", if args.queue.is_some() { "no" } else { "a" }),
            "list the queues with postrider status; a queue keeps delivered messages only with keep_for"
                .to_owned(),
        );
    };
    let queue = entry.message.queue();
    if state == Some(StateFilter::Dead) && entry.state != State::Dead {
        let what =
            format!("message {id} of queue {queue} is not a dead letter: its state is {}", entry.state);
        return absent(&what, format!("show it with postrider messages show --queue {queue} {id}"));
    }
    let view = MessageView::new(&entry, args.payload);
    if args.json { output::json(&view) } else { output::text(&to_text(&view)) }?;
    Ok(Exit::Success)
}

/// The message in the given queue, or in the only queue that has it.
async fn entry(
    opened: &OpenDatabase,
    args: &Args,
    state: Option<StateFilter>,
) -> Result<Option<MessageRow>, Problem> {
    let (inspect, problem) = (opened.backend(), |error| opened.problem(&error));
    if let Some(queue) = &args.queue {
        return inspect.get(queue, args.id).await.map_err(problem);
    }
    let mut found = inspect.find(&FindBy::Id(args.id), MOST_QUEUES).await.map_err(problem)?;
    if state == Some(StateFilter::Dead) && found.iter().any(|entry| entry.state == State::Dead) {
        found.retain(|entry| entry.state == State::Dead);
    }
    let queues: Vec<_> = found.iter().map(|entry| entry.message.queue().to_string()).collect();
    match queues.as_slice() {
        [] => Ok(None),
        [_] => Ok(found.pop()),
        _ => Err(Problem::new(
            format!("message {} is in several queues: {}", args.id, queues.join(", ")),
            "name one of them with --queue, or list all with postrider messages trace",
        )
        .with_exit(Exit::Usage)),
    }
}

fn to_text(view: &MessageView) -> String {
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
        (None, Some(hex)) => ("payload", format!("binary, in hexadecimal digits: {hex}")),
        (None, None) => ("payload", format!("{} bytes; --payload shows them", view.payload_bytes)),
    });
    let shown = lines.into_iter().filter(|(_, value)| !value.is_empty());
    // Text of a message must not control the terminal.
    let sanitize = |text: &str| text.replace(|c: char| c.is_control() && c != '\n' && c != '\t', " ");
    shown.map(|(name, value)| format!("{name:<14}{}\n", sanitize(&value))).collect()
}
