//! `postrider config schema`: the JSON Schema of the file, for editors.

use crate::{
    config::json_schema,
    exit::Exit,
    output,
    problem::{Code, Problem},
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Write the schema beside the file:\n  postrider config schema > postrider.schema.json\nand name it in the first line of the file, for Taplo and Even Better TOML:\n  #:schema ./postrider.schema.json"
)]
pub(crate) struct Args {}

pub(crate) fn run() -> Result<Exit, Problem> {
    let text = serde_json::to_string_pretty(&json_schema()).map_err(|error| {
        Problem::new(format!("cannot print the schema: {error}"), "report this error").with_code(Code::Output)
    })?;
    output::text(&text)?;
    Ok(Exit::Success)
}
