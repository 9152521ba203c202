//! The command line: verbs and flags. Settings flags come from the settings table.

use crate::settings::SettingFlags;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// Object storage at full pressure: an S3 gateway and small tools over one I/O engine.
#[derive(Debug, Parser)]
#[command(name = "penstock", version, max_term_width = 100, subcommand_required = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Settings, as flags or PENSTOCK_* variables.
    #[command(flatten)]
    pub settings: SettingFlags,
}

/// The verbs that exist.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a directory as S3: each subdirectory is a bucket
    Serve(Serve),
    /// Print the reference page: settings, metrics, errors, exit codes
    Reference,
}

/// `penstock serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// Directory whose subdirectories are the buckets
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// Address to listen on; port 0 takes a free one
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9000")]
    pub listen: String,
    /// Access key that clients sign with
    #[arg(long, value_name = "KEY", env = "PENSTOCK_ACCESS_KEY")]
    pub access_key: Option<String>,
    /// Secret key that clients sign with; visible in `ps`, unlike the variable and the file
    #[arg(long, value_name = "SECRET", env = "PENSTOCK_SECRET_KEY", hide_env_values = true)]
    pub secret_key: Option<String>,
    /// File whose first line is the secret key
    #[arg(long, value_name = "FILE", conflicts_with = "secret_key")]
    pub secret_key_file: Option<PathBuf>,
    /// Answer unsigned requests too: anyone who reaches the port may read, write and delete
    #[arg(long)]
    pub anonymous: bool,
    /// Seconds that requests in flight get to finish after SIGTERM or SIGINT
    #[arg(long, value_name = "SECONDS", default_value_t = 25)]
    pub drain_seconds: u64,
}
