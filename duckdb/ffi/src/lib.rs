//! The C treaty: `include/penstock.h` in Rust.
//!
//! Handles, strings and one error shape; no policy and no decision. Every function catches panics,
//! checks what it is given, and turns it into a call of the engine. The rules of ownership are
//! written once, at the top of the header.
#![allow(unsafe_code)] // the other side is C++: pointers are what it can give

mod abi;
mod crypto;
mod encryption;
mod engine;
mod error;
mod file;
mod filters;
mod matched;
mod names;
mod profile;
mod query;
mod reading;
mod rows;
mod spills;
mod tables;
mod their_words;
mod theirs;
mod urls;
mod volumes;
mod wide_hash;
mod window;
mod wrap;
mod writing;

pub use abi::{PsPair, PsStr};
pub use encryption::*;
pub use engine::*;
pub use error::*;
pub use file::*;
pub use filters::*;
pub use matched::*;
pub use names::*;
pub use profile::*;
pub use query::*;
pub use reading::*;
pub use rows::*;
pub use spills::*;
pub use tables::*;
pub use theirs::*;
pub use urls::*;
pub use volumes::*;
pub use wrap::*;
pub use writing::*;
