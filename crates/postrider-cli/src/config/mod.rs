//! `postrider.toml`: what `postrider run` carries, and where.
//!
//! A flag counts more than a variable of the environment, that more than the file, and the file more than the default. The file
//! is read as a whole: every problem is told, with its line and what to write instead. URLs may hold passwords and are never
//! shown.

mod consumer;
mod database;
mod follow_up;
mod key;
mod kind;
mod origin;
mod pattern;
mod place;
mod plan;
mod reading;
mod retry;
mod route;
mod secret;
mod setting;
mod shown;
mod table;

pub(crate) use consumer::ConsumerSection;
pub(crate) use database::DatabaseSection;
pub(crate) use follow_up::FollowUpSection;
pub(crate) use kind::Kind;
pub(crate) use origin::{Found, Origin};
pub(crate) use pattern::TypePattern;
pub(crate) use place::Place;
pub(crate) use plan::{ConsumerPlan, FollowUpPlan, Plan, RelayPlan};
pub(crate) use route::{RouteSection, ToSection};
pub(crate) use secret::Secret;
pub(crate) use setting::Settings;

use crate::{
    logs,
    problem::{Code, Problem},
    traces,
};
use key::Side;
use reading::Reading;
use std::{
    collections::BTreeMap,
    env, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};
use table::Table;
use toml::de::DeTable;

/// What `postrider config init` writes.
pub(crate) const STARTER: &str = include_str!("starter.toml");

const FILE: &str = "postrider.toml";
const FILE_VARIABLE: &str = "POSTRIDER_CONFIG";
const LISTEN_VARIABLE: &str = "POSTRIDER_HTTP_LISTEN";
const FORMAT_VARIABLE: &str = "POSTRIDER_LOG_FORMAT";
const OTLP_VARIABLE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const LISTEN_HELP: &str = "give an address and a port such as 127.0.0.1:9464, or off";
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9464);

/// Which file, and what counts more than it.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Flags {
    /// The configuration [default: $POSTRIDER_CONFIG, or postrider.toml in this folder]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Where /healthz, /readyz and /metrics are served, or off
    #[arg(long, value_name = "ADDRESS", value_parser = listen)]
    listen: Option<Listen>,

    /// How the log is written
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<logs::Format>,

    /// The OpenTelemetry collector that traces are sent to, by OTLP over HTTP
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
}

/// Where to listen, if anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listen(pub(crate) Option<SocketAddr>);

#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) source: Found<String>,
    pub(crate) databases: BTreeMap<String, DatabaseSection>,
    pub(crate) destinations: BTreeMap<String, Place>,
    pub(crate) routes: Vec<RouteSection>,
    pub(crate) consumers: Vec<ConsumerSection>,
    pub(crate) follow_ups: Vec<FollowUpSection>,
    pub(crate) listen: Found<Listen>,
    pub(crate) log_format: Found<logs::Format>,
    pub(crate) otlp: Option<Found<Secret>>,
}

impl Flags {
    /// The file alone, and nothing that counts more than it.
    pub(crate) fn of_file(config: Option<PathBuf>) -> Self {
        Self { config, listen: None, log_format: None, otlp: None }
    }

    /// The path of the file.
    pub(crate) fn file(&self) -> PathBuf {
        let named = || env::var_os(FILE_VARIABLE).filter(|name| !name.is_empty()).map(PathBuf::from);
        self.config.clone().or_else(named).unwrap_or_else(|| FILE.into())
    }

    /// Whether `--config` names it.
    pub(crate) fn is_named(&self) -> bool {
        self.config.is_some()
    }

    /// Reads the file, and everything that it refers to.
    pub(crate) fn read(&self) -> Result<Config, Vec<Problem>> {
        let file = self.file();
        let text = fs::read_to_string(&file).map_err(|error| {
            let what = format!("{}: {error}", file.display());
            let advice = "postrider config init writes one; or name yours with --config";
            vec![Problem::new(what, advice).coded(Code::Config)]
        })?;
        self.parse(&file, &text)
    }

