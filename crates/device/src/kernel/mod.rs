//! The calls in which the kernel takes addresses of our memory: the only `unsafe` of this crate.

#![allow(unsafe_code)] // the kernel takes pointers

mod dialect;
#[cfg(test)]
pub(crate) mod fork;
pub mod ioctl;
pub mod large;
mod opened;
pub(crate) mod pages;
pub(crate) mod part;
pub mod passthrough;
mod ring;
pub(crate) mod slept;
mod slots;
pub mod uring;
mod way;
pub mod xnvme;
