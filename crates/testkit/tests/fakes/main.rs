//! The fakes, seen from outside by a client of bytes.

#![allow(clippy::unwrap_used)] // also in what the tests share

mod auth;
mod raw;
mod wire;
