//! A file or block device through the page cache, beside a handle past it, for bytes that need not
//! last. It decides when the kernel is told to begin writing them, and asks whether it could.
//!
//! Who syncs a file, or a block device, writes all of it that is in the page cache. So that a sync
//! of what lasts does not wait for much of what does not, little of that is left unwritten; the
//! pages stay to be read.

use crate::device::{Command, Device, Geometry, Ownership, Queue};
use crate::errno::explain_io;
use crate::file::FileDevice;
use crate::kernel::pages::{begin_writing, check_written};
use crate::meter::Meter;
use crate::open::OpenFile;
use penstock_base::{Error, Kind, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Written bytes after which the kernel begins to write them to the device. Less that is gone
/// before is never written at all.
const UNWRITTEN_BYTES: u64 = 256 << 20;

pub(crate) struct CachedDevice {
    device: FileDevice,
    shared: Arc<Shared>,
}

struct Shared {
    file: OpenFile,
    written_bytes: AtomicU64,
    /// The kernel tells once that it could not write something; what, it does not tell.
    is_lost: AtomicBool,
}

impl CachedDevice {
    /// # Errors
    /// What the system says where it gives no more handles.
    pub(crate) fn beside(file: &OpenFile) -> Result<Self> {
        let (written_bytes, is_lost) = (AtomicU64::default(), AtomicBool::default());
        let shared = Shared { file: file.cached()?, written_bytes, is_lost };
        // What somebody else could not write before is not ours.
        let _ = check_written(&shared.file.file, shared.file.geometry.size_bytes());
        Ok(CachedDevice { device: FileDevice::new(file.cached()?), shared: Arc::new(shared) })
    }
}

impl Device for CachedDevice {
    fn name(&self) -> &str {
        self.device.name()
    }

    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn open_queue(&self, ownership: Ownership) -> Result<Box<dyn Queue>> {
        let queue = self.device.open_queue(ownership)?;
        Ok(Box::new(CachedQueue { queue, shared: self.shared.clone() }))
    }
}

impl Shared {
    /// After so many bytes the kernel begins to write.
    fn note_written(&self, bytes: u64) {
        let before = self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before / UNWRITTEN_BYTES < (before + bytes) / UNWRITTEN_BYTES {
            begin_writing(&self.file.file);
        }
    }

    /// A page that could not be written is dropped like any other, and read again as it was before.
    fn check_read(&self) -> Result<()> {
        const OPERATION: &str = "device read";
        let OpenFile { file, name, geometry, .. } = &self.file;
        if let Err(error) = check_written(file, geometry.size_bytes()) {
            self.is_lost.store(true, Ordering::Release);
            return Err(explain_io(&error, "device write", name));
        }
        if !self.is_lost.load(Ordering::Acquire) {
            return Ok(());
        }
        let message =
            "the device failed earlier, and which of the spilled bytes it lost is not known";
        Err(Error::new(Kind::Unavailable, message)
            .with_operation(OPERATION)
            .with_object(name)
            .with_hint("Close what is open on the volume, and spill elsewhere"))
    }
}

struct CachedQueue {
    queue: Box<dyn Queue>,
    shared: Arc<Shared>,
}

impl Queue for CachedQueue {
    fn run(&mut self, commands: &mut [Command<'_>], meter: &Meter) -> Result<()> {
        self.queue.run(commands, meter)?;
        let written = |command: &Command<'_>| match command {
            Command::Write { from, .. } => from.len() as u64,
            Command::Read { .. } | Command::Flush | Command::Trim { .. } => 0,
        };
        self.shared.note_written(commands.iter().map(written).sum());
        match commands.iter().any(|command| matches!(command, Command::Read { .. })) {
            true => self.shared.check_read(),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::kernel::pages::cached_pages;
    use crate::volume::{FormatOptions, Lock, OpenFileOptions, SharedVolume, format};
    use crate::{Discipline, Io, OpenOptions, Port, open};

    const SPILLED_BYTES: usize = 2 << 20;

    #[test]
    fn what_spills_is_in_the_page_cache_and_what_lasts_is_not() {
        let path = std::env::temp_dir().join(format!("penstock-cached-{}", std::process::id()));
        let options = OpenOptions { create_bytes: Some(16 << 20), ..OpenOptions::new(Io::Uring) };
        let port = Port::new(open(&path, &options).expect("makes it"), Discipline::Sync);
        format(&port.expect("has queues"), FormatOptions::default()).expect("it is empty");
        let volume = SharedVolume::open(&path, &options, Discipline::Thread).expect("opens");
        let create = OpenFileOptions { create: true, lock: Lock::None };
        let plain = std::fs::File::open(&path).expect("opens");
        let mut before = cached_pages(&plain);
        for (name, pages_least, pages_most) in [("db", 0, 0), ("temp/spilled", 500, 530)] {
            let file = volume.open_file(name, create).expect("creates");
            file.write_at(&vec![7; SPILLED_BYTES], 0).expect("writes");
            file.sync().expect("syncs");
            let after = cached_pages(&plain);
            let pages = after.saturating_sub(before) * rustix::param::page_size() / 4096;
            assert!((pages_least..=pages_most).contains(&pages), "{name}: {pages} pages");
            before = after;
        }
        drop(volume);
        std::fs::remove_file(&path).expect("removes");
    }
}
