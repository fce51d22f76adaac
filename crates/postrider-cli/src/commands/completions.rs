//! `postrider completions` and `postrider man`: shell completions and manual pages.

use crate::{
    exit::Exit,
    output,
    problem::{Code, Problem},
};
use clap_complete::Shell;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "Examples:
  postrider completions bash \\
    > ~/.local/share/bash-completion/completions/postrider
  postrider completions zsh > ~/.zfunc/_postrider
  postrider completions fish > ~/.config/fish/completions/postrider.fish";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Completions {
    /// Shell
    shell: Shell,
}

const MAN_EXAMPLES: &str = "Examples:
  postrider man | man -l -                     read the manual
  postrider man --dir ~/.local/share/man/man1  install a page for each command";

#[derive(Debug, clap::Args)]
#[command(after_help = MAN_EXAMPLES)]
pub(crate) struct Man {
    /// Write a page for each command to this folder, not the first page to stdout
    #[arg(long)]
    dir: Option<PathBuf>,
}

pub(crate) fn completions(args: &Completions, mut program: clap::Command) -> Result<Exit, Problem> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut program, "postrider", &mut script);
    output::bytes(&script)?;
    Ok(Exit::Success)
}

pub(crate) fn man(args: &Man, program: clap::Command) -> Result<Exit, Problem> {
    match &args.dir {
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(program).render(&mut page).map_err(|error| write_problem(&error, None))?;
            output::bytes(&page)?;
        }
        Some(folder) => {
            let created = std::fs::create_dir_all(folder);
            created
                .and_then(|()| clap_mangen::generate_to(program, folder))
                .map_err(|error| write_problem(&error, Some(folder)))?;
            eprintln!("Wrote the manual pages to {}.", folder.display());
        }
    }
    Ok(Exit::Success)
}

fn write_problem(error: &std::io::Error, folder: Option<&Path>) -> Problem {
    let folder = folder.map(|folder| format!(" to {}", folder.display())).unwrap_or_default();
    let advice = "give --dir a folder that this user may write to";
    Problem::new(format!("the manual cannot be written{folder}: {error}"), advice).with_code(Code::Output)
}
