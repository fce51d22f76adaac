//! What the libraries have to say.
//!
//! It goes to stderr, or, while a view owns the terminal, to the view's notes. `POSTRIDER_LOG` says how much: `info`, or
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
const KEPT: usize = 5;

/// The last few lines, for a view to show.
#[derive(Debug, Clone, Default)]
pub(crate) struct Notes(Arc<Mutex<VecDeque<String>>>);

impl Notes {
    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

impl io::Write for Notes {
    /// The subscriber writes a whole event at once.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for line in String::from_utf8_lossy(bytes).lines() {
            lines.push_back(line.to_owned());
        }
        while lines.len() > KEPT {
            lines.pop_front();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people
    Human,
    /// For programs: one object of JSON on each line
    Json,
}

pub(crate) const FORMATS: [(&str, Format); 2] = [("human", Format::Human), ("json", Format::Json)];

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(FORMATS.iter().find(|(_, format)| format == self).map_or("", |(name, _)| name))
    }
}

/// Somebody who listens to the libraries.
pub(crate) type Lines = Box<dyn Layer<Registry> + Send + Sync>;

/// Starts to listen to the libraries. `quiet` is what they say unless the user asks for something else.
pub(crate) fn start(notes: Option<Notes>, quiet: &str) {
    let layer = fmt::layer().with_ansi(false);
    let layer = match notes {
        Some(notes) => layer.without_time().with_writer(move || notes.clone()).boxed(),
        None => layer.with_writer(io::stderr).boxed(),
    };
    listen(layer, quiet, None);
}

/// The same, on stderr, in this format; and somebody else may listen, too.
pub(crate) fn start_as(format: Format, quiet: &str, besides: Option<Lines>) {
    let layer = match format {
        Format::Human => fmt::layer().with_ansi(false).with_writer(io::stderr).boxed(),
        Format::Json => fmt::layer().json().flatten_event(true).with_writer(io::stderr).boxed(),
    };
    listen(layer, quiet, besides);
}

fn listen(layer: Lines, quiet: &str, besides: Option<Lines>) {
    let wanted = std::env::var(VARIABLE).unwrap_or_default();
    let wanted = if wanted.is_empty() { quiet } else { &wanted };
    let targets = wanted.parse::<Targets>().unwrap_or_else(|error| {
        eprintln!("{VARIABLE} is {wanted:?}, which cannot be read ({error}); going on with {quiet:?}");
        quiet.parse().unwrap_or_default()
    });
    // Somebody else's subscriber is as good.
    let layers: Vec<Lines> = [layer.with_filter(targets).boxed()].into_iter().chain(besides).collect();
    let _ = tracing_subscriber::registry().with(layers).try_init();
}
