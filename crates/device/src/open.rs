//! Opens files and block devices: kind, lock, geometry. It decides who may open what, and which
//! numbers the kernel gives; moving bytes is the work of `file` and `kernel::uring`.

use crate::backend::{Backend, XNVME};
use crate::device::{Device, Geometry};
use crate::errno::{explain, explain_io};
use crate::lock::{Locked, check_same, lock, lock_other_name, open_claimed};
use crate::state::refuse_read_only;
use crate::{
    FileDevice, IoctlDevice, PassthroughDevice, UringDevice, Wait, XnvmeDevice, namespace,
};
use penstock_base::{Error, Kind, Result, nearest::nearest};
use rustix::fs::{AtFlags, FileType, OFlags, Stat, StatxFlags};
use rustix::io::Errno;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How bytes reach a file or block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Io {
    /// pread and pwrite through the page cache.
    File,
    /// pread and pwrite past the page cache (O_DIRECT).
    Direct,
    /// io_uring past the page cache, several commands in flight per queue.
    Uring,
    /// NVMe commands by synchronous ioctls, on `/dev/ngXnY` or `/dev/nvmeXnY`.
    Ioctl,
    /// NVMe commands through io_uring, on `/dev/ngXnY`, several in flight per queue.
    Passthrough,
    /// One of libxnvme's backends, by its names; the library is loaded when a device is opened.
    Xnvme(Backend),
}

impl Io {
    /// Every way of our own, its name, and what it is.
    pub const ALL: &'static [(Io, &'static str, &'static str)] = &[
        (Io::File, "file", "pread and pwrite through the page cache"),
        (Io::Direct, "direct", "pread and pwrite past the page cache"),
        (Io::Uring, "uring", "io_uring past the page cache, several commands in flight"),
        (Io::Ioctl, "ioctl", "NVMe commands by ioctl"),
        (Io::Passthrough, "passthrough", "NVMe commands through io_uring, several in flight"),
    ];

    /// Finds a way by its name.
    ///
    /// # Errors
    /// `Invalid`, naming the nearest known one.
    pub fn by_name(name: &str) -> Result<Self> {
        match name.strip_prefix(XNVME) {
            Some(backend) => Backend::parse(backend).map(Io::Xnvme),
            None => by_name("io", name, Self::ALL, &[AUTO, "xnvme:BACKEND"]),
        }
    }

    /// The way for a device whose user named none: NVMe commands where the device takes nothing
    /// else, else io_uring.
    fn for_path(path: &Path) -> Self {
        if is_character_device(path) { Io::Passthrough } else { Io::Uring }
    }
}

/// The name that [`Io::by_name`] takes.
impl fmt::Display for Io {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Io::Xnvme(backend) => write!(f, "{XNVME}{backend}"),
            own => f.write_str(Self::ALL.iter().find(|row| row.0 == *own).map_or("", |row| row.1)),
        }
    }
}

/// The name of the choice that depends on the device.
const AUTO: &str = "auto";

/// What a user names as io.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoChoice {
    /// What suits the device and the kernel best, see [`open_by`].
    #[default]
    Auto,
    /// This one.
    By(Io),
}

impl IoChoice {
    /// Finds a choice by its name.
    ///
    /// # Errors
    /// As [`Io::by_name`].
    pub fn by_name(name: &str) -> Result<Self> {
        if name == AUTO { Ok(IoChoice::Auto) } else { Io::by_name(name).map(IoChoice::By) }
    }
}

/// The name that [`IoChoice::by_name`] takes.
impl fmt::Display for IoChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IoChoice::Auto => f.write_str(AUTO),
            IoChoice::By(io) => io.fmt(f),
        }
    }
}

/// Finds a row by its name; the error lists what there is, with what is found elsewhere.
pub(crate) fn by_name<T: Copy>(
    what: &str,
    name: &str,
    table: &[(T, &str, &str)],
    others: &[&str],
) -> Result<T> {
    if let Some(row) = table.iter().find(|row| row.1 == name) {
        return Ok(row.0);
    }
    let names: Vec<&str> = table.iter().map(|row| row.1).chain(others.iter().copied()).collect();
    let hint = match nearest(name, names.iter().copied()) {
        Some(near) => format!("Did you mean {near}?"),
        None => format!("Known are: {}", names.join(", ")),
    };
    Err(Error::new(Kind::Invalid, format!("there is no {what}={name}")).with_hint(hint))
}

