//! `postrider.toml`: what `postrider run` carries, and where.
//!
//! A flag counts more than a variable of the environment, that more than the file, and the file more than the default. The file
//! is read as a whole: every problem is told, with its line and what to write instead. URLs may hold passwords and are never
//! shown.

mod database;
mod destination;
mod origin;
mod plan;
mod reading;
mod route;
mod secret;
mod setting;
mod table;

pub(crate) use database::DatabaseSection;
pub(crate) use destination::{DestinationSection, Kind};
pub(crate) use origin::{Found, Origin};
pub(crate) use plan::Plan;
pub(crate) use route::RouteSection;
pub(crate) use setting::Settings;

use crate::{logs, problem::Problem};
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
}

/// Where to listen, if anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listen(pub(crate) Option<SocketAddr>);

#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) source: Found<String>,
    pub(crate) databases: BTreeMap<String, DatabaseSection>,
    pub(crate) destinations: BTreeMap<String, DestinationSection>,
    pub(crate) routes: Vec<RouteSection>,
    pub(crate) listen: Found<Listen>,
    pub(crate) log_format: Found<logs::Format>,
}

impl Flags {
    /// The path of the file.
    pub(crate) fn file(&self) -> PathBuf {
        let named = || env::var_os(FILE_VARIABLE).filter(|name| !name.is_empty()).map(PathBuf::from);
        self.config.clone().or_else(named).unwrap_or_else(|| FILE.into())
    }

    /// Reads the file, and everything that it refers to.
    pub(crate) fn read(&self) -> Result<Config, Vec<Problem>> {
        let file = self.file();
        let text = fs::read_to_string(&file).map_err(|error| {
            let what = format!("{}: {error}", file.display());
            vec![Problem::new(what, "postrider config init writes one; or name yours with --config")]
        })?;
        self.parse(&file, &text)
    }

    fn parse(&self, file: &Path, text: &str) -> Result<Config, Vec<Problem>> {
        let reading = Reading::new(file, text);
        let (content, errors) = DeTable::parse_recoverable(text);
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
                problems.push(Problem::new(what, "compare it with what postrider config init writes"));
                Err(problems)
            }
            _ => Err(problems),
        }
    }

    fn config(&self, root: &Table<'_>) -> Option<Config> {
        root.knows(&["source", "databases", "destinations", "routes", "http", "log"]);
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
        if root.lacks("routes") {
            root.wrong(1, "nothing is carried anywhere", "write [[routes]], and below it queue and to");
        }
        let names = |tables: &[(String, _)]| tables.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        let (of_databases, of_destinations) = (names(&databases), names(&destinations));
        let [of_databases, of_destinations] = [&of_databases, &of_destinations]
            .map(|names| names.iter().map(String::as_str).collect::<Vec<_>>());
        let routes: Vec<_> = routes
            .iter()
            .map(|table| (table, RouteSection::read(table, &of_databases, &of_destinations)))
            .collect();
        twice(&routes);
        let listen = self.listen(root);
        let log_format = self.log_format(root);
        let databases = sections(&databases, DatabaseSection::read);
        let destinations = sections(&destinations, DestinationSection::read);
        Some(Config {
            databases: databases?,
            destinations: destinations?,
            source: source?,
            routes: routes.into_iter().map(|(_, route)| route).collect::<Option<_>>()?,
            listen,
            log_format,
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
        self.destinations.iter().for_each(|(name, section)| section.settings(name, &mut settings));
        for (index, route) in self.routes.iter().enumerate() {
            route.settings(index + 1, &mut settings);
        }
        let listen = self.listen.0.map_or_else(|| "off".to_owned(), |address| address.to_string());
        settings.add("http.listen", &self.listen, listen);
        settings.text("log.format", &self.log_format);
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

/// A queue has one route, which may go to many places.
fn twice(routes: &[(&Table<'_>, Option<RouteSection>)]) {
    let mut seen = BTreeMap::new();
    for (table, route) in routes {
        let Some(route) = route else { continue };
        if let Some(line) = seen.insert((&*route.database, &*route.queue), table.line()) {
            let what = format!("{} is the second route of queue {}", table.name(), *route.queue);
            let help = format!("add its destinations to the `to` of the route in line {line}");
            table.wrong(table.line_at(&route.queue), what, help);
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
