//! The commands of the program, as its help lists them.

use super::program::{postrider, run};

fn help(path: &[String]) -> String {
    let arguments: Vec<_> = path.iter().map(String::as_str).chain(["--help"]).collect();
    let ended = run(&mut postrider(&arguments));
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{path:?}");
    ended.out
}

/// The commands below one, as its help lists them.
pub(crate) fn below(help: &str) -> Vec<String> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let named = listed.take_while(|line| !line.is_empty()).filter_map(|line| {
        // A wrapped description is indented further.
        let name = line.strip_prefix("  ").filter(|rest| !rest.starts_with(' '))?;
        name.split_whitespace().next().map(str::to_owned)
    });
    named.filter(|name| name != "help").collect()
}

/// Every command with its help, from the program itself down to the last.
pub(crate) fn all() -> Vec<(Vec<String>, String)> {
    let mut all = Vec::new();
    let mut open = vec![Vec::new()];
    while let Some(path) = open.pop() {
        let help = help(&path);
        open.extend(below(&help).into_iter().map(|name| [&path[..], &[name]].concat()));
        all.push((path, help));
    }
    all
}

/// Every command without subcommands.
pub(crate) fn leaves() -> Vec<String> {
    let mut leaves: Vec<_> = all()
        .into_iter()
        .filter(|(_, help)| below(help).is_empty())
        .map(|(path, _)| path.join(" "))
        .collect();
    leaves.sort();
    leaves
}
