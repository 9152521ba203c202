//! The form of what goes to the kernel for one kind of device: an entry of a ring, or a call of its
//! own. It decides what a queue may ask of a kind of device, not when.

use crate::open::OpenFile;
use io_uring::{IoUring, cqueue, squeue, types};
use penstock_base::Result;

/// The place of the only registered file.
pub(super) const FILE: types::Fixed = types::Fixed(0);

/// What a command does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Read,
    Write,
    Flush,
}

/// One command, or the rest of one, as it goes to the kernel.
pub(super) struct Transfer {
    pub direction: Direction,
    pub block: u64,
    /// Bytes that were moved before.
    pub done: usize,
    pub address: *mut u8,
    pub length: u32,
    /// The registered buffer that holds `address`.
    pub slot: Option<u16>,
}

/// What came of an entry or a call.
pub(super) enum Moved {
    Bytes(usize),
    /// Nothing yet: the kernel asks for it again.
    Again,
}

/// The form of entries and calls for one kind of device.
pub(super) trait Dialect: Send {
    type Entry: squeue::EntryMarker;
    type Completion: cqueue::EntryMarker;
    /// Whether there are calls beside the ring.
    const CALLS: bool;

    fn file(&self) -> &OpenFile;
    fn entry(&self, transfer: &Transfer, user_data: u64) -> Self::Entry;
    /// Carries out a transfer here and now; its result as that of an entry would be. Asked only
    /// where there are calls.
    fn call(&self, transfer: &Transfer) -> i32;
    /// The number that was given with the entry, and the result.
    fn completion(entry: &Self::Completion) -> (u64, i32);
    /// Judges the result of a command that moves `length` bytes at most.
    fn moved(&self, result: i32, length: usize, operation: &'static str) -> Result<Moved>;
    fn trim(&self, block: u64, blocks: u64) -> Result<()>;
}

/// A ring for entries of this form.
pub(super) type Ring<D> = IoUring<<D as Dialect>::Entry, <D as Dialect>::Completion>;
