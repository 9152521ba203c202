//! A device as the threads of a process see it: checked, cut to size, queued by a discipline.
//! It decides nothing about where bytes belong; that is the volume's matter.

use crate::device::{Command, Device, Geometry};
use crate::holes::Written;
use crate::queues::{Discipline, Lane, Queues};
use crate::split::{is_split, split};
use penstock_base::Result;
use std::sync::Arc;

/// Most blocks of one deallocation: a range counts them in 32 bits (NVM Command Set Specification,
/// Dataset Management).
const TRIM_BLOCKS_MAX: u64 = u32::MAX as u64;

/// A device with its queues; shared by threads.
pub struct Port {
    // Before the device: queues close first, and with the last handle the device's lock goes.
    queues: Queues,
    device: Arc<dyn Device>,
    discipline: Discipline,
}

impl Port {
    /// Takes a device; queues are opened now or by each thread's first command.
    ///
    /// # Errors
    /// As [`Device::open_queue`].
    pub fn new(device: Arc<dyn Device>, discipline: Discipline) -> Result<Self> {
        let queues = Queues::new(&*device, discipline)?;
        Ok(Port { queues, device, discipline })
    }

    /// What the device says of itself.
    pub fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    /// How errors call the device.
    pub fn name(&self) -> &str {
        self.device.name()
    }

    /// By which discipline threads share queues.
    pub fn discipline(&self) -> Discipline {
        self.discipline
    }

    /// Opens the queue that this thread's commands will take, if it has none yet.
    ///
    /// # Errors
    /// As [`Device::open_queue`].
    pub fn be_ready(&self) -> Result<()> {
        self.queues.open(&*self.device)
    }

    /// Carries out commands of any length and returns when all have ended; as many of them as the
    /// queue takes are in flight together, in no order.
    ///
    /// # Errors
    /// As [`Geometry::check_command`], before anything was done, and [`Queue::run`].
    pub fn run(&self, commands: &mut [Command<'_>]) -> Result<()> {
        let geometry = self.device.geometry();
        for command in commands.iter() {
            geometry.check_command(command, self.device.name())?;
        }
        if is_split(commands, geometry) {
            return self.queue(commands);
        }
        let mut pieces = split(commands, geometry);
        match pieces.is_empty() {
            true => Ok(()),
            false => self.queue(&mut pieces),
        }
    }

    fn queue(&self, pieces: &mut [Command<'_>]) -> Result<()> {
        self.queues.with(&*self.device, |lane| match self.discipline {
            Discipline::Sync => one_by_one(lane, pieces),
            Discipline::Single | Discipline::Pool | Discipline::Thread => lane.run(pieces),
        })
    }

    /// Reads whole blocks from `block` on.
    ///
    /// # Errors
    /// As [`Port::run`].
    pub fn read(&self, block: u64, into: &mut [u8]) -> Result<()> {
        self.run(&mut [Command::Read { block, into }])
    }

    /// Writes whole blocks from `block` on.
    ///
    /// # Errors
    /// As [`Port::run`].
    pub fn write(&self, block: u64, from: &[u8]) -> Result<()> {
        self.run(&mut [Command::Write { block, from }])
    }

    /// Makes every write durable that has returned, on whichever thread. Where no cache would lose
    /// any, that is so already, and the device is not asked.
    ///
    /// # Errors
    /// As [`Port::run`].
    pub fn flush(&self) -> Result<()> {
        match self.device.geometry().has_volatile_cache {
            true => self.run(&mut [Command::Flush]),
            false => Ok(()),
        }
    }

    /// As [`Device::written_from`].
    pub fn written_from(&self, offset: u64) -> Written {
        self.device.written_from(offset)
    }

    /// As [`Device::lets_sleep`].
    pub(crate) fn lets_sleep(&self) -> bool {
        self.device.lets_sleep()
    }

    /// As [`Device::forget_cached`].
    pub fn forget_cached(&self) {
        self.device.forget_cached();
    }

    /// Says that the contents of blocks are no longer needed.
    ///
    /// # Errors
    /// As [`Port::run`].
    pub fn trim(&self, block: u64, blocks: u64) -> Result<()> {
        trims(block, blocks).try_for_each(|trim| self.run(&mut [trim]))
    }
}

/// A deallocation in ranges that a command of NVMe can count.
fn trims(block: u64, blocks: u64) -> impl Iterator<Item = Command<'static>> {
    (0..blocks.div_ceil(TRIM_BLOCKS_MAX)).map(move |index| {
        let start = index * TRIM_BLOCKS_MAX;
        let blocks = TRIM_BLOCKS_MAX.min(blocks - start);
        Command::Trim { block: block + start, blocks }
    })
}

fn one_by_one(lane: &mut Lane, pieces: &mut [Command<'_>]) -> Result<()> {
    pieces.iter_mut().try_for_each(|piece| lane.run(std::slice::from_mut(piece)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_block_is_trimmed_once_by_commands_that_can_count_it(
            first in 0u64..1 << 50, blocks in prop_oneof![0u64..1 << 36, Just(1 << 32)],
        ) {
            let mut next = first;
            for trim in trims(first, blocks) {
                let Command::Trim { block, blocks } = trim else { panic!("{trim:?}") };
                prop_assert_eq!(block, next);
                prop_assert!(blocks > 0 && crate::nvme::trim_range(block, blocks).is_some());
                next += blocks;
            }
            prop_assert_eq!(next, first + blocks);
        }
    }
}
