//! Lists the messages of a room.

use super::{
    Filter, Where,
    view::{View, text},
};
use crate::{
    exit::Exit,
    opened::Opened,
    problem::Problem,
    shared::{Listing, Target},
    table::Table,
};
use postrider::inspect::{Cursor, Room};
use tokio_util::sync::CancellationToken;

/// How many are read at once.
const PAGE: usize = 1000;

#[derive(Debug, clap::Args)]
pub(crate) struct Args<W: Where> {
    #[command(flatten)]
    target: Target,

    #[command(flatten)]
    filter: Filter<W>,

    /// Print the payloads too, in JSON
    #[arg(long)]
    payload: bool,

    #[command(flatten)]
    listing: Listing,
}

pub(super) async fn run<W: Where>(args: Args<W>, stop: &CancellationToken) -> Result<Exit, Problem> {
    args.target.look(stop, async |opened| ls(opened, &args).await).await
}

async fn ls<W: Where>(opened: &Opened, args: &Args<W>) -> Result<Exit, Problem> {
    let inspect = opened.inspect();
    let wanted = args.listing.wanted();
    let mut views = Vec::new();
    let mut request = args.filter.request();
    if let Some(since) = args.filter.since {
        if request.room == Room::Ready {
            let what = "what may run now is listed in its order, and not by time";
            return Err(Problem::new(what, "leave out --since, or name another --room").ending(Exit::Misused));
        }
        request.after = Some(Cursor { at: Some(since), place: 0 });
    }
    loop {
        request.limit = PAGE.min(wanted - views.len());
        let page = inspect.list(&request).await.map_err(|error| opened.problem(&error))?;
        views.extend(page.entries.iter().map(|entry| View::new(entry, args.payload)));
        if page.next.is_none() || views.len() >= wanted {
            break;
        }
        request.after = page.next;
    }
    args.listing.answer(views, table, "messages")
}

fn table(views: &[View]) -> String {
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
