//! Lists the messages in a state.

use super::{
    Filter, StateArg,
    view::{MessageView, text},
};
use crate::{
    exit::Exit,
    open_database::OpenDatabase,
    problem::Problem,
    shared::{Listing, Target},
    table::Table,
};
use postrider::inspect::{Cursor, StateFilter};
use tokio_util::sync::CancellationToken;

/// How many messages are read at once.
const PAGE: usize = 1000;

#[derive(Debug, clap::Args)]
pub(crate) struct Args<S: StateArg> {
    #[command(flatten)]
    target: Target,

    #[command(flatten)]
    filter: Filter<S>,

    /// Include the payloads in the JSON output
    #[arg(long)]
    payload: bool,

    #[command(flatten)]
    listing: Listing,
}

pub(super) async fn run<S: StateArg>(args: Args<S>, stop: &CancellationToken) -> Result<Exit, Problem> {
    args.target.look(stop, async |opened| ls(opened, &args).await).await
}

async fn ls<S: StateArg>(opened: &OpenDatabase, args: &Args<S>) -> Result<Exit, Problem> {
    let inspect = opened.backend();
    let wanted = args.listing.wanted();
    let mut views = Vec::new();
    let mut request = args.filter.request();
    if let Some(since) = args.filter.since {
        if request.state == StateFilter::Ready {
            let what = "messages in state ready are listed by position, not by time";
            return Err(
                Problem::new(what, "leave out --since, or give another --state").with_exit(Exit::Usage)
            );
        }
        request.after = Some(Cursor { at: Some(since), position: 0 });
    }
    loop {
        request.limit = PAGE.min(wanted - views.len());
        let page = inspect.list(&request).await.map_err(|error| opened.problem(&error))?;
        views.extend(page.entries.iter().map(|entry| MessageView::new(entry, args.payload)));
        if page.next.is_none() || views.len() >= wanted {
            break;
        }
        request.after = page.next;
    }
    args.listing.answer(views, table, "messages")
}

fn table(views: &[MessageView]) -> String {
    let mut table = Table::new(["ID", "STATE", "AT", "DELIVERIES", "TYPE", "KEY", "REASON", "ERROR"]);
    for view in views {
        table.push([
            view.id(),
            view.state.to_string(),
            view.at.clone(),
            view.deliveries.to_string(),
            text(view.event_type.as_ref()),
            text(view.key.as_ref()),
            text(view.reason.as_ref()),
            text(view.error.as_ref()),
        ]);
    }
    table.to_string()
}
