//! Memory of what a volume reads ahead and writes behind, and who answers for it. It decides what
//! of it the volume can do without at any moment. How much there may be, whoever answers decides;
//! what he refuses, the callers read and write themselves.

use crate::buffer::AlignedBuffer;
use crate::port::Port;
use crate::process::Own;
use crate::volume::Volume;
use crate::volume::ahead::Kept;
use crate::volume::behind::Pool;
use crate::volume::copies::memory;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError};

/// What memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Bytes that nobody has asked for yet.
    Ahead,
    /// Bytes on their way to the device.
    Behind,
}

/// The right to hold memory, until it is dropped.
pub type Lease = Box<dyn Send + Sync>;

/// Who answers for the memory of volumes.
pub trait Account: Send + Sync {
    /// The right to hold so many bytes; none where they are more than there may be.
    fn lease(&self, bytes: u64, purpose: Purpose) -> Option<Lease>;
}

/// Memory, and the right to hold it.
pub(crate) struct Held {
    bytes: AlignedBuffer,
    _lease: Option<Lease>,
}

impl Deref for Held {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

/// Where the helpers of a volume get their memory: anywhere, until somebody answers for it.
#[derive(Default)]
pub(crate) struct Source(OnceLock<Arc<dyn Account>>);

impl Source {
    /// Memory for commands of a port, if it may be held.
    pub(crate) fn get(&self, port: &Port, bytes: u64, purpose: Purpose) -> Option<Held> {
        let lease = match self.0.get() {
            Some(account) => Some(account.lease(bytes, purpose)?),
            None => None,
        };
        Some(Held { bytes: memory(port, bytes as usize), _lease: lease })
    }
}

/// The lock if nobody has it.
pub(crate) fn at_once<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// What a volume holds beside its callers. Whoever answers for it looks at it through this, which
/// has nothing of the device: it may be the last to let it go, on any thread, and that must not
/// close a volume.
pub struct Memory(Own<Parts>);

struct Parts {
    source: Arc<Source>,
    ahead: Arc<Kept>,
    behind: Arc<Pool>,
}

impl Memory {
    pub(crate) fn new(source: Arc<Source>, ahead: Arc<Kept>, behind: Arc<Pool>) -> Self {
        Memory(Own::new(Parts { source, ahead, behind }))
    }

    /// Bytes that [`Memory::free`] would give; `None` while others are at them. Neither waits for a
    /// lock. In a child of a fork there are none: the locks may be held for ever.
    pub fn spare_bytes(&self) -> Option<u64> {
        if !self.0.is_here() {
            return Some(0);
        }
        Some(self.0.ahead.bytes()? + self.0.behind.spare_bytes()?)
    }

    /// Gives back the memory that nobody has use for at this moment, and drops what was read ahead.
    /// Tells whether that was anything; `None` while others are at it.
    pub fn free(&self) -> Option<bool> {
        if !self.0.is_here() {
            return Some(false);
        }
        let (ahead, behind) = (self.0.ahead.take(), self.0.behind.take_spares());
        let is_any = [&ahead, &behind].into_iter().flatten().any(|held| !held.is_empty());
        match is_any || (ahead.is_some() && behind.is_some()) {
            true => Some(is_any),
            false => None,
        }
    }
}

impl Volume {
    /// Has somebody answer for the memory of what is read ahead and written behind, unless somebody
    /// does already, or the volume does neither.
    pub fn charge(&self, account: impl FnOnce(&Arc<Memory>) -> Arc<dyn Account>) {
        if let Some(helpers) = &self.helpers {
            helpers.memory.0.source.0.get_or_init(|| account(&helpers.memory));
        }
    }
}
