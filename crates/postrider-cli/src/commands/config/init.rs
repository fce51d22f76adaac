//! `postrider config init`: writes a file to begin with.

use crate::{config, exit::Exit, problem::Problem};
use std::{
    fs::File,
    io::{ErrorKind, Write},
    path::PathBuf,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where to
    #[arg(value_name = "FILE", default_value = "postrider.toml")]
    file: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Problem> {
    let written =
        File::create_new(&args.file).and_then(|mut file| file.write_all(config::STARTER.as_bytes()));
    let name = args.file.display();
    match written {
        Ok(()) => {
            eprintln!("wrote {name}: change it, then postrider config check");
            Ok(Exit::Well)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(Problem::new(
            format!("{name} is there already"),
            "name another file, or move that one away; it is never written over",
        )),
        Err(error) => Err(Problem::new(
            format!("{name}: {error}"),
            "name a file in a folder that this user may write to",
        )),
    }
}
