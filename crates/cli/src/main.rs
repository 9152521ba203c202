//! The one binary `penstock`: reads the command line, runs a verb, reports how it ended.

mod args;
mod copy;
mod doctor;
mod download;
mod nvme;
mod objects;
mod options;
mod output;
mod progress;
mod range;
mod reference;
mod report;
mod serve;
mod session;
mod settings;

use args::{Cli, Command, Serve};
use clap::Parser as _;
use output::print;
use penstock_base::{Error, Kind, Result};
use penstock_engine::{Words, print_panics_without_secrets, speak};
use session::Session;
use std::future::Future;
use std::process::ExitCode;

fn main() -> ExitCode {
    print_panics_without_secrets();
    let cli = Cli::try_parse().unwrap_or_else(|error| report::usage(&error));
    match run(cli) {
        Ok(code) => code,
        Err(error) => report::failure(&error),
    }
}

fn run(cli: Cli) -> Result<ExitCode> {
    speak(match cli.command {
        Command::Serve(Serve { config: Some(_), .. })
        | Command::Doctor(Serve { config: Some(_), .. }) => Words::Config,
        _ => Words::Flags,
    });
    let config = serve::config(&cli.command)?;
    let resolved = cli.settings.resolve((&config.path, &config.settings), variables())?;
    if !matches!(cli.command, Command::Doctor(_)) {
        resolved.settings.check_together()?;
    }
    let settings = resolved.settings.clone();
    let done = match cli.command {
        Command::Doctor(serve) => {
            return block_on(None, doctor::run(serve, config, resolved))?;
        }
        Command::Serve(serve) => {
            // A server is given the machine, unless the operator says how much of it.
            let threads = resolved.is_given("io_threads").then_some(settings.io_threads);
            // Before there are threads: what has a heap keeps it.
            serve::limit_heaps();
            block_on(threads, serve::run(serve, config, resolved))?
        }
        Command::Ls(target) => objects::ls(&Session::start(settings)?, &target),
        Command::Stat(target) => objects::stat(&Session::start(settings)?, &target),
        Command::Cat(cat) => objects::cat(&Session::start(settings)?, &cat),
        Command::Put(put) => objects::put(&Session::start(settings)?, &put),
        Command::Get(get) => objects::get(&Session::start(settings)?, &get),
        Command::Cp(cp) => copy::cp(&Session::start(settings)?, &cp),
        Command::Rm(targets) => objects::rm(&Session::start(settings)?, &targets),
        Command::Nvme(command) => nvme::run(&command, &settings),
        Command::Reference => print(&reference::page()?),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// The environment, as far as it is text.
fn variables() -> impl Iterator<Item = (String, String)> {
    let pairs = std::env::vars_os();
    pairs.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

fn block_on<T>(threads: Option<u64>, future: impl Future<Output = T>) -> Result<T> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = threads.and_then(|threads| usize::try_from(threads).ok()) {
        builder.worker_threads(threads);
    }
    let runtime = builder.enable_all().build().map_err(|cause| {
        Error::new(Kind::Exhausted, "the threads of the runtime cannot be started")
            .with_source(cause)
    })?;
    Ok(runtime.block_on(future))
}
