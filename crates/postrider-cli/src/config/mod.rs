//! `postrider.toml`: the configuration of `postrider run`.
//!
//! Precedence: flags, environment variables, file, defaults. The file is read as a whole: every problem is reported, with its line and
//! what to write instead. URLs may hold passwords and are never shown.

mod consumer;
mod database;
mod endpoint;
mod follow_up;
mod json_schema;
mod key;
mod key_type;
mod kind;
mod listen;
mod origin;
mod pattern;
mod plan;
mod reader;
mod redact;
#[cfg(test)]
mod reference;
mod retry;
mod root;
mod route;
mod secret;
mod section;
mod setting;
mod table;
mod value;

pub(crate) use consumer::ConsumerSection;
pub(crate) use database::DatabaseSection;
pub(crate) use endpoint::{EndpointSection, EndpointSection as Place};
pub(crate) use follow_up::FollowUpSection;
pub(crate) use json_schema::json_schema;
pub(crate) use kind::Kind;
pub(crate) use listen::Listen;
pub(crate) use pattern::TypePattern;
pub(crate) use plan::{ConsumerPlan, FollowUpPlan, Plan, RelayPlan};
pub(crate) use route::{RouteSection, ToSection};
pub(crate) use secret::Secret;
pub(crate) use section::Section;
pub(crate) use setting::Settings;

use crate::{
    logs,
    problem::{Code, Problem},
    traces,
};
use key_type::{Override, TableType, ValueType};
use origin::{ConfigValue, Origin};
use reader::ConfigReader;
use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
};
use table::Table;
use toml::de::{DeTable, DeValue};
use value::Value;

/// The file that `postrider config init` writes.
pub(crate) const STARTER: &str = include_str!("starter.toml");

const FILE: &str = "postrider.toml";
const FILE_VARIABLE: &str = "POSTRIDER_CONFIG";
/// The configuration file, and the flags that override it.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Flags {
    /// Configuration file [default: $POSTRIDER_CONFIG, or postrider.toml in the current directory]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Address that serves /healthz, /readyz and /metrics, or off
    #[arg(long, value_name = "ADDRESS", value_parser = str::parse::<Listen>)]
    listen: Option<Listen>,

    /// Log format
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<logs::Format>,

    /// OpenTelemetry collector to export traces to (OTLP over HTTP)
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) source: String,
    pub(crate) databases: BTreeMap<String, DatabaseSection>,
    pub(crate) destinations: BTreeMap<String, EndpointSection>,
    pub(crate) routes: Vec<RouteSection>,
    pub(crate) consumers: Vec<ConsumerSection>,
    pub(crate) follow_ups: Vec<FollowUpSection>,
    pub(crate) listen: Listen,
    pub(crate) log_format: logs::Format,
    pub(crate) otlp: Option<Secret>,
    root: Section,
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
        let config =
            if errors.is_empty() { self.config(&Table::root(&reader, content.get_ref())) } else { None };
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

    fn config(&self, table: &Table<'_>) -> Option<Config> {
        let mut root = Section::read(table, root::ROOT);
        self.apply_overrides(table, &mut root);
        check_otlp(table, &root);
        Config::new(root)
    }

    /// Applies the flags and environment variables that override keys.
    fn apply_overrides(&self, table: &Table<'_>, root: &mut Section) {
        for section in root::keys() {
            let ValueType::Table(TableType::Section { keys, .. }) = section.value_type else { continue };
            for key in keys() {
                let Some(Override { flag, variable }) = key.overridden_by else { continue };
                let given = [
                    (flag, self.text(flag), Origin::Flag(flag)),
                    (variable, variable_text(variable), Origin::Env(variable.to_owned())),
                ];
                let read = |(name, text, origin): (&str, Option<String>, Origin)| match Value::parse(
                    &key,
                    name,
                    &DeValue::String(text?.into()),
                ) {
                    Ok(value) => Some(ConfigValue::new(value, origin)),
                    Err(mistake) => {
                        table.report_outside_file(mistake.what, &mistake.help);
                        None
                    }
                };
                // Both are read, so that the problems of both are reported.
                let values: Vec<_> = given.into_iter().filter_map(read).collect();
                if let (Some(value), Some(section)) =
                    (values.into_iter().next(), root.table_mut(section.name))
                {
                    section.set(key.name, value);
                }
            }
        }
    }

    /// The text of a flag that overrides a key.
    fn text(&self, flag: &str) -> Option<String> {
        match flag {
            "--listen" => self.listen.map(|listen| listen.to_string()),
            "--log-format" => self.log_format.map(|format| format.to_string()),
            "--otlp" => self.otlp.clone(),
            _ => None,
        }
    }
}

impl Config {
    /// None if a required value is missing, which was reported.
    fn new(root: Section) -> Option<Self> {
        let listen = root.table("http")?.value("listen")?;
        let Value::Listen(listen) = listen.value else { return None };
        Some(Self {
            source: root.string("source")?.to_owned(),
            databases: named(root.tables("databases"), DatabaseSection::new)?,
            destinations: named(root.tables("destinations"), EndpointSection::new)?,
            routes: listed(root.tables("routes"), RouteSection::new)?,
            consumers: listed(root.tables("consumers"), ConsumerSection::new)?,
            follow_ups: listed(root.tables("follow_ups"), FollowUpSection::new)?,
            listen,
            log_format: root.table("log")?.choice("format", &logs::FORMATS)?,
            otlp: root.table("otlp").and_then(|otlp| otlp.secret("endpoint")).cloned(),
            root,
        })
    }