/// What [`open`] is asked for.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// How bytes reach the medium.
    pub io: Io,
    /// Whether writes are allowed. A writer keeps every other opener out, readers only writers.
    pub write: bool,
    /// Makes a file of so many bytes (rounded down to blocks) where there is none.
    pub create_bytes: Option<u64>,
    /// Logical block of a plain file, 4096 if not given. A block device tells its own.
    pub block_size_bytes: Option<u32>,
    /// Most bytes of one command, if less than the device allows.
    pub transfer_max_bytes: Option<u32>,
    /// Most commands in flight per queue, 32 if not given; for io_uring, passthrough and libxnvme.
    pub queue_depth: Option<u32>,
    /// How threads wait for the commands that a ring has; libxnvme is always polled.
    pub wait: Wait,
    /// The libxnvme to load, if not what XNVME_LIBRARY_PATH names, or the system's.
    pub xnvme_library: Option<PathBuf>,
}

impl OpenOptions {
    /// To read and write what is there.
    pub fn new(io: Io) -> Self {
        OpenOptions {
            io,
            write: true,
            create_bytes: None,
            block_size_bytes: None,
            transfer_max_bytes: None,
            queue_depth: None,
            wait: Wait::default(),
            xnvme_library: None,
        }
    }
}

/// Opens a file or a block device and locks it until it is dropped.
///
/// # Errors
/// `NotFound`, `Denied`; `Conflict` if another process has it or it is mounted; `Unsupported` for
/// other kinds of files, where the kernel lacks what `io` needs, and for polling where `io` has
/// nothing to poll; `Invalid` for wrong sizes.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Arc<dyn Device>> {
    options.wait.check(options.io, &path.display().to_string())?;
    let plain = || OpenFile::open(path, options);
    Ok(match options.io {
        Io::File | Io::Direct => Arc::new(FileDevice::new(plain()?)),
        Io::Uring => Arc::new(UringDevice::new(plain()?)?),
        Io::Ioctl => Arc::new(IoctlDevice::new(namespace::open(path, options, true)?)),
        Io::Passthrough => {
            Arc::new(PassthroughDevice::new(namespace::open(path, options, false)?)?)
        }
        Io::Xnvme(backend) => Arc::new(XnvmeDevice::open(path, options, backend)?),
    })
}

/// Opens by the io that was chosen, or by the best that the device and the kernel take: many
/// containers forbid io_uring. Gives the io too; that of `options` counts for nothing.
///
/// # Errors
/// As [`open`].
pub fn open_by(
    path: &Path,
    choice: IoChoice,
    options: &OpenOptions,
) -> Result<(Io, Arc<dyn Device>)> {
    let by = |io| open(path, &OpenOptions { io, ..options.clone() }).map(|device| (io, device));
    let best = match choice {
        IoChoice::Auto => Io::for_path(path),
        IoChoice::By(io) => return by(io),
    };
    match by(best) {
        Err(error) if best == Io::Uring && error.kind() == Kind::Unsupported => {
            // Where that fails too, the first reason says more, and its hint may be this way.
            by(Io::Direct).map_err(|second| match second.message() == error.message() {
                true => error,
                false => error.with_note(format!("and by io=direct: {}", second.message())),
            })
        }
        opened => opened,
    }
}

/// An open and locked file or block device.
#[derive(Debug)]
pub struct OpenFile {
    pub(crate) file: File,
    pub(crate) name: String,
    pub(crate) geometry: Geometry,
    /// Most commands in flight per queue.
    pub(crate) queue_depth: u32,
    /// How threads wait for commands that a ring has.
    pub(crate) wait: Wait,
    /// Holds the lock, on a descriptor of its own: a ring that is closing keeps its file a while.
    /// On a block device it is the one that claims it.
    pub(crate) held: Locked,
    /// The lock on the file under a loop device.
    pub(crate) _under: Option<Locked>,
}

