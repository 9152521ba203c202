//! Writing: an object is invisible until it is finished, then there whole.
//!
//! A small object is one PUT. A larger one is sent in parts while it is still being written; a
//! query's barrier waits for those that were finished detached. Whatever fails or is given up
//! leaves nothing behind: parts are aborted in the background, and the engine waits for that when
//! it shuts down.

mod buffer;
mod cleanup;
mod commits;
mod core;
mod detached;
mod finish;
mod open;
mod outputs;
mod retract;
mod schedule;
mod sending;
mod single;
mod writer;

pub(crate) use buffer::PiecePool;
pub(crate) use cleanup::Cleanups;
pub(crate) use commits::Commits;
pub(crate) use detached::DetachedUploads;
pub(crate) use open::OpenUploads;
pub(crate) use outputs::Outputs;
pub use writer::Writer;
