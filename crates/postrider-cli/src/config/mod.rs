//! `postrider.toml`: the configuration of `postrider run`.
//!
//! Precedence: flags, environment variables, file, defaults. The file is read as a whole: every problem is reported, with its line and
//! what to write instead. URLs may hold passwords and are never shown.

mod consumer;
mod database;
mod endpoint;
mod follow_up;
mod key;
mod kind;
mod origin;
mod pattern;
mod plan;
mod reader;
mod redact;
mod renamed;
mod retry;
mod route;
mod secret;
mod setting;
mod table;

pub(crate) use consumer::ConsumerSection;
pub(crate) use database::DatabaseSection;
pub(crate) use endpoint::{EndpointSection, EndpointSection as Place};
pub(crate) use follow_up::FollowUpSection;
pub(crate) use kind::Kind;
pub(crate) use origin::{ConfigValue, Origin};
pub(crate) use pattern::TypePattern;
pub(crate) use plan::{ConsumerPlan, FollowUpPlan, Plan, RelayPlan};
pub(crate) use route::{RouteSection, ToSection};
pub(crate) use secret::Secret;
pub(crate) use setting::Settings;

use crate::{
    logs,
    problem::{Code, Problem},
    traces,
};
use key::Direction;
use reader::ConfigReader;
use std::{
    collections::BTreeMap,
    env, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};
use table::Table;
use toml::de::DeTable;

/// The file that `postrider config init` writes.
pub(crate) const STARTER: &str = include_str!("starter.toml");

const FILE: &str = "postrider.toml";
const FILE_VARIABLE: &str = "POSTRIDER_CONFIG";
const LISTEN_VARIABLE: &str = "POSTRIDER_HTTP_LISTEN";
const FORMAT_VARIABLE: &str = "POSTRIDER_LOG_FORMAT";
const OTLP_VARIABLE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const LISTEN_HELP: &str = "write an address and a port such as 127.0.0.1:9464, or off";
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9464);

/// The configuration file, and the flags that override it.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Flags {
    /// Configuration file [default: $POSTRIDER_CONFIG, or postrider.toml in the current directory]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Address that serves /healthz, /readyz and /metrics, or off
    #[arg(long, value_name = "ADDRESS", value_parser = listen)]
    listen: Option<Listen>,

    /// Log format
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<logs::Format>,

    /// OpenTelemetry collector to export traces to (OTLP over HTTP)
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
}

/// The address to listen on; none is off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listen(pub(crate) Option<SocketAddr>);

#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) source: ConfigValue<String>,
    pub(crate) databases: BTreeMap<String, DatabaseSection>,
    pub(crate) destinations: BTreeMap<String, EndpointSection>,
    pub(crate) routes: Vec<RouteSection>,
    pub(crate) consumers: Vec<ConsumerSection>,
    pub(crate) follow_ups: Vec<FollowUpSection>,
    pub(crate) listen: ConfigValue<Listen>,
    pub(crate) log_format: ConfigValue<logs::Format>,
    pub(crate) otlp: Option<ConfigValue<Secret>>,
}

impl Flags {
    /// The file alone, without overrides.
    pub(crate) fn of_file(config: Option<PathBuf>) -> Self {
        Self { config, listen: None, log_format: None, otlp: None }
    }

    /// The path of the file.
    pub(crate) fn file(&self) -> PathBuf {
        let named = || env::var_os(FILE_VARIABLE).filter(|name| !name.is_empty()).map(PathBuf::from);
        self.config.clone().or_else(named).unwrap_or_else(|| FILE.into())
    }

    /// Whether `--config` names the file.
    pub(crate) fn is_named(&self) -> bool {
        self.config.is_some()
    }

    /// Reads the file, and the environment variables and files that it refers to.
    pub(crate) fn read(&self) -> Result<Config, Vec<Problem>> {
        let file = self.file();
        let text = fs::read_to_string(&file).map_err(|error| {
            let what = format!("{}: {error}", file.display());
            let advice = "create one with postrider config init, or pass --config";
            vec![Problem::new(what, advice).with_code(Code::Config)]
        })?;
        self.parse(&file, &text)
    }

