//! The devices under examination, and what they lie on.

use penstock_device::{Device, Discipline, Io, MemoryDevice, OpenOptions, Port, open};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Logical blocks of every device in the exam.
pub const BLOCKS: u64 = 512;

/// A fresh device, and the file that goes with it.
pub struct Subject {
    pub device: Arc<dyn Device>,
    _file: Option<Scratch>,
}

impl Subject {
    pub fn memory(block_size: u32, blocks_per_transfer: u32) -> Self {
        let device = MemoryDevice::new(block_size, BLOCKS, block_size * blocks_per_transfer);
        Subject { device: Arc::new(device.expect("the sizes are right")), _file: None }
    }

    pub fn file(io: Io, block_size: u32, blocks_per_transfer: u32) -> Self {
        let scratch = Scratch::new();
        let options = OpenOptions {
            create_bytes: Some(BLOCKS * u64::from(block_size)),
            block_size_bytes: Some(block_size),
            transfer_max_bytes: Some(block_size * blocks_per_transfer),
            ..OpenOptions::new(io)
        };
        let device = open(&scratch.0, &options).expect("the file can be made");
        Subject { device, _file: Some(scratch) }
    }

    pub fn port(&self, discipline: Discipline) -> Port {
        Port::new(self.device.clone(), discipline).expect("the device has queues")
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
