//! `postrider publish`: stages one message.

use crate::{duration, exit::Exit, open_database::OpenDatabase, output, problem::Problem, shared::Target};
use postrider::{Invalid, Message, MessageId, QueueName};
use serde::{Serialize, de::IgnoredAny};
use std::{
    io::{self, IsTerminal, Read},
    time::Duration,
};
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "Examples:
  postrider publish orders --json-body '{\"total\": 12}' --db shop.db
  postrider publish orders --type order.placed --key order-17 \\
    --header color=blue --db shop.db < order.json
  postrider publish mails --body 'Hello' --after 10m --db shop.db

The transaction is committed when the id is printed.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,

    /// Queue; created when it does not exist
    queue: QueueName,

    /// Event type
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,

    /// Ordering key
    #[arg(long)]
    key: Option<String>,

    /// Header; repeatable
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = header)]
    headers: Vec<(String, String)>,

    /// JSON body
    #[arg(long, value_name = "JSON", conflicts_with = "body", value_parser = json)]
    json_body: Option<String>,

    /// Text body; without a body option, the body is read from stdin
    #[arg(long, value_name = "TEXT")]
    body: Option<String>,

    /// Content type [default: application/json for JSON, text/plain for other text]
    #[arg(long, value_name = "MIME TYPE")]
    content_type: Option<String>,

    /// Delay before the message is due: 30s, 10m, 1h
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    after: Option<Duration>,

    /// Print one JSON object to stdout, and nothing else
    #[arg(long)]
    json: bool,
}

/// The staged message as JSON. Its keys are stable.
#[derive(Debug, Serialize)]
struct Report {
    id: MessageId,
    queue: QueueName,
}

pub(crate) async fn run(args: Args, stop: CancellationToken) -> Result<Exit, Problem> {
    let Some(body) = stop.run_until_cancelled(body(&args)).await else { return Ok(Exit::Interrupted) };
    let (body, content_type) = body?;
    let message = message(&args, body, content_type).map_err(|error| {
        Problem::new(error.to_string(), "correct the argument that the message names").with_exit(Exit::Usage)
    })?;
    args.target.work(async |opened| publish(opened, message, args.json).await).await
}

async fn publish(opened: &OpenDatabase, message: Message, json: bool) -> Result<Exit, Problem> {
    let queue = message.queue().clone();
    let staged = opened.stage(message).await.map_err(|error| opened.problem(&error))?;
    let Some(id) = staged.id() else {
        return Err(Problem::new(
            "the message was not staged",
            "check the queue with postrider status, and try again",
        ));
    };
    if json { output::json(&Report { id, queue }) } else { output::text(&id.to_string()) }?;
    Ok(Exit::Success)
}

fn message(args: &Args, body: Vec<u8>, content_type: String) -> Result<Message, Invalid> {
    let mut builder = Message::builder(args.queue.as_str()).payload(body).content_type(content_type);
    if let Some(event_type) = &args.event_type {
        builder = builder.event_type(event_type);
    }
    if let Some(key) = &args.key {
        builder = builder.key(key);
    }
    if let Some(after) = args.after {
        builder = builder.due_after(after);
    }
    let headers = args.headers.iter();
    headers.fold(builder, |builder, (name, value)| builder.header(name, value)).build()
}

/// The body and its content type.
async fn body(args: &Args) -> Result<(Vec<u8>, String), Problem> {
    let content_type = |kind: &str| args.content_type.clone().unwrap_or_else(|| kind.to_owned());
    if let Some(json) = &args.json_body {
        return Ok((json.clone().into_bytes(), content_type("application/json")));
    }
    if let Some(body) = &args.body {
        return Ok((body.clone().into_bytes(), content_type("text/plain")));
    }
    let absent = |what: &str| {
        Problem::new(what, "give the body with --json-body or --body, or on stdin").with_exit(Exit::Usage)
    };
    if io::stdin().is_terminal() {
        return Err(absent("the message has no body"));
    }
    // On another thread, so that signals are handled meanwhile.
    let reading = tokio::task::spawn_blocking(|| {
        let mut body = Vec::new();
        io::stdin().read_to_end(&mut body).map(|_| body)
    });
    let body = reading.await.unwrap_or_else(|error| Err(error.into()));
    let body = body.map_err(|error| absent(&format!("stdin cannot be read: {error}")))?;
    if body.is_empty() {
        return Err(absent("stdin is empty"));
    }
    let kind = if serde_json::from_slice::<IgnoredAny>(&body).is_ok() {
        "application/json"
    } else if std::str::from_utf8(&body).is_ok() {
        "text/plain"
    } else {
        "application/octet-stream"
    };
    Ok((body, content_type(kind)))
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Checks that the text is JSON, and returns it unchanged.
fn json(text: &str) -> Result<String, String> {
    let checked = serde_json::from_str::<IgnoredAny>(text).map(|_| text.to_owned());
    checked.map_err(|error| format!("invalid JSON ({error}); --body takes any text"))
}
