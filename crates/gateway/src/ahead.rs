//! Whether what follows the ranges of clients is fetched ahead; how is the engine's business.

use crate::Options;
use crate::known::keeps_bytes;
use penstock_base::{Error, Kind, Result};
use penstock_engine::{Engine, Stream, Trails};
use std::sync::Arc;

/// Refuses to fetch ahead where nothing keeps it.
///
/// # Errors
/// `Invalid`, with what to set.
pub(crate) fn check(options: &Options) -> Result<()> {
    let settings = &options.settings;
    if options.serve.read_ahead_max_bytes == 0 || keeps_bytes(settings) {
        return Ok(());
    }
    let why = "read_ahead_max_bytes is set, and no cache keeps what is fetched ahead";
    let hint = "Set cache_dir or cache_memory_bytes, or leave read_ahead_max_bytes at 0";
    Err(Error::new(Kind::Invalid, why).with_hint(hint))
}

/// What clients read in ranges, where it is followed.
#[derive(Debug)]
pub struct Followed(Option<Arc<Trails>>);

impl Followed {
    /// As the options have it.
    ///
    /// # Errors
    /// As [`check`]; `Invalid` when the disk cache cannot be used.
    pub fn of(options: &Options, engine: &Arc<Engine>) -> Result<Self> {
        check(options)?;
        let most_bytes = options.serve.read_ahead_max_bytes;
        let trails = (most_bytes > 0).then(|| Trails::new(engine, most_bytes)).transpose()?;
        Ok(Followed(trails))
    }

    /// A read that a client was let do, and that is about to be answered.
    pub fn reads(&self, stream: Stream) -> Stream {
        match &self.0 {
            Some(trails) => stream.follow(trails),
            None => stream,
        }
    }
}
