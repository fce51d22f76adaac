//! `postrider publish`: stages one message.

use crate::{answer, duration, exit::Exit, opened::Opened, problem::Problem, shared::Target};
use postrider::{Invalid, Message, MessageId, QueueName};
use serde::{Serialize, de::IgnoredAny};
use std::{
    io::{self, IsTerminal, Read},
    time::Duration,
};
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "Examples:
  postrider publish orders --type order.placed --key order-17 --json-body '{\"total\": 12}' --db shop.db
  postrider publish mails --body 'Hello' --after 10m --db shop.db
  postrider publish orders --header color=blue --db shop.db < order.json

The message is staged in a transaction of its own, which is committed when the id is printed.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,

    /// The queue; one that nobody has declared is made
    queue: QueueName,

    /// What happened
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,

    /// What it is ordered by
    #[arg(long)]
    key: Option<String>,

    /// A header; can be given many times
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = header)]
    headers: Vec<(String, String)>,

    /// The body, as JSON
    #[arg(long, value_name = "JSON", conflicts_with = "body", value_parser = json)]
    json_body: Option<String>,

    /// The body, as text; without a body here, it is read from stdin
    #[arg(long, value_name = "TEXT")]
    body: Option<String>,

    /// How it is to be read; application/json for what is JSON, text/plain for other text unless given
    #[arg(long, value_name = "MIME TYPE")]
    content_type: Option<String>,

    /// Not before so long: 30s, 10m, 1h
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    after: Option<Duration>,

    /// Print one object of JSON, and nothing else, on stdout
    #[arg(long)]
    json: bool,
}

/// What was staged, for programs. Its keys are a promise.
#[derive(Debug, Serialize)]
struct Report {
    id: MessageId,
    queue: QueueName,
}

pub(crate) async fn run(args: Args, stop: CancellationToken) -> Result<Exit, Problem> {
    let Some(body) = stop.run_until_cancelled(body(&args)).await else { return Ok(Exit::Interrupted) };
    let (body, content_type) = body?;
    let message = message(&args, body, content_type).map_err(|error| {
        Problem::new(error.to_string(), "change what breaks the rule").ending(Exit::Misused)
    })?;
    args.target.work(async |opened| publish(opened, message, args.json).await).await
}

async fn publish(opened: &Opened, message: Message, json: bool) -> Result<Exit, Problem> {
    let queue = message.queue().clone();
    let staged = opened.stage(message).await.map_err(|error| opened.problem(&error))?;
    let Some(id) = staged.id() else {
        return Err(Problem::new("the message was not staged", "look with postrider status, and try again"));
    };
    if json { answer::json(&Report { id, queue }) } else { answer::text(&id.to_string()) }?;
    Ok(Exit::Well)
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

/// The body, and how it is to be read.
async fn body(args: &Args) -> Result<(Vec<u8>, String), Problem> {
    let given = |kind: &str| args.content_type.clone().unwrap_or_else(|| kind.to_owned());
    if let Some(json) = &args.json_body {
        return Ok((json.clone().into_bytes(), given("application/json")));
    }
    if let Some(body) = &args.body {
        return Ok((body.clone().into_bytes(), given("text/plain")));
    }
    let absent = |what: &str| {
        Problem::new(what, "give it with --json-body or --body, or on stdin").ending(Exit::Misused)
    };
    if io::stdin().is_terminal() {
        return Err(absent("there is no body"));
    }
    // Elsewhere, so that signals are heard meanwhile.
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
    Ok((body, given(kind)))
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Checked, and then taken as it is.
fn json(text: &str) -> Result<String, String> {
    let checked = serde_json::from_str::<IgnoredAny>(text).map(|_| text.to_owned());
    checked.map_err(|error| format!("it is no JSON ({error}); --body takes any text"))
}