    fn parse(&self, file: &Path, text: &str) -> Result<Config, Vec<Problem>> {
        let (content, errors) = DeTable::parse_recoverable(text);
        // Where no table can be made out, nobody knows which of it is secret.
        let shown = errors.is_empty().then(|| shown::shown(text, content.get_ref()));
        let reading = Reading::new(file, text, shown);
        for error in &errors {
            let line = error.span().map_or(1, |span| reading.line_of(&span));
            let what = format!("this is no TOML: {}", error.message());
            reading.wrong(line, what, "write keys as name = \"value\", and tables as [name]");
        }
        let config = if errors.is_empty() { self.config(&Table::root(&reading, &content)) } else { None };
        let mut problems = reading.problems();
        match (config, &problems[..]) {
            (Some(config), []) => Ok(config),
            (None, []) => {
                let what = format!("{}: it cannot be read", file.display());
                let advice = "compare it with what postrider config init writes";
                problems.push(Problem::new(what, advice).coded(Code::Config));
                Err(problems)
            }
            _ => Err(problems),
        }
    }

    fn config(&self, root: &Table<'_>) -> Option<Config> {
        root.knows(&[
            "source",
            "databases",
            "destinations",
            "routes",
            "consumers",
            "follow_ups",
            "http",
            "log",
            "otlp",
        ]);
        let source = root.required("source", "\"/shop\"");
        if let Some(source) = &source
            && let Err(error) = postrider::cloudevents::check_source(source)
        {
            root.wrong(root.line_at(source), error.to_string(), "write source = \"/shop\"");
        }
        let databases = root.tables("databases");
        if root.lacks("databases") {
            root.wrong(1, "no database is named", "write [databases.shop], and below it url = \"shop.db\"");
        }
        let destinations = root.tables("destinations");
        let routes = root.list("routes", "[[routes]]").unwrap_or_default();
        if ["routes", "consumers", "follow_ups"].iter().all(|key| root.lacks(key)) {
            let help = "write [[routes]], and below it queue and to; or [[consumers]], or [[follow_ups]]";
            root.wrong(1, "nothing is carried anywhere", help);
        }
        let consumers = root.list("consumers", "[[consumers]]").unwrap_or_default();
        let follow_ups = root.list("follow_ups", "[[follow_ups]]").unwrap_or_default();
        let names = |tables: &[(String, _)]| tables.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        let (of_databases, of_destinations) = (names(&databases), names(&destinations));
        let [of_databases, of_destinations] = [&of_databases, &of_destinations]
            .map(|names| names.iter().map(String::as_str).collect::<Vec<_>>());
        let routes: Vec<_> = routes
            .iter()
            .map(|table| (table, RouteSection::read(table, &of_databases, &of_destinations)))
            .collect();
        // A queue has one route, which may go to many places.
        twice(&routes, |route| {
            let what = format!("is the second route of queue {}", *route.queue);
            let help = "add its destinations to the `to` of the route";
            ((&*route.database, &*route.queue), &route.queue, what, help)
        });
        let consumers: Vec<_> =
            consumers.iter().map(|table| (table, ConsumerSection::read(table, &of_databases))).collect();
        // Marks belong to a name: two consumers of one name would take each other's messages for duplicates.
        twice(&consumers, |consumer| {
            let what = format!("has the name {} a second time", *consumer.name);
            (
                (&*consumer.database, &*consumer.name),
                &consumer.name,
                what,
                "give it another name than the one",
            )
        });
        let follow_ups: Vec<_> =
            follow_ups.iter().map(|table| (table, FollowUpSection::read(table, &of_databases))).collect();
        // A resolver has one place that is called for it.
        twice(&follow_ups, |follow_up| {
            let what = format!("is the second for resolver {}", *follow_up.resolver);
            let key = (&*follow_up.database, &*follow_up.queue, &*follow_up.resolver);
            (key, &follow_up.resolver, what, "add its operations to the one")
        });
        let listen = self.listen(root);
        let log_format = self.log_format(root);
        let otlp = self.otlp(root);
        let databases = sections(&databases, DatabaseSection::read);
        let destinations = sections(&destinations, |table| Place::read(table, Side::To));
        Some(Config {
            databases: databases?,
            destinations: destinations?,
            source: source?,
            routes: routes.into_iter().map(|(_, route)| route).collect::<Option<_>>()?,
            consumers: consumers.into_iter().map(|(_, consumer)| consumer).collect::<Option<_>>()?,
            follow_ups: follow_ups.into_iter().map(|(_, follow_up)| follow_up).collect::<Option<_>>()?,
            listen,
            log_format,
            otlp,
        })
    }