/// Blocks of a plain file, unless asked otherwise.
const BLOCK_SIZE_BYTES: u32 = 4096;
/// Most bytes of a command to a file or block device, unless asked otherwise: DuckDB's block, and
/// beyond it the measured throughput no longer grows.
const TRANSFER_MAX_BYTES: u32 = 256 << 10;
/// Most that may be asked for.
const ASKED_MAX_BYTES: u32 = 1 << 20;

impl OpenFile {
    /// Opens and locks; see [`open`].
    ///
    /// # Errors
    /// As [`open`].
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Self> {
        let name = path.display().to_string();
        let fail = |error: std::io::Error| explain_io(&error, "device open", &name);
        let is_block = match rustix::fs::stat(path) {
            Ok(stat) => check_kind(&stat, &name)?,
            Err(Errno::NOENT) if options.create_bytes.is_some() => false,
            Err(errno) => return Err(explain(errno, "device open", &name)),
        };
        let mut how = std::fs::OpenOptions::new();
        how.read(true).write(options.write);
        // On a block device this claims it: mounted, swap or part of another one is refused.
        let claim = if is_block && options.write { OFlags::EXCL } else { OFlags::empty() };
        how.custom_flags(claim.bits() as i32);
        how.create(options.create_bytes.is_some() && options.write && !is_block);
        let held = open_claimed(path, &how, &name)?;
        if is_block && options.write {
            refuse_read_only(&held, &name)?;
        }
        let held = lock(held, options.write, &name)?;
        let under = lock_other_name(&held, is_block, options.write, &name)?;
        let direct = if options.io == Io::File { OFlags::empty() } else { OFlags::DIRECT };
        let file = how.create(false).custom_flags(direct.bits() as i32).open(path).map_err(fail)?;
        check_same(&held, &file, &name)?;
        let size = |file: &File| -> Result<u64> {
            rustix::fs::seek(file, rustix::fs::SeekFrom::End(0))
                .map_err(|errno| explain(errno, "device size", &name))
        };
        let mut size_bytes = size(&file)?;
        if let (0, Some(bytes), false) = (size_bytes, options.create_bytes, is_block) {
            file.set_len(bytes).map_err(fail)?;
            size_bytes = bytes;
        }
        let geometry = geometry(&file, is_block, size_bytes, options, &name)?;
        let queue_depth = queue_depth(options, &name)?;
        let wait = options.wait;
        Ok(OpenFile { file, name, geometry, queue_depth, wait, held, _under: under })
    }
}

/// Commands in flight per queue, unless asked otherwise.
pub(crate) const QUEUE_DEPTH: u32 = 32;
/// What a ring takes with a buffer each, and more than a device gains from.
const QUEUE_DEPTH_MAX: u32 = 1024;

/// The depth that was asked for, if there is such a one.
pub(crate) fn queue_depth(options: &OpenOptions, name: &str) -> Result<u32> {
    let depth = options.queue_depth.unwrap_or(QUEUE_DEPTH);
    if (1..=QUEUE_DEPTH_MAX).contains(&depth) {
        return Ok(depth);
    }
    let message = format!("a queue depth of {depth} is not between 1 and {QUEUE_DEPTH_MAX}");
    let error = Error::new(Kind::Invalid, message).with_operation("device open");
    Err(error.with_object(name).with_hint("Leave depth out, or write depth=32"))
}

/// Whether a path leads to a device that takes commands only, such as `/dev/ng0n1`.
pub(crate) fn is_character_device(path: &Path) -> bool {
    let kind = rustix::fs::stat(path).map(|stat| FileType::from_raw_mode(stat.st_mode));
    kind.is_ok_and(|kind| kind == FileType::CharacterDevice)
}

/// Whether it is a block device; everything but those and plain files is refused.
pub(crate) fn check_kind(stat: &Stat, name: &str) -> Result<bool> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(false),
        FileType::BlockDevice => Ok(true),
        kind => {
            let what = match kind {
                FileType::Directory => "a directory",
                FileType::Fifo => "a pipe",
                FileType::Socket => "a socket",
                _ => "what is neither a file nor a block device",
            };
            let message = format!("{what} is no device for blocks");
            Err(Error::new(Kind::Unsupported, message)
                .with_operation("device open")
                .with_object(name)
                .with_hint("Name a file or a block device; /dev/ng0n1 takes io=passthrough"))
        }
    }
}

