//! `postrider completions` and `postrider man`: what shells and readers of manuals want.

use crate::{
    answer,
    exit::Exit,
    problem::{Code, Problem},
};
use clap_complete::Shell;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "Examples:
  postrider completions bash > ~/.local/share/bash-completion/completions/postrider
  postrider completions zsh > ~/.zfunc/_postrider
  postrider completions fish > ~/.config/fish/completions/postrider.fish";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Completions {
    /// For which shell
    shell: Shell,
}

const MAN_EXAMPLES: &str = "Examples:
  postrider man | man -l -                     read it
  postrider man --dir ~/.local/share/man/man1  one page for each subcommand, for `man postrider-status`";

#[derive(Debug, clap::Args)]
#[command(after_help = MAN_EXAMPLES)]
pub(crate) struct Man {
    /// Write a page for each subcommand into this folder, instead of the first page on stdout
    #[arg(long)]
    dir: Option<PathBuf>,
}

pub(crate) fn completions(args: &Completions, mut program: clap::Command) -> Result<Exit, Problem> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut program, "postrider", &mut script);
    answer::bytes(&script)?;
    Ok(Exit::Well)
}

pub(crate) fn man(args: &Man, program: clap::Command) -> Result<Exit, Problem> {
    match &args.dir {
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(program).render(&mut page).map_err(|error| unwritten(&error, None))?;
            answer::bytes(&page)?;
        }
        Some(folder) => {
            let made = std::fs::create_dir_all(folder);
            made.and_then(|()| clap_mangen::generate_to(program, folder))
                .map_err(|error| unwritten(&error, Some(folder)))?;
            eprintln!("The pages are in {}.", folder.display());
        }
    }
    Ok(Exit::Well)
}

fn unwritten(error: &std::io::Error, folder: Option<&Path>) -> Problem {
    let place = folder.map(|folder| format!(" to {}", folder.display())).unwrap_or_default();
    let advice = "give a folder with --dir that this user may write to";
    Problem::new(format!("the manual cannot be written{place}: {error}"), advice).coded(Code::Output)
}
