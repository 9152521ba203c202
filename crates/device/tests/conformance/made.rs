//! Devices that the exam makes for itself: memory, and files of one test.

use crate::subject::{BLOCKS, Subject};
use penstock_device::{Io, MemoryDevice, OpenOptions, open};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

impl Subject {
    pub fn memory(block_size: u32, blocks_per_transfer: u32) -> Self {
        let device = MemoryDevice::new(block_size, BLOCKS, block_size * blocks_per_transfer);
        Subject::new(Arc::new(device.expect("the sizes are right")), ())
    }

    pub fn file(io: Io, block_size: u32, blocks_per_transfer: u32) -> Self {
        Subject::file_by(OpenOptions::new(io), block_size, blocks_per_transfer)
    }

    pub fn file_by(options: OpenOptions, block_size: u32, blocks_per_transfer: u32) -> Self {
        let scratch = Scratch::new();
        let options = OpenOptions {
            create_bytes: Some(BLOCKS * u64::from(block_size)),
            block_size_bytes: Some(block_size),
            transfer_max_bytes: Some(block_size * blocks_per_transfer),
            ..options
        };
        let device = open(&scratch.0, &options).expect("the file can be made");
        Subject::new(device, scratch)
    }
}

/// A file name of one test; the file is gone afterwards.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("penstock-device-{}-{number}", std::process::id());
        Scratch(std::env::temp_dir().join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
