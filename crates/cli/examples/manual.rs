//! Writes the manual pages and the completions of shells, from the same tables as the help:
//! `manual DIR`. No verb of the program: what serves requests would be compiled under new names,
//! and the profile of releases knows the old ones.

#[allow(dead_code)] // Its fields are for the program.
#[path = "../src/args.rs"]
mod args;
#[allow(dead_code)]
#[path = "../src/options.rs"]
mod options;
#[allow(dead_code)]
#[path = "../src/range.rs"]
mod range;
#[allow(dead_code)]
#[path = "../src/settings.rs"]
mod settings;

use clap::{Command, CommandFactory as _};
use clap_complete::{Shell, generate_to};
use std::path::Path;

const SETTINGS: &str = "The settings on the page of penstock(1) are flags of every verb.";

fn main() -> std::io::Result<()> {
    let Some(dir) = std::env::args_os().nth(1) else {
        return Err(std::io::Error::other("usage: manual DIR"));
    };
    let dir = Path::new(&dir);
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        generate_to(shell, &mut args::Cli::command(), "penstock", dir)?;
    }
    // The settings are on the page of the program, and not again on that of each verb.
    let mut program = args::Cli::command()
        .disable_help_subcommand(true)
        .mut_args(|arg| arg.global(false).hide_short_help(false));
    program.build();
    write(program, dir)
}

/// Writes the page of a command and those of its verbs.
fn write(mut command: Command, dir: &Path) -> std::io::Result<()> {
    for verb in command.get_subcommands() {
        write(verb.clone().after_help(SETTINGS), dir)?;
    }
    // As short as that of the help: `[OPTIONS]` instead of each flag.
    let usage = command.render_usage().to_string();
    let command = command.override_usage(usage.trim_start_matches("Usage: ").to_string());
    let source = concat!("penstock ", env!("CARGO_PKG_VERSION"));
    clap_mangen::Man::new(command).source(source).generate_to(dir)?;
    Ok(())
}
