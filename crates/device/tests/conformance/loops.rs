//! Loop devices of one test. They take root and a kernel that has them; where there are none, the
//! exam says so past the capture of the test's output, and is not taken.

use crate::made::Scratch;
use crate::subject::{BLOCKS, Subject};
use penstock_device::{OpenOptions, open};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A loop device on a file, detached afterwards.
pub struct Loop {
    device: PathBuf,
    _image: Scratch,
}

impl Loop {
    /// # Errors
    /// Why there is none: what `losetup` says, or that it is missing.
    pub fn new(bytes: u64, block_size: u32) -> Result<Self, String> {
        let image = Scratch::new();
        let file = std::fs::File::create(&image.0).expect("it can be made");
        file.set_len(bytes).expect("there is room");
        let mut losetup = Command::new("losetup");
        losetup.args(["--find", "--show", "--sector-size", &block_size.to_string()]).arg(&image.0);
        let output = losetup.output().map_err(|error| format!("losetup: {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_string());
        }
        let device = String::from_utf8_lossy(&output.stdout).trim().into();
        Ok(Loop { device, _image: image })
    }

    pub fn path(&self) -> &Path {
        &self.device
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.device).status();
    }
}

/// Whether loop devices can be made here; if not, `what` is said not to run.
pub fn are_there(what: &str) -> bool {
    static WHY_NOT: OnceLock<Option<String>> = OnceLock::new();
    let why_not = WHY_NOT.get_or_init(|| Loop::new(1 << 20, 512).err());
    if let Some(why) = why_not {
        // Not by eprintln, which the test runner keeps to itself where nothing fails.
        let _ = writeln!(std::io::stderr(), "{what}: NOT RUN on a loop device: {why}");
    }
    why_not.is_none()
}

impl Subject {
    /// A fresh loop device; its blocks are its own, and what else is wanted the options tell.
    pub fn on_loop(block_size: u32, blocks_per_transfer: u32, options: OpenOptions) -> Self {
        let made = Loop::new(BLOCKS * u64::from(block_size), block_size);
        let device = made.unwrap_or_else(|why| panic!("another could be made: {why}"));
        let options =
            OpenOptions { transfer_max_bytes: Some(block_size * blocks_per_transfer), ..options };
        let opened = open(device.path(), &options).expect("the loop device opens");
        Subject::new(opened, device)
    }
}
