//! Files and block devices by pread and pwrite, one command after the other. It decides when bytes
//! take the detour through an aligned buffer: only if the caller's memory is not aligned.

use crate::buffer::{AlignedBuffer, is_aligned};
use crate::device::{Command, Device, Geometry, Ownership, Queue};
use crate::errno::{ended_early, explain_io};
use crate::holes::Written;
use crate::kernel::pages::{flush_block_buffers, punch_hole};
use crate::meter::Meter;
use crate::open::OpenFile;
use penstock_base::Result;
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// A file or block device, through the page cache or past it.
pub struct FileDevice(Arc<OpenFile>);

impl FileDevice {
    /// Takes an open file.
    pub fn new(file: OpenFile) -> Self {
        FileDevice(Arc::new(file))
    }
}

impl Device for FileDevice {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn geometry(&self) -> &Geometry {
        &self.0.geometry
    }

    fn open_queue(&self, _: Ownership) -> Result<Box<dyn Queue>> {
        Ok(Box::new(FileQueue { file: self.0.clone(), bounce: None }))
    }

    fn forget_cached(&self) {
        forget_cached(&self.0.file);
    }

    fn written_from(&self, offset: u64) -> Written {
        self.0.written_from(offset)
    }
}

struct FileQueue {
    file: Arc<OpenFile>,
    /// Made for the first caller that needs it.
    bounce: Option<AlignedBuffer>,
}

impl Queue for FileQueue {
    fn run(&mut self, commands: &mut [Command<'_>], meter: &Meter) -> Result<()> {
        let FileQueue { file, bounce } = self;
        let geometry = &file.geometry;
        let alignment = geometry.buffer_alignment_bytes;
        let most = geometry.transfer_max_bytes as usize;
        let new = || AlignedBuffer::new(most, alignment as usize);
        meter.one_by_one(commands, |command| match command {
            Command::Read { block, into } if is_aligned(into, alignment) => {
                read(file, *block, into)
            }
            Command::Read { block, into } => {
                let through = &mut bounce.get_or_insert_with(new)[..into.len()];
                read(file, *block, through)?;
                into.copy_from_slice(through);
                Ok(())
            }
            Command::Write { block, from } if is_aligned(from, alignment) => {
                write(file, *block, from)
            }
            Command::Write { block, from } => {
                let through = &mut bounce.get_or_insert_with(new)[..from.len()];
                through.copy_from_slice(from);
                write(file, *block, through)
            }
            Command::Flush => flush(file),
            Command::Trim { block, blocks } => trim(file, *block, *blocks),
        })
    }
}

fn read(file: &OpenFile, block: u64, into: &mut [u8]) -> Result<()> {
    const OPERATION: &str = "device read";
    let mut offset = block * u64::from(file.geometry.block_size_bytes);
    let mut rest = into;
    while !rest.is_empty() {
        match file.file.read_at(rest, offset) {
            Ok(0) => {
                return Err(file.judge(ended_early(OPERATION, &file.name, offset), OPERATION));
            }
            Ok(count) => {
                offset += count as u64;
                rest = &mut rest[count..];
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                return Err(file.judge(explain_io(&error, OPERATION, &file.name), OPERATION));
            }
        }
    }
    Ok(())
}

fn write(file: &OpenFile, block: u64, from: &[u8]) -> Result<()> {
    const OPERATION: &str = "device write";
    let mut offset = block * u64::from(file.geometry.block_size_bytes);
    let mut rest = from;
    while !rest.is_empty() {
        match file.file.write_at(rest, offset) {
            Ok(0) => {
                return Err(file.judge(ended_early(OPERATION, &file.name, offset), OPERATION));
            }
            Ok(count) => {
                offset += count as u64;
                rest = &rest[count..];
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                return Err(file.judge(explain_io(&error, OPERATION, &file.name), OPERATION));
            }
        }
    }
    Ok(())
}

fn flush(file: &OpenFile) -> Result<()> {
    file.file.sync_data().map_err(|error| explain_io(&error, "device flush", &file.name))
}

/// Drops the kernel's pages of a file or block device. After a write-back that failed it keeps them
/// as if they were on the medium, and who opens it next would read them.
fn forget_cached(file: &File) {
    // What is still to be written keeps its pages; whether it can be is of no matter any more.
    let _ = file.sync_data();
    // Advice: where it is not taken, nothing else is to be had.
    let _ = fadvise(file, 0, None, Advice::DontNeed);
    flush_block_buffers(file);
}

/// Gives blocks back: a hole in a file, a discard on a block device. By the handle that claims a
/// device: to any other the kernel refuses it where the page cache holds something of the blocks.
pub(crate) fn trim(file: &OpenFile, block: u64, blocks: u64) -> Result<()> {
    let size = u64::from(file.geometry.block_size_bytes);
    punch_hole(&file.held, block * size, blocks * size)
        .map_err(|error| explain_io(&error, "device trim", &file.name))
}
