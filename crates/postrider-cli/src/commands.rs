//! One module per subcommand, in the groups in which `postrider --help` lists them.

mod audit;
mod bench;
mod check;
mod completions;
mod config;
mod dev;
mod doctor;
mod gc;
mod keys;
mod messages;
mod migrate;
mod pause;
mod publish;
mod replay;
mod run;
mod saga;
mod status;
mod tail;
mod timers;
mod top;

use crate::{Postrider, exit::Exit, problem::Problem};
use clap::{CommandFactory, Subcommand, builder::Styles};
use std::fmt::Write;
use tokio_util::sync::CancellationToken;

const AFTER_HELP: &str = "Run 'postrider COMMAND --help' for the options and examples of a command.";

/// No line of help is wider than this, however wide the terminal is.
const MAX_HELP_WIDTH: usize = 100;

#[derive(Debug, clap::Subcommand)]
#[command(
    help_template = help_template(),
    after_help = AFTER_HELP,
    max_term_width = MAX_HELP_WIDTH
)]
pub(crate) enum Command {
    #[command(flatten)]
    Run(RunCommand),
    #[command(flatten)]
    Observe(ObserveCommand),
    #[command(flatten)]
    Repair(RepairCommand),
    #[command(flatten)]
    SetUp(SetUpCommand),
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum RunCommand {
    /// Run the daemon that postrider.toml configures
    Run(run::Args),
    /// Run a demo shop and watch its messages; needs no setup
    Dev(dev::Args),
    /// Stage one message in a transaction of its own
    Publish(publish::Args),
    /// Measure the throughput and latency of staging and delivery
    Bench(bench::Args),
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum ObserveCommand {
    /// Show the backlog, lag and dead letters of each queue
    Status(status::Args),
    /// Show live statistics of the queues
    Top(top::Args),
    /// Print message events as they happen
    Tail(tail::Args),
    /// Diagnose databases, queues and destinations, and print the fixes
    Doctor(doctor::Args),
    /// Compare lag, dead letters and blocked keys with thresholds
    Check(check::Args),
    /// List paused queues and destinations
    Paused(pause::ListArgs),
    /// List operator actions, and verify the follow-up ledger
    #[command(subcommand)]
    Audit(audit::Audit),
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum RepairCommand {
    /// Inspect, requeue and discard dead letters
    #[command(subcommand)]
    Dead(messages::DeadLetters),
    /// Inspect, trace, requeue and discard messages
    #[command(subcommand)]
    Messages(messages::Messages),
    /// Deliver kept messages again
    Replay(replay::Args),
    /// Inspect and requeue follow-ups
    #[command(subcommand)]
    Saga(saga::Saga),
    /// List and release blocked ordering keys
    #[command(subcommand)]
    Keys(keys::Keys),
    /// List and cancel named timers
    #[command(subcommand)]
    Timers(timers::Timers),
    /// Pause a queue or a destination
    #[command(
        override_usage = "postrider pause [OPTIONS] --db <PATH|URL> --why <WHY>\n                 <--queue <NAME>|--destination <NAME>>"
    )]
    Pause(pause::Args),
    /// Resume a paused queue or destination
    #[command(
        override_usage = "postrider resume [OPTIONS] --db <PATH|URL> --why <WHY>\n                 <--queue <NAME>|--destination <NAME>>"
    )]
    Resume(pause::Args),
    /// Delete expired messages, deduplication records and audit rows
    Gc(gc::Args),
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum SetUpCommand {
    /// Create, upgrade and validate the database schema
    #[command(subcommand)]
    Migrate(migrate::Migrate),
    /// Create, check and show postrider.toml
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Generate shell completions
    Completions(completions::Completions),
    /// Generate manual pages
    Man(completions::Man),
}

