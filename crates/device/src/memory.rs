//! A device of memory: for tests, and for measuring what everything above costs.

use crate::device::{Command, Device, Geometry, Ownership, Queue};
use crate::meter::Meter;
use penstock_base::Result;
use std::sync::{Arc, PoisonError, RwLock};

/// Blocks in memory, gone with the last handle.
pub struct MemoryDevice {
    geometry: Geometry,
    bytes: Arc<RwLock<Vec<u8>>>,
}

impl MemoryDevice {
    /// Makes `block_count` zero blocks.
    ///
    /// # Errors
    /// `Invalid` or `Unsupported` for sizes that no device has.
    pub fn new(block_size_bytes: u32, block_count: u64, transfer_max_bytes: u32) -> Result<Self> {
        let geometry = Geometry {
            block_size_bytes,
            block_count,
            transfer_max_bytes,
            buffer_alignment_bytes: 1,
            has_volatile_cache: false,
            can_trim: true,
            is_read_only: false,
        };
        geometry.check("memory")?;
        let bytes = Arc::new(RwLock::new(vec![0; geometry.size_bytes() as usize]));
        Ok(MemoryDevice { geometry, bytes })
    }
}

impl Device for MemoryDevice {
    fn name(&self) -> &str {
        "memory"
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn open_queue(&self, _: Ownership) -> Result<Box<dyn Queue>> {
        let block_size = self.geometry.block_size_bytes as usize;
        Ok(Box::new(MemoryQueue { bytes: self.bytes.clone(), block_size }))
    }
}

struct MemoryQueue {
    bytes: Arc<RwLock<Vec<u8>>>,
    block_size: usize,
}

impl Queue for MemoryQueue {
    fn run(&mut self, commands: &mut [Command<'_>], meter: &Meter) -> Result<()> {
        // Copies of bytes cannot panic half-way, so a poisoned lock hides no broken state.
        meter.one_by_one(commands, |command| {
            match command {
                Command::Read { block, into } => {
                    let bytes = self.bytes.read().unwrap_or_else(PoisonError::into_inner);
                    let start = *block as usize * self.block_size;
                    into.copy_from_slice(&bytes[start..start + into.len()]);
                }
                Command::Write { block, from } => {
                    let mut bytes = self.bytes.write().unwrap_or_else(PoisonError::into_inner);
                    let start = *block as usize * self.block_size;
                    bytes[start..start + from.len()].copy_from_slice(from);
                }
                Command::Flush => {}
                Command::Trim { block, blocks } => {
                    let mut bytes = self.bytes.write().unwrap_or_else(PoisonError::into_inner);
                    let start = *block as usize * self.block_size;
                    bytes[start..start + *blocks as usize * self.block_size].fill(0);
                }
            }
            Ok(())
        })
    }
}