    fn parse(&self, file: &Path, text: &str) -> Result<Config, Vec<Problem>> {
        let (content, errors) = DeTable::parse_recoverable(text);
        // A text that cannot be parsed is not shown: nothing tells which part of it is secret.
        let redacted = errors.is_empty().then(|| redact::redact(text, content.get_ref()));
        let reader = ConfigReader::new(file, text, redacted);
        for error in &errors {
            let line = error.span().map_or(1, |span| reader.line_of(&span));
            let what = format!("invalid TOML: {}", error.message());
            reader.report(line, what, "write keys as name = \"value\", and tables as [name]");
        }
        let config = if errors.is_empty() { self.config(&Table::root(&reader, &content)) } else { None };
        let mut problems = reader.problems();
        match (config, &problems[..]) {
            (Some(config), []) => Ok(config),
            (None, []) => {
                let what = format!("{}: cannot be read", file.display());
                let advice = "compare it with the file that postrider config init writes";
                problems.push(Problem::new(what, advice).with_code(Code::Config));
                Err(problems)
            }
            _ => Err(problems),
        }
    }

    fn config(&self, root: &Table<'_>) -> Option<Config> {
        root.reject_unknown_keys(&[
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
            root.report(root.line_of_value(source), error.to_string(), "write source = \"/shop\"");
        }
        let databases = root.tables("databases");
        if root.is_empty_or_missing("databases") {
            root.report(
                1,
                "no database is defined",
                "write [databases.shop], and below it url = \"shop.db\"",
            );
        }
        let destinations = root.tables("destinations");
        let routes = root.list("routes", "[[routes]]").unwrap_or_default();
        if ["routes", "consumers", "follow_ups"].iter().all(|key| root.is_empty_or_missing(key)) {
            let help = "write [[routes]], and below it queue and to; or [[consumers]], or [[follow_ups]]";
            root.report(1, "the file defines no routes, consumers or follow-ups", help);
        }
        let consumers = root.list("consumers", "[[consumers]]").unwrap_or_default();
        let follow_ups = root.list("follow_ups", "[[follow_ups]]").unwrap_or_default();
        let names = |tables: &[(String, _)]| tables.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        let (database_names, destination_names) = (names(&databases), names(&destinations));
        let [database_names, destination_names] = [&database_names, &destination_names]
            .map(|names| names.iter().map(String::as_str).collect::<Vec<_>>());
        let routes: Vec<_> = routes
            .iter()
            .map(|table| (table, RouteSection::read(table, &database_names, &destination_names)))
            .collect();
        // A queue has one route, which may have many destinations.
        reject_duplicates(&routes, |route| {
            let what = format!("is a second route of queue {}", *route.queue);
            let help = "add its destinations to the `to` of the first route";
            ((&*route.database, &*route.queue), &route.queue, what, help)
        });
        let consumers: Vec<_> =
            consumers.iter().map(|table| (table, ConsumerSection::read(table, &database_names))).collect();
        // Deduplication records belong to a name: two consumers of one name would take each other's messages for duplicates.
        reject_duplicates(&consumers, |consumer| {
            let what = format!("is a second consumer named {}", *consumer.name);
            (
                (&*consumer.database, &*consumer.name),
                &consumer.name,
                what,
                "choose a name other than that of the consumer",
            )
        });
        let follow_ups: Vec<_> =
            follow_ups.iter().map(|table| (table, FollowUpSection::read(table, &database_names))).collect();
        // A resolver has one receiver.
        reject_duplicates(&follow_ups, |follow_up| {
            let what = format!("is a second section for resolver {}", *follow_up.resolver);
            let key = (&*follow_up.database, &*follow_up.queue, &*follow_up.resolver);
            (key, &follow_up.resolver, what, "add its operations to the section")
        });
        let listen = self.listen(root);
        let log_format = self.log_format(root);
        let otlp = self.otlp(root);
        let databases = read_sections(&databases, DatabaseSection::read);
        let destinations =
            read_sections(&destinations, |table| EndpointSection::read(table, Direction::Destination));
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

    fn listen(&self, root: &Table<'_>) -> ConfigValue<Listen> {
        let table = root.table("http");
        let in_file = table.and_then(|table| {
            table.reject_unknown_keys(&["listen"]);
            let text = table.string("listen", "\"127.0.0.1:9464\"")?;
            match listen(&text) {
                Ok(listen) => Some(text.map(|_| listen)),
                Err(help) => {
                    let what = format!("invalid http.listen: {:?}", *text);
                    table.report(table.line_of_value(&text), what, help);
                    None
                }
            }
        });
        let in_environment = variable(LISTEN_VARIABLE).and_then(|text| match listen(&text) {
            Ok(listen) => Some(text.map(|_| listen)),
            Err(help) => {
                root.report_outside_file(format!("invalid {LISTEN_VARIABLE}: {:?}", *text), &help);
                None
            }
        });
        match self.listen {
            Some(listen) => ConfigValue::new(listen, Origin::Flag("--listen")),
            None => in_environment.or(in_file).unwrap_or(ConfigValue::default(Listen(Some(LISTEN)))),
        }
    }

    /// The OpenTelemetry collector. A build without tracing ignores the environment variable: it may be meant for other programs.
    fn otlp(&self, root: &Table<'_>) -> Option<ConfigValue<Secret>> {
        let in_file = root.table("otlp").and_then(|table| {
            table.reject_unknown_keys(&["endpoint", "endpoint_env", "endpoint_file"]);
            if !cfg!(feature = "otlp") {
                table.report(table.line(), "otlp is not in this build", traces::ADVICE);
            }
            table.url("endpoint", "\"http://localhost:4318\"")
        });
        let flag = self.otlp.clone().map(|text| ConfigValue::new(text, Origin::Flag("--otlp")));
        if flag.is_some() && !cfg!(feature = "otlp") {
            root.report_outside_file("--otlp is not in this build".to_owned(), traces::ADVICE);
        }
        let in_environment = variable(OTLP_VARIABLE).filter(|_| cfg!(feature = "otlp"));
        let endpoint = flag.or(in_environment).map(|text| text.map(Secret::new)).or(in_file)?;
        if !["http://", "https://"].iter().any(|scheme| endpoint.reveal().starts_with(scheme)) {
            let what = format!("the OTLP endpoint is {}, which is not a URL", endpoint.value);
            let help = "write a URL such as http://localhost:4318";
            match endpoint.origin {
                Origin::Line(line) => root.report(line, what, help),
                _ => root.report_outside_file(what, help),
            }
        }
        Some(endpoint)
    }

    fn log_format(&self, root: &Table<'_>) -> ConfigValue<logs::Format> {
        let in_file = root.table("log").and_then(|table| {
            table.reject_unknown_keys(&["format"]);
            table.choice("format", &logs::FORMATS)
        });
        let in_environment = variable(FORMAT_VARIABLE).and_then(|text| {
            match logs::FORMATS.iter().find(|(word, _)| *word == *text) {
                Some((_, format)) => Some(text.map(|_| *format)),
                None => {
                    root.report_outside_file(
                        format!("invalid {FORMAT_VARIABLE}: {:?}", *text),
                        "set it to human or json",
                    );
                    None
                }
            }
        });
        match self.log_format {
            Some(format) => ConfigValue::new(format, Origin::Flag("--log-format")),
            None => in_environment.or(in_file).unwrap_or(ConfigValue::default(logs::Format::Human)),
        }
    }
}

impl Config {
    /// The effective configuration, without secrets.
    pub(crate) fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        settings.text("source", &self.source);
        self.databases.iter().for_each(|(name, section)| section.settings(name, &mut settings));
        for (name, section) in &self.destinations {
            section.settings(&format!("destinations.{name}"), &mut settings);
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

/// Reads all tables, so that the problems of each are reported, and returns none if one is invalid.
fn read_sections<T>(
    tables: &[(String, Table<'_>)],
    read: impl Fn(&Table<'_>) -> Option<T>,
) -> Option<BTreeMap<String, T>> {
    let read: Vec<_> = tables.iter().map(|(name, table)| Some((name.clone(), read(table)?))).collect();
    read.into_iter().collect()
}

/// Reports every section whose identity an earlier one has already. `describe` returns the identity of a section, the value to point
/// at, the problem, and the advice, which is followed by the line of the first section.
fn reject_duplicates<'s, S, K: Ord>(
    sections: &'s [(&Table<'_>, Option<S>)],
    describe: impl Fn(&'s S) -> (K, &'s ConfigValue<String>, String, &'static str),
) {
    let mut seen = BTreeMap::new();
    for (table, section) in sections {
        let Some(section) = section else { continue };
        let (key, value, what, help) = describe(section);
        if let Some(line) = seen.insert(key, table.line()) {
            table.report(
                table.line_of_value(value),
                format!("{} {what}", table.name()),
                format!("{help} in line {line}"),
            );
        }
    }
}

fn variable(name: &str) -> Option<ConfigValue<String>> {
    let text = env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(ConfigValue::new(text, Origin::Env(name.to_owned())))
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
    fn daemon_guide_documents_every_key_and_kind() {
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
            for direction in [Direction::Destination, Direction::Source] {
                known.extend(key::keys(kind, direction).iter().flat_map(key::Key::names));
            }
        }
        let missing: Vec<_> = known.into_iter().filter(|key| !GUIDE.contains(&format!("`{key}`"))).collect();
        assert!(missing.is_empty(), "docs/guides/daemon.md does not document {missing:?}");
    }
}