/// The headings of `postrider --help`, each with the commands below it.
fn groups() -> [(&'static str, clap::Command); 4] {
    let empty = || clap::Command::new("group");
    [
        ("Run", RunCommand::augment_subcommands(empty())),
        ("Observe", ObserveCommand::augment_subcommands(empty())),
        ("Repair", RepairCommand::augment_subcommands(empty())),
        ("Set up", SetUpCommand::augment_subcommands(empty())),
    ]
}

/// Clap has no headings for subcommands, so the list is made here, from the commands themselves.
fn help_template() -> String {
    let styles = Styles::styled();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let mut list = String::new();
    for (heading, group) in groups() {
        // Writing to a string never fails.
        let _ = writeln!(list, " {header}{heading}{header:#}");
        for command in group.get_subcommands() {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(list, "  {literal}{:<13}{literal:#}{about}", command.get_name());
        }
    }
    format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n\
         {header}Commands:{header:#}\n{list}\n{header}Options:{header:#}\n{{options}}{{after-help}}"
    )
}

impl Command {
    /// Runs the command to its end, or until `stop` requests a graceful stop.
    pub(crate) async fn run(self, stop: CancellationToken) -> Result<Exit, Problem> {
        match self {
            Self::Run(command) => command.run(stop).await,
            Self::Observe(command) => command.run(stop).await,
            Self::Repair(command) => command.run(stop).await,
            Self::SetUp(command) => command.run(stop).await,
        }
    }
}

impl RunCommand {
    async fn run(self, stop: CancellationToken) -> Result<Exit, Problem> {
        match self {
            Self::Run(args) => run::run(args, stop).await,
            Self::Dev(args) => dev::run(args, stop).await,
            Self::Publish(args) => publish::run(args, stop).await,
            Self::Bench(args) => bench::run(args, stop).await,
        }
    }
}

impl ObserveCommand {
    async fn run(self, stop: CancellationToken) -> Result<Exit, Problem> {
        match self {
            Self::Status(args) => status::run(args, stop).await,
            Self::Top(args) => top::run(args, stop).await,
            Self::Tail(args) => tail::run(args, stop).await,
            Self::Doctor(args) => doctor::run(args, stop).await,
            Self::Check(args) => check::run(args, stop).await,
            Self::Paused(args) => pause::paused(args, stop).await,
            Self::Audit(audit) => audit.run(stop).await,
        }
    }
}

impl RepairCommand {
    async fn run(self, stop: CancellationToken) -> Result<Exit, Problem> {
        match self {
            Self::Dead(dead) => dead.run(stop).await,
            Self::Messages(messages) => messages.run(stop).await,
            Self::Replay(args) => replay::run(args, stop).await,
            Self::Saga(saga) => saga.run(stop).await,
            Self::Keys(keys) => keys.run(stop).await,
            Self::Timers(timers) => timers.run(stop).await,
            Self::Pause(args) => pause::pause(args).await,
            Self::Resume(args) => pause::resume(args).await,
            Self::Gc(args) => gc::run(args, stop).await,
        }
    }
}

impl SetUpCommand {
    async fn run(self, stop: CancellationToken) -> Result<Exit, Problem> {
        match self {
            Self::Migrate(migrate) => migrate.run(stop).await,
            Self::Config(command) => command.run(),
            Self::Completions(args) => completions::completions(&args, Postrider::command()),
            Self::Man(args) => completions::man(&args, Postrider::command()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMINAL: usize = 80;

    fn help_lines(command: &mut clap::Command, path: &str, lines: &mut Vec<(String, String)>) {
        let helps = [command.render_help(), command.render_long_help()];
        for line in
            helps.iter().flat_map(|help| help.to_string().lines().map(str::to_owned).collect::<Vec<_>>())
        {
            lines.push((path.to_owned(), line));
        }
        for child in command.get_subcommands_mut() {
            let path = format!("{path} {}", child.get_name());
            help_lines(child, &path, lines);
        }
    }

    #[test]
    fn help_fits_80_columns() {
        let mut postrider = Postrider::command().term_width(TERMINAL);
        postrider.build();
        let mut lines = Vec::new();
        help_lines(&mut postrider, "postrider", &mut lines);
        let is_wide = |line: &str| line.chars().count() > TERMINAL;
        let wide: Vec<_> = lines.iter().filter(|(_, line)| is_wide(line)).collect();
        assert!(lines.len() > 1000, "only {} lines of help were rendered", lines.len());
        assert!(wide.is_empty(), "{wide:#?}");
    }

    /// Clap would wrap a longer line of a footer, which breaks the columns of its examples.
    #[test]
    fn help_footers_are_written_for_80_columns() {
        fn check(command: &clap::Command) {
            let footer = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in footer.lines() {
                assert!(line.chars().count() <= TERMINAL, "{}: {line}", command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        check(&Postrider::command());
    }

    #[test]
    fn main_help_lists_every_command_once_below_a_heading() {
        let mut postrider = Postrider::command();
        postrider.build();
        let help = postrider.render_help().to_string();
        let commands = postrider.get_subcommands().filter(|command| command.get_name() != "help");
        let expected: Vec<_> = commands
            .map(|command| format!("  {:<13}{}", command.get_name(), command.get_about().unwrap()))
            .collect();
        let listed: Vec<_> = help
            .lines()
            .skip_while(|line| *line != "Commands:")
            .skip(1)
            .take_while(|line| !line.is_empty())
            .collect();
        let headings: Vec<_> = listed.iter().filter(|line| !line.starts_with("  ")).collect();
        assert_eq!(headings, [&" Run", &" Observe", &" Repair", &" Set up"]);
        let listed: Vec<_> = listed.into_iter().filter(|line| line.starts_with("  ")).collect();
        assert_eq!(listed, expected);
    }
}
