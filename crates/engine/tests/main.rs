//! The engine's verbs. One program: what the tests share is compiled and linked once.

#![allow(clippy::unwrap_used)] // Helpers of tests fail as tests do.

mod cache;
mod cancelled;
mod changes;
mod detached;
mod failures;
mod full_link;
mod gaps;
mod heads;
mod host_reads_ahead;
mod link_told;
mod listed;
mod listings;
mod memory;
mod names;
mod opened_together;
mod openings;
mod outdated;
mod pace;
mod pages;
mod read;
mod read_again;
mod read_ahead;
mod read_here_and_there;
mod read_in_a_row;
mod read_versions;
mod row_groups;
mod small_memory;
mod support;
mod taken_slowly;
mod through;
mod trails;
mod upload;
mod upload_ends;
mod upload_memory;
mod warm;
mod wasted;
mod wire;
mod wire_azure;
mod wire_hedged;
mod wire_s3;
mod wire_trickle;
