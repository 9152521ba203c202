//! The Azure store against the fake: the exam with every kind of credential, and each trouble that
//! a service or the way to it can make.

#![allow(clippy::unwrap_used)] // also in what the tests share

#[path = "../common/mod.rs"]
mod common;
mod credentials;
mod hierarchy;
mod lists;
mod requests;
mod sas_forms;
mod support;
mod trouble;
mod uploads;
#[path = "../common/versions.rs"]
mod version_pages;
mod versions;
mod writes;
