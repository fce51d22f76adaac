//! The log of a test run.

use std::{
    fmt::{Debug, Write},
    sync::{Arc, Mutex},
};
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
    subscriber::DefaultGuard,
};
use tracing_subscriber::{Layer, layer::Context, layer::SubscriberExt, registry};

/// One log line.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) level: Level,
    pub(crate) name: &'static str,
    pub(crate) text: String,
}

/// All log lines of this thread while the value lives: for tests with a single-threaded runtime.
#[derive(Debug)]
pub(crate) struct Log {
    lines: Arc<Mutex<Vec<Line>>>,
    _guard: DefaultGuard,
}

impl Log {
    pub(crate) fn listen() -> Self {
        let lines = Arc::<Mutex<Vec<Line>>>::default();
        let subscriber = registry().with(Recorder(Arc::clone(&lines)));
        Self { lines, _guard: tracing::subscriber::set_default(subscriber) }
    }

    /// Lines at the level warn or error.
    pub(crate) fn warnings(&self) -> Vec<Line> {
        self.lines.lock().unwrap().iter().filter(|line| line.level <= Level::WARN).cloned().collect()
    }

    /// All lines, as one text.
    #[allow(dead_code, reason = "not every test program asks for it")]
    pub(crate) fn text(&self) -> String {
        let lines = self.lines.lock().unwrap();
        lines.iter().map(|line| format!("{} {}\n", line.name, line.text)).collect()
    }

    /// How often an event was logged.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.lines.lock().unwrap().iter().filter(|line| line.name == name).count()
    }
}

#[derive(Debug)]
struct Recorder(Arc<Mutex<Vec<Line>>>);

impl<S: Subscriber> Layer<S> for Recorder {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        // The driver has a log of its own.
        if !metadata.target().starts_with("postrider") {
            return;
        }
        let mut text = Text(metadata.target().to_owned());
        event.record(&mut text);
        let line = Line { level: *metadata.level(), name: metadata.name(), text: text.0 };
        self.0.lock().unwrap().push(line);
    }
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}
