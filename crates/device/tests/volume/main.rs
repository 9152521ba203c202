//! The volume against what files of a database ask of it, against failures, and against power cuts.

mod ahead;
mod bare;
mod crash;
mod divided;
mod failures;
mod files;
mod fragmented;
mod guard;
mod held;
mod history;
mod shadow;
mod shared;
mod spare;
mod spilled;
