//! Opens NVMe namespaces for commands of our own: finds the block device that belongs to it, claims
//! that, and asks the controller what it is. It decides who may open what; see also `open`.

use crate::errno::{explain, explain_io};
use crate::kernel::ioctl::{NvmeFile, identify, namespace};
use crate::lock::{lock, open_claimed};
use crate::nvme::geometry;
use crate::open::{OpenFile, OpenOptions, queue_depth};
use crate::state::refuse_read_only;
use penstock_base::{Error, Kind, Result};
use rustix::fs::{FileType, OFlags};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Opens `/dev/ngXnY`, or `/dev/nvmeXnY` where `takes_block` says that this will do.
///
/// # Errors
/// As [`crate::open()`].
pub(crate) fn open(path: &Path, options: &OpenOptions, takes_block: bool) -> Result<NvmeFile> {
    let name = path.display().to_string();
    let refuse = |kind, message: &str, hint: &str| {
        let error = Error::new(kind, message).with_operation("device open").with_object(&name);
        Err(error.with_hint(hint))
    };
    if options.block_size_bytes.is_some() {
        return refuse(
            Kind::Invalid,
            "the block size of an NVMe device is its own",
            "Leave the block size out",
        );
    }
    let fail = |error: std::io::Error| explain_io(&error, "device open", &name);
    let block = block_device(path, takes_block)?;
    // Commands of our own pass by mounts and partitions, so the block device is claimed for them.
    let claim = if options.write { OFlags::EXCL } else { OFlags::empty() };
    let mut how = std::fs::OpenOptions::new();
    how.read(true).write(options.write).custom_flags(claim.bits() as i32);
    let block_name = block.display().to_string();
    let held = open_claimed(&block, &how, &block_name)?;
    // They would pass by `blockdev --setro` as well.
    if options.write {
        refuse_read_only(&held, &name)?;
    }
    let held = lock(held, options.write, &name)?;
    let file = how.custom_flags(0).open(path).map_err(fail)?;
    let id = namespace(&file, &name)?;
    if namespace(&held, &block_name)? != id {
        let hint = "Another device took the name meanwhile: open it again";
        return refuse(Kind::Conflict, "it is not the namespace of its block device", hint);
    }
    let controller = identify(&file, id, 1, &name)?;
    let own = identify(&file, id, 0, &name)?;
    let mut geometry = geometry(&controller, &own, kernel_limit(&block), &name)?;
    geometry.is_read_only = !options.write;
    if let Some(asked) = options.transfer_max_bytes {
        geometry.transfer_max_bytes = asked.min(geometry.transfer_max_bytes);
        geometry.check(&name)?;
    }
    let queue_depth = queue_depth(options, &name)?;
    let wait = options.wait;
    let file = OpenFile { file, name, geometry, queue_depth, wait, held, _under: None };
    Ok(NvmeFile { file, namespace: id })
}

/// The block device of a namespace, which may be it itself where `takes_block` says so.
///
/// # Errors
/// `Unsupported` for what is no device of NVMe commands; `NotFound` and `Denied`.
pub(crate) fn block_device(path: &Path, takes_block: bool) -> Result<PathBuf> {
    let name = path.display().to_string();
    let stat = rustix::fs::stat(path).map_err(|errno| explain(errno, "device open", &name))?;
    let real = path.canonicalize();
    let real = real.map_err(|error| explain_io(&error, "device open", &name))?;
    let block = match FileType::from_raw_mode(stat.st_mode) {
        FileType::BlockDevice if takes_block => Some(real),
        FileType::CharacterDevice => block_of(&real),
        _ => None,
    };
    block.ok_or_else(|| {
        Error::new(Kind::Unsupported, "it is no NVMe device for commands")
            .with_operation("device open")
            .with_object(name)
            .with_hint("Name one such as /dev/ng0n1")
    })
}

/// `/dev/ng0n1` goes with `/dev/nvme0n1`.
fn block_of(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?.strip_prefix("ng")?;
    Some(path.with_file_name(format!("nvme{name}")))
}

/// Most bytes that the kernel lets through in one command: it splits none of ours. Memory that
/// begins in the middle of a page takes one segment more than its pages.
fn kernel_limit(block: &Path) -> Option<u32> {
    let name = block.file_name()?.to_str()?;
    let number = |file: &str| -> Option<u32> {
        let text = std::fs::read_to_string(format!("/sys/class/block/{name}/queue/{file}")).ok()?;
        text.trim().parse().ok()
    };
    let bytes = number("max_hw_sectors_kb")?.saturating_mul(1024);
    let segments = number("max_segments")?.saturating_sub(1).saturating_mul(4096);
    Some(bytes.min(segments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_device_is_found_by_its_name() {
        let block = block_of(Path::new("/dev/ng0n1"));
        assert_eq!(block.as_deref(), Some(Path::new("/dev/nvme0n1")));
        assert_eq!(block_of(Path::new("/dev/null")), None);
    }
}