/// The size and the limits of a file or block device, as the kernel reports them.
pub(crate) fn geometry(
    file: &File,
    is_block: bool,
    size_bytes: u64,
    options: &OpenOptions,
    name: &str,
) -> Result<Geometry> {
    let refuse = |message: String, hint: &str| {
        Err(Error::new(Kind::Invalid, message)
            .with_operation("device open")
            .with_object(name)
            .with_hint(hint))
    };
    let mut block_size_bytes = options.block_size_bytes.unwrap_or(BLOCK_SIZE_BYTES);
    let mut can_trim = true;
    if is_block {
        let own = rustix::fs::ioctl_blksszget(file);
        let own = own.map_err(|errno| explain(errno, "device block size", name))?;
        if options.block_size_bytes.is_some_and(|asked| asked != own) {
            let message = format!("the device has blocks of {own} bytes, not {block_size_bytes}");
            return refuse(message, "Leave the block size out: the device tells it");
        }
        block_size_bytes = own;
        can_trim = discard_max_bytes(file).is_some_and(|most| most > 0);
    }
    // What a block device takes at once is the kernel's matter: it cuts what is longer, at less
    // cost.
    let asked = options.transfer_max_bytes.map(|asked| asked.min(ASKED_MAX_BYTES));
    let transfer_max_bytes = asked.unwrap_or(TRANSFER_MAX_BYTES);
    let geometry = Geometry {
        block_size_bytes,
        block_count: size_bytes / u64::from(block_size_bytes.max(1)),
        transfer_max_bytes,
        buffer_alignment_bytes: memory_alignment(file, options.io, block_size_bytes),
        has_volatile_cache: true,
        can_trim,
        is_read_only: !options.write,
    };
    geometry.check(name)?;
    if geometry.block_count == 0 {
        let hint = match is_block || options.create_bytes.is_some() {
            true => "Make it larger, or name a larger one; a volume takes 4 MiB at least",
            false => {
                "If a volume lay in it, it was cut off: restore it from a backup. `penstock nvme \
                 format` makes a new one, with --cache a cache, of an empty file with --size 10GiB"
            }
        };
        return refuse(format!("{size_bytes} bytes are less than one block"), hint);
    }
    Ok(geometry)
}

/// What the kernel wants of addresses in memory: it tells since Linux 6.1; before, a block will do.
fn memory_alignment(file: &File, io: Io, block_size_bytes: u32) -> u32 {
    if io == Io::File {
        return 1;
    }
    let told = match rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) {
        Ok(stat) if stat.stx_dio_mem_align > 0 => stat.stx_dio_mem_align,
        _ => block_size_bytes,
    };
    // zram tells less, and then copies whole pages over what lies behind a part of one.
    if is_zram(file) { told.max(ZRAM_PAGE_BYTES) } else { told }
}

/// What zram copies at once.
const ZRAM_PAGE_BYTES: u32 = 4096;

/// Whether a file is a block device in compressed memory.
fn is_zram(file: &File) -> bool {
    let Ok(stat) = rustix::fs::fstat(file) else { return false };
    let (major, minor) = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    let driver = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}"));
    let name = driver.ok().and_then(|path| path.file_name().map(|it| it.to_owned()));
    name.is_some_and(|name| name.to_string_lossy().starts_with("zram"))
}

/// What a block device discards at once, as the kernel tells in sysfs.
fn discard_max_bytes(file: &File) -> Option<u64> {
    let stat = rustix::fs::fstat(file).ok()?;
    let (major, minor) = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    // A partition has the queue of its disk, one folder up.
    let folder = format!("/sys/dev/block/{major}:{minor}");
    let texts = ["queue", "../queue"].map(|queue| format!("{folder}/{queue}/discard_max_bytes"));
    let text = texts.iter().find_map(|path| std::fs::read_to_string(path).ok())?;
    text.trim().parse().ok()
}
