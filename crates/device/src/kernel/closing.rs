//! Waits until somebody closes a file or device. It decides nothing about what that means.

use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// A watch over a path.
pub(crate) struct Closing(OwnedFd);

impl Closing {
    /// Begins to watch; `None` where the kernel has no watch left, or none at all.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let watch = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
        add_watch(&watch, path, WatchFlags::CLOSE_WRITE | WatchFlags::CLOSE_NOWRITE).ok()?;
        Some(Closing(watch))
    }

    /// Waits until it is closed by somebody, `longest` at most; whether it was.
    pub(crate) fn wait(&self, longest: Duration) -> bool {
        let mut one = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which is borrowed until the call returns; the watch is open.
        unsafe { libc::poll(&raw mut one, 1, longest.as_millis() as libc::c_int) };
        // Takes what was told, so that the next wait is for what comes after it.
        rustix::io::read(&self.0, &mut [0; 4096]).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_testkit::scratch::Scratch;

    #[test]
    fn a_close_is_noticed_and_an_open_is_not() {
        let scratch = Scratch::new("closing");
        let path = scratch.path().join("file");
        let file = std::fs::File::create(&path).expect("creates");
        let closing = Closing::of(&path).expect("there are watches");
        let again = std::fs::File::open(&path).expect("opens");
        assert!(!closing.wait(Duration::from_millis(1)), "nobody closed it");
        drop(file);
        assert!(closing.wait(Duration::from_secs(60)));
        assert!(!closing.wait(Duration::ZERO), "told once");
        drop(again);
        assert!(closing.wait(Duration::from_secs(60)));
        assert!(Closing::of(&scratch.path().join("absent")).is_none());
    }
}