    fn listen(&self, root: &Table<'_>) -> Found<Listen> {
        let table = root.table("http");
        let in_file = table.and_then(|table| {
            table.knows(&["listen"]);
            let text = table.text("listen", "\"127.0.0.1:9464\"")?;
            match listen(&text) {
                Ok(listen) => Some(text.map(|_| listen)),
                Err(help) => {
                    let what = format!("http.listen is {:?}, which is no address", *text);
                    table.wrong(table.line_at(&text), what, help);
                    None
                }
            }
        });
        let in_environment = variable(LISTEN_VARIABLE).and_then(|text| match listen(&text) {
            Ok(listen) => Some(text.map(|_| listen)),
            Err(help) => {
                root.wrong_elsewhere(format!("{LISTEN_VARIABLE} is {:?}, which is no address", *text), &help);
                None
            }
        });
        match self.listen {
            Some(listen) => Found::new(listen, Origin::Flag("--listen")),
            None => in_environment.or(in_file).unwrap_or(Found::default(Listen(Some(LISTEN)))),
        }
    }

    /// The collector of traces. A build without them leaves the variable alone: it may be there for others.
    fn otlp(&self, root: &Table<'_>) -> Option<Found<Secret>> {
        let in_file = root.table("otlp").and_then(|table| {
            table.knows(&["endpoint", "endpoint_env", "endpoint_file"]);
            if !cfg!(feature = "otlp") {
                table.wrong(table.line(), "otlp is not in this build", traces::ADVICE);
            }
            table.url("endpoint", "\"http://localhost:4318\"")
        });
        let given = self.otlp.clone().map(|text| Found::new(text, Origin::Flag("--otlp")));
        if given.is_some() && !cfg!(feature = "otlp") {
            root.wrong_elsewhere("--otlp is not in this build".to_owned(), traces::ADVICE);
        }
        let in_environment = variable(OTLP_VARIABLE).filter(|_| cfg!(feature = "otlp"));
        let found = given.or(in_environment).map(|text| text.map(Secret::new)).or(in_file)?;
        if !["http://", "https://"].iter().any(|scheme| found.reveal().starts_with(scheme)) {
            let what = format!("the collector of traces is {}, which is no URL", found.value);
            let help = "give one such as http://localhost:4318";
            match found.origin {
                Origin::Line(line) => root.wrong(line, what, help),
                _ => root.wrong_elsewhere(what, help),
            }
        }
        Some(found)
    }

    fn log_format(&self, root: &Table<'_>) -> Found<logs::Format> {
        let in_file = root.table("log").and_then(|table| {
            table.knows(&["format"]);
            table.word("format", &logs::FORMATS)
        });
        let in_environment = variable(FORMAT_VARIABLE).and_then(|text| {
            match logs::FORMATS.iter().find(|(word, _)| *word == *text) {
                Some((_, format)) => Some(text.map(|_| *format)),
                None => {
                    root.wrong_elsewhere(
                        format!("{FORMAT_VARIABLE} is {:?}", *text),
                        "set it to human or json",
                    );
                    None
                }
            }
        });
        match self.log_format {
            Some(format) => Found::new(format, Origin::Flag("--log-format")),
            None => in_environment.or(in_file).unwrap_or(Found::default(logs::Format::Human)),
        }
    }
}

