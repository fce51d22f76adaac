//! The log.
//!
//! It goes to stderr, or, while a view owns the terminal, to the view's notes. `POSTRIDER_LOG` sets the level: `info`, or
//! `warn,postrider_engine=debug`.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Mutex, PoisonError},
};
use tracing_subscriber::{
    Layer, Registry, filter::Targets, fmt, layer::SubscriberExt, util::SubscriberInitExt,
};

const VARIABLE: &str = "POSTRIDER_LOG";
const MAX_NOTES: usize = 5;

/// The last log lines, for a view to show.
#[derive(Debug, Clone, Default)]
pub(crate) struct Notes(Arc<Mutex<VecDeque<String>>>);

impl Notes {
    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

impl io::Write for Notes {
    /// The subscriber writes one whole event per call.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for line in String::from_utf8_lossy(bytes).lines() {
            lines.push_back(line.to_owned());
        }
        while lines.len() > MAX_NOTES {
            lines.pop_front();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The log format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people
    Human,
    /// For programs: one JSON object per line
    Json,
}

pub(crate) const FORMATS: [(&str, Format); 2] = [("human", Format::Human), ("json", Format::Json)];

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(FORMATS.iter().find(|(_, format)| format == self).map_or("", |(name, _)| name))
    }
}

/// A layer of the tracing subscriber.
pub(crate) type Lines = Box<dyn Layer<Registry> + Send + Sync>;

/// Installs the log subscriber. `default_filter` applies unless the user sets another.
pub(crate) fn start(notes: Option<Notes>, default_filter: &str) {
    let layer = fmt::layer().with_ansi(false);
    let layer = match notes {
        Some(notes) => layer.without_time().with_writer(move || notes.clone()).boxed(),
        None => layer.with_writer(io::stderr).boxed(),
    };
    install(layer, default_filter, None);
}

/// Installs the log subscriber on stderr, in this format, with an additional layer.
pub(crate) fn start_as(format: Format, default_filter: &str, extra: Option<Lines>) {
    let layer = match format {
        Format::Human => fmt::layer().with_ansi(false).with_writer(io::stderr).boxed(),
        Format::Json => fmt::layer().json().flatten_event(true).with_writer(io::stderr).boxed(),
    };
    install(layer, default_filter, extra);
}

fn install(layer: Lines, default_filter: &str, extra: Option<Lines>) {
    let filter = std::env::var(VARIABLE).unwrap_or_default();
    let filter = if filter.is_empty() { default_filter } else { &filter };
    let targets = filter.parse::<Targets>().unwrap_or_else(|error| {
        eprintln!("invalid {VARIABLE} {filter:?} ({error}); using {default_filter:?}");
        default_filter.parse().unwrap_or_default()
    });
    // An existing subscriber stays.
    let layers: Vec<Lines> = [layer.with_filter(targets).boxed()].into_iter().chain(extra).collect();
    let _ = tracing_subscriber::registry().with(layers).try_init();
}
