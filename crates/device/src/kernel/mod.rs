//! The calls in which the kernel takes addresses of our memory, and one to the allocator: the only
//! `unsafe` of this crate.

#![allow(unsafe_code)] // the kernel takes pointers

pub(crate) mod closing;
mod dialect;
#[cfg(test)]
pub(crate) mod fork;
pub mod heaps;
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
