//! Waits until bytes and names are on the disk.
//!
//! The one place of a local store that asks the kernel for it, so that tests see what was waited
//! for, and in which order. When that is needed is decided by the callers.

use rustix::fd::AsFd;
use rustix::io::{Errno, retry_on_intr};

/// Makes the bytes of a file durable, and what is needed to read them; not its times.
pub(super) fn sync_bytes(file: impl AsFd) -> Result<(), Errno> {
    #[cfg(test)]
    seen::note(file.as_fd());
    retry_on_intr(|| rustix::fs::fdatasync(&file))
}

/// Makes a file durable with its times and attributes.
pub(super) fn sync_file(file: impl AsFd) -> Result<(), Errno> {
    #[cfg(test)]
    seen::note(file.as_fd());
    retry_on_intr(|| rustix::fs::fsync(&file))
}

/// Makes the names of a directory durable. Some file systems cannot and say EINVAL; there is
/// nothing more that a program can do on those.
pub(super) fn sync_dir(dir: impl AsFd) -> Result<(), Errno> {
    #[cfg(test)]
    seen::note(dir.as_fd());
    match retry_on_intr(|| rustix::fs::fsync(&dir)) {
        Err(Errno::INVAL) => Ok(()),
        answer => answer,
    }
}

/// What this thread has waited for, for tests.
#[cfg(test)]
pub(super) mod seen {
    use rustix::fd::{AsRawFd as _, BorrowedFd};
    use std::cell::RefCell;
    use std::path::PathBuf;

    /// One wait for the disk.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Synced {
        /// The name that the file or directory had.
        pub path: PathBuf,
        /// Bytes of a file.
        pub len: u64,
        /// Names in a directory, in order.
        pub names: Vec<String>,
    }

    type Meanwhile = Box<dyn FnMut()>;

    thread_local! {
        static SEEN: RefCell<Vec<Synced>> = const { RefCell::new(Vec::new()) };
        static MEANWHILE: RefCell<Option<Meanwhile>> = const { RefCell::new(None) };
    }

    pub(super) fn note(fd: BorrowedFd<'_>) {
        let path = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))
            .expect("an open descriptor has a link below /proc");
        let entries = std::fs::read_dir(&path).into_iter().flatten().flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        let len = std::fs::metadata(&path).map_or(0, |about| about.len());
        SEEN.with_borrow_mut(|seen| seen.push(Synced { path, len, names }));
        // What happens meanwhile may wait for the disk as well.
        if let Some(mut meanwhile) = MEANWHILE.take() {
            meanwhile();
            MEANWHILE.replace(Some(meanwhile));
        }
    }

    /// Lets something happen each time that `work` waits for the disk.
    pub fn meanwhile<T>(happens: impl FnMut() + 'static, work: impl FnOnce() -> T) -> T {
        MEANWHILE.replace(Some(Box::new(happens)));
        let done = work();
        MEANWHILE.take();
        done
    }

    /// Forgets what was seen before `work`, and tells what `work` waited for.
    pub fn during<T>(work: impl FnOnce() -> T) -> (T, Vec<Synced>) {
        SEEN.take();
        let done = work();
        (done, SEEN.take())
    }
}