    /// The effective configuration, without secrets.
    pub(crate) fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        self.root.add_to(&mut settings, "");
        settings
    }
}

fn named<T>(tables: &[(String, Section)], new: impl Fn(Section) -> Option<T>) -> Option<BTreeMap<String, T>> {
    tables.iter().map(|(name, section)| Some((name.clone(), new(section.clone())?))).collect()
}

fn listed<T>(tables: &[(String, Section)], new: impl Fn(Section) -> Option<T>) -> Option<Vec<T>> {
    tables.iter().map(|(_, section)| new(section.clone())).collect()
}

/// Checks the OpenTelemetry collector, which not every build can export to.
fn check_otlp(table: &Table<'_>, root: &Section) {
    let Some(otlp) = root.table("otlp") else { return };
    let endpoint = otlp.value("endpoint");
    if !cfg!(feature = "otlp") {
        if table.has("otlp") {
            table.report(otlp.line.0, "otlp is not in this build", traces::ADVICE);
        }
        if matches!(endpoint, Some(ConfigValue { origin: Origin::Flag(_), .. })) {
            table.report_outside_file("--otlp is not in this build".to_owned(), traces::ADVICE);
        }
    }
    if let (Some(endpoint), Some(url)) = (endpoint, otlp.secret("endpoint"))
        && !["http://", "https://"].iter().any(|scheme| url.reveal().starts_with(scheme))
    {
        let what = format!("the OTLP endpoint is {url}, which is not a URL");
        let help = "write a URL such as http://localhost:4318";
        match endpoint.line() {
            Some(line) => table.report(line, what, help),
            None => table.report_outside_file(what, help),
        }
    }
}

/// The value of an environment variable that overrides a key. A build without tracing ignores that of the OpenTelemetry collector: it
/// may be meant for other programs.
fn variable_text(name: &str) -> Option<String> {
    let is_ignored = name == root::OTLP_VARIABLE && !cfg!(feature = "otlp");
    env::var(name).ok().filter(|text| !text.is_empty() && !is_ignored)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const GUIDE: &str = include_str!("../../../../docs/guides/daemon.md");

    /// Every key has a description, an example of its type, and a default that can be read.
    #[test]
    fn every_key_is_described() {
        for key in key_type::with_nested(root::keys()) {
            assert!(!key.about.is_empty() && !key.about.ends_with('.'), "{}: {:?}", key.name, key.about);
            assert_eq!(key.default.is_some(), key.default_value().is_some(), "{}", key.name);
            let is_table = matches!(
                key.value_type,
                ValueType::Table(_) | ValueType::Tables(_) | ValueType::NamedTables(_)
            );
            if !is_table && !matches!(key.value_type, ValueType::Secret) {
                let example = DeValue::parse(key.example).unwrap();
                Value::parse(&key, key.name, example.get_ref()).unwrap();
            }
        }
    }

    type IsOfType = fn(ValueType) -> bool;

    /// The functions of a section that take a key, and the types of the keys that they read.
    const GETTERS: [(&str, IsOfType); 15] = [
        ("text", is_text),
        ("string", is_text),
        ("required", is_text),
        ("choice", |read| matches!(read, ValueType::Choice(_))),
        ("flag", |read| matches!(read, ValueType::Flag)),
        ("number", |read| matches!(read, ValueType::Number)),
        ("decimal", |read| matches!(read, ValueType::Decimal)),
        ("duration", |read| matches!(read, ValueType::Duration)),
        ("durations", |read| matches!(read, ValueType::Durations)),
        ("rate", |read| matches!(read, ValueType::Rate)),
        ("strings", |read| matches!(read, ValueType::Strings)),
        ("numbers", |read| matches!(read, ValueType::Numbers)),
        ("secret", |read| matches!(read, ValueType::Url | ValueType::Database | ValueType::Secret)),
        ("table", |read| matches!(read, ValueType::Table(_))),
        ("tables", |read| matches!(read, ValueType::Tables(_) | ValueType::NamedTables(_))),
    ];

    fn is_text(read: ValueType) -> bool {
        matches!(read, ValueType::String | ValueType::Choice(_) | ValueType::Reference(_))
    }

    fn sources(folder: &Path) -> Vec<String> {
        let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let texts = paths.map(|path| match path.is_dir() {
            true => sources(&path),
            false => vec![fs::read_to_string(path).unwrap()],
        });
        texts.flatten().collect()
    }

    /// Sections are read by the names of keys: the program reads every key, by its type, and no other.
    #[test]
    fn program_reads_every_key_by_its_type() {
        let keys = key_type::with_nested(root::keys());
        let sources = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
        let mut read = BTreeSet::from(["listen"]);
        for (getter, is_of_type) in GETTERS {
            let call = format!(".{getter}(\"");
            for rest in sources.iter().flat_map(|text| text.split(&call).skip(1)) {
                let name = rest.split('"').next().unwrap();
                let is_key = keys.iter().any(|key| key.name == name && is_of_type(key.value_type));
                assert!(is_key, "{getter}({name:?}) reads no key");
                read.insert(name);
            }
        }
        let unread: Vec<_> = keys.iter().map(|key| key.name).filter(|name| !read.contains(name)).collect();
        assert!(unread.is_empty(), "the program does not read {unread:?}");
    }

    #[test]
    fn daemon_guide_documents_every_kind() {
        let missing: Vec<_> =
            kind::KINDS.iter().filter(|(name, _)| !GUIDE.contains(&format!("`{name}`"))).collect();
        assert!(missing.is_empty(), "docs/guides/daemon.md does not document {missing:?}");
    }
}
