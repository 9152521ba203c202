//! The volume against what files of a database ask of it, against failures, and against power cuts.

mod ahead;
mod crash;
mod failures;
mod files;
mod fragmented;
mod guard;
mod shadow;
mod shared;
mod spare;
mod spilled;
