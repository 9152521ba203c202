//! The contract with devices: geometry, commands, queues. It decides what a command must look like;
//! how it reaches the medium is each device's matter.

use crate::holes::Written;
use crate::meter::Meter;
use penstock_base::{Error, Kind, Result};

/// What a device says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a logical block: the unit of every address and length. A power of two from 512.
    pub block_size_bytes: u32,
    /// Logical blocks of the device.
    pub block_count: u64,
    /// Most bytes of one command (MDTS); a multiple of the block size.
    pub transfer_max_bytes: u32,
    /// Addresses in memory must be multiples of it, or the device copies. 1 if any will do.
    pub buffer_alignment_bytes: u32,
    /// Whether completed writes may be lost with the power until a flush has ended.
    pub has_volatile_cache: bool,
    /// Whether the device takes [`Command::Trim`].
    pub can_trim: bool,
    /// Whether the device refuses writes and trims.
    pub is_read_only: bool,
}

impl Geometry {
    /// Bytes of the whole device.
    pub fn size_bytes(&self) -> u64 {
        self.block_count * u64::from(self.block_size_bytes)
    }

    /// Checks the numbers against each other. `object` is the device's name.
    ///
    /// # Errors
    /// `Invalid` if a number cannot be right, `Unsupported` for blocks that no device here has.
    pub fn check(&self, object: &str) -> Result<()> {
        let wrong = |kind, message: String| Err(Error::new(kind, message).with_object(object));
        let block = self.block_size_bytes;
        if !block.is_power_of_two() || !(512..=65536).contains(&block) {
            let message = format!("logical blocks of {block} bytes are not supported");
            return wrong(Kind::Unsupported, message);
        }
        if self.block_count.checked_mul(u64::from(block)).is_none() {
            return wrong(Kind::Invalid, format!("{} blocks are too many", self.block_count));
        }
        if self.transfer_max_bytes == 0 || !self.transfer_max_bytes.is_multiple_of(block) {
            let most = self.transfer_max_bytes;
            let message = format!("{most} bytes per command are no multiple of {block}");
            return wrong(Kind::Invalid, message);
        }
        Ok(())
    }

    /// Checks one command: whole blocks, inside the device, and no write to what is read-only.
    ///
    /// # Errors
    /// `Invalid` for a length or range that is wrong, `Denied` for a write to a read-only device,
    /// `Unsupported` for a trim that the device does not know.
    pub fn check_command(&self, command: &Command<'_>, object: &str) -> Result<()> {
        let fail = |kind, message: String| {
            Err(Error::new(kind, message).with_operation(command.name()).with_object(object))
        };
        let block_size = u64::from(self.block_size_bytes);
        let (block, blocks) = match command {
            Command::Flush => return Ok(()),
            Command::Trim { block, blocks } => (*block, *blocks),
            Command::Read { block, .. } | Command::Write { block, .. } => {
                let length = command.length_bytes();
                if !length.is_multiple_of(block_size) {
                    let message =
                        format!("{length} bytes are no whole blocks of {block_size} bytes");
                    return fail(Kind::Invalid, message);
                }
                (*block, length / block_size)
            }
        };
        if block.checked_add(blocks).is_none_or(|end| end > self.block_count) {
            let most = self.block_count;
            let message = format!("{blocks} blocks from {block} pass the end, which is {most}");
            return fail(Kind::Invalid, message);
        }
        let is_read = matches!(command, Command::Read { .. });
        if self.is_read_only && !is_read {
            return fail(Kind::Denied, "the device was opened read-only".into());
        }
        if matches!(command, Command::Trim { .. }) && !self.can_trim {
            return fail(Kind::Unsupported, "the device does not know how to trim".into());
        }
        Ok(())
    }
}

/// One command. Commands given together have no order among themselves.
#[derive(Debug)]
pub enum Command<'a> {
    /// Fills `into`, a whole number of blocks, from `block` on.
    Read {
        /// First logical block.
        block: u64,
        /// Where the bytes go.
        into: &'a mut [u8],
    },
    /// Writes `from`, a whole number of blocks, from `block` on.
    Write {
        /// First logical block.
        block: u64,
        /// The bytes.
        from: &'a [u8],
    },
    /// Makes durable what had ended before this command was given; not the commands beside it.
    Flush,
    /// Says that the contents are no longer needed. Until they are written again, reads of these
    /// blocks give the old bytes, zeros, or what else the device puts there (NVMe knows 0xff too).
    Trim {
        /// First logical block.
        block: u64,
        /// How many.
        blocks: u64,
    },
}

impl Command<'_> {
    /// What errors call it.
    pub fn name(&self) -> &'static str {
        match self {
            Command::Read { .. } => "device read",
            Command::Write { .. } => "device write",
            Command::Flush => "device flush",
            Command::Trim { .. } => "device trim",
        }
    }

    /// Bytes that it moves.
    pub fn length_bytes(&self) -> u64 {
        match self {
            Command::Read { into, .. } => into.len() as u64,
            Command::Write { from, .. } => from.len() as u64,
            Command::Flush | Command::Trim { .. } => 0,
        }
    }
}

/// Who will use a queue; a ring of one thread is cheaper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// The thread that opens the queue, and no other. Any thread may drop it.
    Thread,
    /// Any thread, one at a time.
    Shared,
}

/// A way to a device that takes several commands at once.
pub trait Queue: Send {
    /// Carries out the commands and returns when every one of them has ended. Each has passed
    /// [`Geometry::check_command`] and is no longer than `transfer_max_bytes`. `meter` is the
    /// queue's: it is told of each command's end, and how long that took.
    ///
    /// # Errors
    /// The first failure; what became of the other writes is then not known. The kind tells why:
    /// `Exhausted` (device full), `Denied` (read-only), `Unavailable` (gone or failing), `Corrupt`
    /// (the medium cannot give what it holds, or ends early).
    fn run(&mut self, commands: &mut [Command<'_>], meter: &Meter) -> Result<()>;
}

/// Logical blocks that can be read, written, flushed and trimmed.
pub trait Device: Send + Sync {
    /// How errors call the device: a path or a made-up name.
    fn name(&self) -> &str;

    /// What the device says of itself. It does not change while the device is open.
    fn geometry(&self) -> &Geometry;

    /// Opens a queue.
    ///
    /// # Errors
    /// `Unsupported` or `Exhausted` when the kernel gives none.
    fn open_queue(&self, ownership: Ownership) -> Result<Box<dyn Queue>>;

    /// Drops what a cache between this and the medium holds, as far as it can: after a flush that
    /// failed it may give bytes that the medium has not. For devices past such a cache: nothing.
    fn forget_cached(&self) {}

    /// Where it was ever written to, from a byte on, as far as it can tell without reading.
    fn written_from(&self, _offset: u64) -> Written {
        Written::Unknown
    }

    /// Whether a thread sleeps until this device is done: where one did not, the device was done
    /// within the call. False also where that is unknown.
    fn lets_sleep(&self) -> bool {
        false
    }
}