impl Config {
    /// Everything that holds, without what is secret.
    pub(crate) fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        settings.text("source", &self.source);
        self.databases.iter().for_each(|(name, section)| section.settings(name, &mut settings));
        for (name, place) in &self.destinations {
            place.settings(&format!("destinations.{name}"), &mut settings);
        }
        for (index, route) in self.routes.iter().enumerate() {
            route.settings(index + 1, &mut settings);
        }
        for (index, consumer) in self.consumers.iter().enumerate() {
            consumer.settings(index + 1, &mut settings);
        }
        for (index, follow_up) in self.follow_ups.iter().enumerate() {
            follow_up.settings(index + 1, &mut settings);
        }
        let listen = self.listen.0.map_or_else(|| "off".to_owned(), |address| address.to_string());
        settings.add("http.listen", &self.listen, listen);
        settings.text("log.format", &self.log_format);
        if let Some(otlp) = &self.otlp {
            settings.text("otlp.endpoint", otlp);
        }
        settings
    }
}

/// Reads all of them before any is given up: each tells what is wrong with it.
fn sections<T>(
    tables: &[(String, Table<'_>)],
    read: impl Fn(&Table<'_>) -> Option<T>,
) -> Option<BTreeMap<String, T>> {
    let read: Vec<_> = tables.iter().map(|(name, table)| Some((name.clone(), read(table)?))).collect();
    read.into_iter().collect()
}

/// Tells of every section whose key another has already. `told` has the key of a section, the value that it is about, what is wrong
/// with it, and what to do about it and the first one's line.
fn twice<'s, S, K: Ord>(
    sections: &'s [(&Table<'_>, Option<S>)],
    told: impl Fn(&'s S) -> (K, &'s Found<String>, String, &'static str),
) {
    let mut seen = BTreeMap::new();
    for (table, section) in sections {
        let Some(section) = section else { continue };
        let (key, value, what, help) = told(section);
        if let Some(line) = seen.insert(key, table.line()) {
            table.wrong(
                table.line_at(value),
                format!("{} {what}", table.name()),
                format!("{help} in line {line}"),
            );
        }
    }
}

fn variable(name: &str) -> Option<Found<String>> {
    let text = env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(Found::new(text, Origin::Env(name.to_owned())))
}

fn listen(text: &str) -> Result<Listen, String> {
    match text {
        "off" => Ok(Listen(None)),
        text => text.parse().map(|address| Listen(Some(address))).map_err(|_| LISTEN_HELP.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUIDE: &str = include_str!("../../../../docs/guides/daemon.md");

    #[test]
    fn the_guide_has_every_key_and_every_kind() {
        let mut known = vec!["source", "listen", "endpoint", "destination", "address", "types"];
        known.extend([
            "databases",
            "destinations",
            "routes",
            "consumers",
            "follow_ups",
            "http",
            "log",
            "otlp",
        ]);
        known.extend(database::KEYS.iter().chain(&consumer::KEYS).chain(&follow_up::KEYS));
        known.extend(route::KEYS.iter().chain(&retry::KEYS));
        let mut known: Vec<_> = known.into_iter().map(str::to_owned).collect();
        for (name, kind) in kind::KINDS {
            known.push(name.to_owned());
            for side in [Side::To, Side::From] {
                known.extend(key::keys(kind, side).iter().flat_map(key::Key::names));
            }
        }
        let missing: Vec<_> = known.into_iter().filter(|key| !GUIDE.contains(&format!("`{key}`"))).collect();
        assert!(missing.is_empty(), "docs/guides/daemon.md does not tell of {missing:?}");
    }
}
