//! The gateway over its socket. One program: what the tests share is compiled and linked once.

#![allow(clippy::unwrap_used)] // Helpers of tests fail as tests do.

// First: it has macros.
#[macro_use]
mod common;

mod absent;
mod access;
mod access_log;
mod ahead;
mod azure;
mod azure_hierarchy;
mod azure_versions;
mod between;
mod between_copies;
mod cache;
mod cache_writes;
mod checksums;
mod chunks_large;
mod chunks_signed;
mod classes;
mod conformance;
mod crowd;
mod doctor;
mod drain;
mod expect;
mod forms;
mod garbage;
mod google;
mod handover;
mod hosts;
mod intent;
mod large;
mod locks;
mod made_up_uploads;
mod notices;
mod objects;
mod operation;
mod outage;
mod ownerless;
mod part_sums;
mod policy_batches;
mod policy_besides;
mod proxies;
mod refusals;
mod requests;
mod routes;
mod s3_costs;
mod sharing;
mod signed_hosts;
mod startup;
mod strange_lists;
mod subresources;
mod tracing;
mod trouble;
mod unknown_sums;
mod upload_pages;
mod uploads;
mod vanish;
mod versions;
mod withheld;
