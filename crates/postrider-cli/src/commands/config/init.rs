//! `postrider config init`: writes a starter configuration.

use crate::{config, exit::Exit, problem::Problem};
use std::{
    fs::File,
    io::{ErrorKind, Write},
    path::PathBuf,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Path of the new file
    #[arg(value_name = "FILE", default_value = "postrider.toml")]
    file: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Problem> {
    let written =
        File::create_new(&args.file).and_then(|mut file| file.write_all(config::STARTER.as_bytes()));
    let name = args.file.display();
    match written {
        Ok(()) => {
            eprintln!("wrote {name}; edit it, then run postrider config check");
            Ok(Exit::Success)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(Problem::new(
            format!("{name} already exists"),
            "name another file, or move this one away; config init never overwrites a file",
        )),
        Err(error) => Err(Problem::new(
            format!("{name}: {error}"),
            "name a file in a directory that this user may write to",
        )),
    }
}
