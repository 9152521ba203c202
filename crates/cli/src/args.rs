//! The command line: verbs and flags. Settings flags come from the settings table.

use crate::options::StoreFlags;
use crate::range::RangeFlag;
use crate::settings::{ServeFlags, SettingFlags};
use clap::{ArgGroup, Args, Parser, Subcommand};
use penstock_base::{ByteSize, Secret};
use std::convert::Infallible;
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
    /// Serve Azure, S3, Google or a directory as S3
    Serve(Serve),
    /// List one level below a URL, or what a pattern such as s3://lake/**/*.parquet matches
    Ls(Target),
    /// Tell size, ETag, time and metadata of an object
    Stat(Target),
    /// Write an object, or a range of it, to stdout
    Cat(Cat),
    /// Upload a file, or stdin
    Put(Put),
    /// Download an object into a file
    Get(Get),
    /// Copy one object or file: from a store, to a store, or between two
    Cp(Cp),
    /// Remove objects
    Rm(Targets),
    /// Try what `serve` would be given against its back ends, and say what is wrong
    Doctor(Serve),
    /// Keep DuckDB databases on a file or block device of their own
    #[command(subcommand)]
    Nvme(NvmeCommand),
    /// Print the reference page: settings, metrics, errors, exit codes
    Reference,
}

/// `penstock serve`, and `penstock doctor`, which is given the same.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true)))]
pub struct Serve {
    /// Directory whose subdirectories are the buckets
    #[arg(long, value_name = "DIR", group = "what")]
    pub dir: Option<PathBuf>,
    /// TOML file with back ends, buckets, keys and settings; flags and variables win over it
    #[arg(long, value_name = "FILE", group = "what")]
    pub config: Option<PathBuf>,
    /// Access key that clients sign with
    #[arg(long, value_name = "KEY", env = "PENSTOCK_ACCESS_KEY")]
    pub access_key: Option<String>,
    /// Secret key that clients sign with; visible in `ps`, unlike the variable and the file [env:
    /// PENSTOCK_SECRET_KEY]
    // Read where the two flags are: clap would call the variable beside the file a conflict.
    #[arg(long, value_name = "SECRET", value_parser = secret)]
    pub secret_key: Option<Secret>,
    /// File whose first line is the secret key; wins over the variable
    #[arg(long, value_name = "FILE", conflicts_with = "secret_key")]
    pub secret_key_file: Option<PathBuf>,
    /// Answer unsigned requests too: anyone who reaches the port may read, write and delete
    #[arg(long)]
    pub anonymous: bool,
    /// Settings of the server, as flags or PENSTOCK_* variables.
    #[command(flatten)]
    pub settings: ServeFlags,
}

/// One URL and how to reach it.
#[derive(Clone, Debug, Args)]
pub struct Target {
    /// s3://, gs://, az://, https://, file:// ...
    pub url: String,
    /// Options of its store.
    #[command(flatten)]
    pub store: StoreFlags,
}

/// Several URLs, reached the same way.
#[derive(Clone, Debug, Args)]
pub struct Targets {
    /// s3://, gs://, az://, file:// ...
    #[arg(required = true, value_name = "URL")]
    pub urls: Vec<String>,
    /// Options of their store.
    #[command(flatten)]
    pub store: StoreFlags,
}

impl Targets {
    /// One by one.
    pub fn each(&self) -> impl Iterator<Item = Target> {
        self.urls.iter().map(|url| Target { url: url.clone(), store: self.store.clone() })
    }
}

/// `penstock cat`.
#[derive(Debug, Args)]
pub struct Cat {
    /// Which object.
    #[command(flatten)]
    pub target: Target,
    /// Bytes A-B (both inclusive), A- (to the end) or -N (the last N)
    #[arg(long, value_name = "A-B", allow_hyphen_values = true)]
    pub range: Option<RangeFlag>,
}

