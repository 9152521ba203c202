//! Looks at a device while others may have it: nothing is claimed, locked or written. It decides
//! what can be looked at: what [`open_by`](crate::open_by) takes, by the same io.

use crate::device::Device;
use crate::errno::{explain, explain_io};
use crate::lock::Locked;
use crate::namespace::block_device;
use crate::open::{OpenFile, check_kind, geometry, is_character_device};
use crate::state::refuse_read_only;
use crate::{FileDevice, Io, IoChoice, OpenOptions, Wait};
use penstock_base::Result;
use rustix::fs::{Access, OFlags, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

/// A device to read for a moment, where this user could open it to write. A holder keeps it, and
/// an opener meanwhile finds nobody in the way. NVMe commands are not needed: its block device
/// has the same bytes.
///
/// # Errors
/// As [`crate::open_by`], but for those of claims, locks and rings.
pub fn peek(path: &Path, choice: IoChoice) -> Result<Arc<dyn Device>> {
    let name = path.display().to_string();
    let fail = |errno| explain(errno, "device open", &name);
    let block = match choice {
        IoChoice::By(Io::Ioctl) => block_device(path, true)?,
        IoChoice::By(Io::Passthrough) => block_device(path, false)?,
        IoChoice::Auto | IoChoice::By(Io::Xnvme(_)) if is_character_device(path) => {
            block_device(path, false)?
        }
        _ => path.to_path_buf(),
    };
    let is_block = check_kind(&rustix::fs::stat(&block).map_err(fail)?, &name)?;
    rustix::fs::access(&block, Access::READ_OK | Access::WRITE_OK).map_err(fail)?;
    // Commands pass by the page cache of a block device: what it has may be older.
    let (io, flags) = match is_block {
        true => (Io::Direct, OFlags::DIRECT),
        false => (Io::File, OFlags::empty()),
    };
    let mut how = std::fs::OpenOptions::new();
    let opened = how.read(true).custom_flags(flags.bits() as i32).open(&block);
    let explain = |error: std::io::Error| explain_io(&error, "device open", &name);
    let file = opened.map_err(explain)?;
    if is_block {
        refuse_read_only(&file, &name)?;
    }
    let size_bytes = rustix::fs::seek(&file, SeekFrom::End(0)).map_err(fail)?;
    let options = OpenOptions { write: false, ..OpenOptions::new(io) };
    let geometry = geometry(&file, is_block, size_bytes, &options, &name)?;
    let held = Locked::by_nobody(file.try_clone().map_err(explain)?);
    let (queue_depth, wait) = (1, Wait::default());
    let file = OpenFile { file, name, geometry, queue_depth, wait, held, _under: None };
    Ok(Arc::new(FileDevice::new(file)))
}