/// `penstock put`.
#[derive(Debug, Args)]
pub struct Put {
    /// File to upload; - is stdin
    pub file: PathBuf,
    /// Where to.
    #[command(flatten)]
    pub target: Target,
    /// Media type of the object
    #[arg(long, value_name = "TYPE")]
    pub content_type: Option<String>,
}

/// `penstock get`.
#[derive(Debug, Args)]
pub struct Get {
    /// Which object.
    #[command(flatten)]
    pub target: Target,
    /// File to write
    pub file: PathBuf,
}

/// `penstock cp`.
#[derive(Debug, Args)]
pub struct Cp {
    /// URL of an object, a local file, or - for stdin; one object, no directory or pattern
    pub source: String,
    /// URL, a local file, or - for stdout; a directory takes the source's name
    pub target: String,
    /// Options of the stores, both of them where both are URLs.
    #[command(flatten)]
    pub store: StoreFlags,
    /// Fail where something is there already
    #[arg(short = 'n', long)]
    pub no_clobber: bool,
}

/// The verbs of `penstock nvme`.
#[derive(Debug, Subcommand)]
pub enum NvmeCommand {
    /// Make an empty volume; what is not empty is refused
    Format(NvmeFormat),
    /// List the files of a volume with their sizes
    Ls(NvmeDevice),
    /// Look at a volume and read every byte of its files; changes nothing
    Check(NvmeDevice),
    /// Let a volume use a device or file that became larger
    Grow(NvmeDevice),
    /// Copy a DuckDB database, with its log if there is one, into a volume
    Import(NvmeCopy),
    /// Copy a database, with its log if there is one, out of a volume
    Export(NvmeCopy),
    /// Remove a database and its log
    Rm(NvmeRemove),
}

/// A device and how to reach it.
#[derive(Debug, Args)]
pub struct NvmeDevice {
    /// File, block device or NVMe device such as /dev/ng0n1
    #[arg(value_name = "DEVICE")]
    pub path: PathBuf,
    /// How bytes move: auto, uring, direct, file, passthrough, ioctl or xnvme:BACKEND; nvme_io
    /// says it where this flag does not
    #[arg(long)]
    pub io: Option<String>,
}

/// `penstock nvme format`.
#[derive(Debug, Args)]
pub struct NvmeFormat {
    /// Where.
    #[command(flatten)]
    pub device: NvmeDevice,
    /// Make a file of this size if there is none, such as 10GiB
    #[arg(long)]
    pub size: Option<ByteSize>,
    /// Overwrite whatever is there
    #[arg(long)]
    pub force: bool,
    /// Make a cache for remote objects, which cache_dir names, instead of a volume
    #[arg(long)]
    pub cache: bool,
}

/// `penstock nvme import` and `penstock nvme export`.
#[derive(Debug, Args)]
pub struct NvmeCopy {
    /// Where the volume is.
    #[command(flatten)]
    pub device: NvmeDevice,
    /// The database file outside the volume
    pub file: PathBuf,
    /// Name of the database in the volume
    #[arg(long)]
    pub db: String,
}

/// `penstock nvme rm`.
#[derive(Debug, Args)]
pub struct NvmeRemove {
    /// Where the volume is.
    #[command(flatten)]
    pub device: NvmeDevice,
    /// Name of the database in the volume
    #[arg(long)]
    pub db: String,
}

/// A credential of the command line.
#[allow(clippy::unnecessary_wraps)] // clap's parsers may fail
fn secret(text: &str) -> Result<Secret, Infallible> {
    Ok(Secret::new(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_debug_of_a_command_line_shows_no_secret() {
        let words =
            ["penstock", "serve", "--access-key", "K", "--secret-key", "hunter2", "--dir", "x"];
        let cli = Cli::try_parse_from(words).expect("it is well formed");
        assert!(!format!("{cli:?}").contains("hunter2"), "{cli:?}");
    }
}
