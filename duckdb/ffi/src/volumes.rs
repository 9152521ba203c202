//! Files on volumes by name: what a URL means, whether it is there, removing, moving.

use crate::abi::{PsPair, PsStr, free, give, handle, pairs};
use crate::engine::{PsEngine, with_pairs};
use crate::error::{PsError, guarded};
use crate::rows::PsRows;
use penstock_base::{Error, Kind, Result, Settings};
use penstock_device::address::{Address, NO_DIRECTORIES, Place, SPILLED_BEGIN, check_name};
use penstock_device::volume::{Asked, SharedVolume, TEMP_PREFIX, Volume, Wish};
use penstock_engine::{Budget, Engine};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Instances of this process, so that their temporary files have names of their own.
static INSTANCES: AtomicU64 = AtomicU64::new(0);

/// What one database instance asks of volumes, given to the caller.
pub struct PsVolumes {
    settings: Settings,
    engine: Weak<Engine>,
    /// What answers for the memory of the volumes that it opens.
    budget: Arc<Budget>,
    instance: u64,
    process: u32,
    /// The volumes on which it spills. A file of a directory is closed and opened again while it
    /// holds bytes, so the directory keeps the volume open.
    spills: Mutex<BTreeMap<Directory, SharedVolume>>,
}

/// A directory for spilling: its device as its URL has it, and the prefix of all its files.
pub(crate) type Directory = (PathBuf, String);

/// A file as its URL and the settings describe it.
pub(crate) struct Target {
    pub device: PathBuf,
    pub name: String,
    /// The name that it is to get, if COPY writes it to put it in the place of another file.
    pub to_replace: Option<String>,
    wish: Wish,
    budget: Arc<Budget>,
    /// The volume, if it is known without a look at the device: DuckDB asks of each block that it
    /// frees whether there is a file of it where it spills.
    spill: Option<SharedVolume>,
}

impl Target {
    /// Opens the volume, or joins those who have it open.
    pub fn join(&self) -> Result<SharedVolume> {
        match &self.spill {
            Some(volume) => Ok(volume.clone()),
            None => joined(&self.device, &self.wish, &self.budget),
        }
    }

    /// As [`SharedVolume::peek`].
    pub fn peek<T>(&self, look: impl FnOnce(&Arc<Volume>) -> Result<T>) -> Result<T> {
        match &self.spill {
            Some(volume) => look(volume),
            None => SharedVolume::peek(&self.device, &self.wish, look),
        }
    }

    /// The error of who reads the file and finds another in its place.
    pub fn replaced(&self) -> Error {
        Error::new(Kind::Conflict, "it was replaced while it was read")
            .with_operation("volume read")
            .with_object(format!("{}?db={}", self.device.display(), self.name))
            .with_hint("Run the statement again")
    }

    /// Whether the process has the device open.
    pub fn is_open(&self) -> bool {
        self.spill.is_some() || SharedVolume::is_open(&self.device)
    }
}

/// As [`SharedVolume::join`], with somebody who answers for the volume's memory.
fn joined(device: &Path, wish: &Wish, budget: &Arc<Budget>) -> Result<SharedVolume> {
    let volume = SharedVolume::join(device, wish)?;
    budget.answer_for(&volume);
    Ok(volume)
}

impl PsVolumes {
    pub(crate) fn spills(&self) -> MutexGuard<'_, BTreeMap<Directory, SharedVolume>> {
        self.spills.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The volume that a directory keeps open. None in a child of a fork: a thread that it has not
    /// may have held the lock.
    fn spill(&self, directory: &Directory) -> Option<SharedVolume> {
        if self.process != std::process::id() {
            return None;
        }
        self.spills().get(directory).cloned()
    }

    /// A directory by its name.
    pub(crate) fn directory(&self, device: &Path, name: &str) -> Directory {
        (device.to_path_buf(), format!("{TEMP_PREFIX}{}/{name}/", self.instance))
    }

    /// Opens a volume, or joins those who have it open.
    pub(crate) fn join(&self, device: &Path, wish: &Wish) -> Result<SharedVolume> {
        joined(device, wish, &self.budget)
    }

    /// How a volume is opened with these settings. Their limits hold where no statement has said
    /// otherwise: what spills has none that is known.
    pub(crate) fn wish(&self, asked: Asked, settings: &Settings, write: bool) -> Result<Wish> {
        if let Some(engine) = self.engine.upgrade() {
            engine.adopt_before_statements(settings);
        }
        Ok(Wish { write, asked, otherwise: Asked::from_settings(settings)? })
    }

    pub(crate) fn target(&self, at: &At, write: bool) -> Result<Target> {
        let Address { device, place, asked } = &at.address;
        let wish = self.wish(*asked, &at.settings, write)?;
        let (mut spill, mut to_replace) = (None, None);
        let name = match place {
            Place::Database(name) => {
                to_replace = Address::to_replace(&at.url);
                name.clone()
            }
            Place::Temp { file: Some(file), .. } if !file.starts_with(SPILLED_BEGIN) => {
                // Whoever wrote it would look for it later in vain.
                let message = "only what DuckDB spills lies there, which is gone when it is closed";
                return Err(at.error(Kind::Invalid, message).with_hint(NO_DIRECTORIES));
            }
            Place::Temp { directory, file: Some(file) } => {
                let directory = self.directory(device, directory);
                spill = self.spill(&directory);
                directory.1 + file
            }
            Place::Temp { file: None, .. } => {
                return Err(at.error(Kind::Invalid, "it is a directory for spilling, no file"));
            }
            Place::Volume => return Err(at.missing_name(&wish)),
        };
        let (device, budget) = (device.clone(), self.budget.clone());
        Ok(Target { device, name, to_replace, wish, budget, spill })
    }
}

/// What every verb is given: a URL and the settings in force.
pub(crate) struct At {
    pub url: String,
    pub address: Address,
    pub settings: Settings,
}

impl At {
    /// # Safety
    /// The handle came from this library, text and pairs are readable.
    pub(crate) unsafe fn new<'a>(
        volumes: *const PsVolumes,
        url: PsStr,
        settings: *const PsPair,
        count: usize,
    ) -> Result<(&'a PsVolumes, Self)> {
        // SAFETY: passed on from the caller.
        unsafe { Self::parsed(volumes, url, settings, count, Address::parse) }
    }

    /// # Safety
    /// As [`At::new`].
    unsafe fn parsed<'a>(
        volumes: *const PsVolumes,
        url: PsStr,
        settings: *const PsPair,
        count: usize,
        parse: fn(&str) -> Result<Address>,
    ) -> Result<(&'a PsVolumes, Self)> {
        // SAFETY: passed on from the caller.
        let (volumes, url, changed) = unsafe {
            (
                handle(volumes, "volumes")?,
                url.text("the URL")?,
                pairs(settings, count, "a setting")?,
            )
        };
        let settings = with_pairs(volumes.settings.clone(), &changed)?;
        Ok((volumes, At { url: url.to_string(), address: parse(url)?, settings }))
    }

    pub(crate) fn error(&self, kind: Kind, message: impl Into<String>) -> Error {
        Error::new(kind, message).with_operation("volume address").with_object(&self.url)
    }

    /// The error of a URL without a database tells which there are.
    fn missing_name(&self, wish: &Wish) -> Error {
        let found = SharedVolume::peek(&self.address.device, wish, |it| Ok(databases(it)));
        let names = match found {
            Ok(names) => names,
            Err(error) => return error,
        };
        let hint = match names.is_empty() {
            true => "The volume is empty; ?db=sales makes a database of that name".to_string(),
            false => format!("Add ?db= and a new name, or one that is there: {}", names.join(", ")),
        };
        self.error(Kind::Invalid, "it names no database").with_hint(hint)
    }
}

/// The names of the databases on a volume.
pub(crate) fn databases(volume: &Arc<Volume>) -> Vec<String> {
    let names = volume.list().into_iter().map(|file| file.name);
    names.filter(|name| check_name(name, name).is_ok()).collect()
}

/// The device behind links and relative paths.
fn real(at: &At) -> Result<PathBuf> {
    let path = &at.address.device;
    path.canonicalize().map_err(|error| {
        let (kind, hint) = match error.kind() {
            std::io::ErrorKind::NotFound if path.starts_with("/dev") => {
                (Kind::NotFound, "Look at what there is: `lsblk`, `ls /dev/ng*`".to_string())
            }
            std::io::ErrorKind::NotFound => (
                Kind::NotFound,
                format!("`penstock nvme format {} --size 10GiB` makes a file", path.display()),
            ),
            std::io::ErrorKind::PermissionDenied => {
                (Kind::Denied, "Ask for access to it".to_string())
            }
            std::io::ErrorKind::NotADirectory => (Kind::NotFound, NO_DIRECTORIES.to_string()),
            _ => (Kind::Unavailable, "Look at the path".to_string()),
        };
        let error = Error::new(kind, error.to_string()).with_operation("volume open");
        error.with_object(path.display().to_string()).with_hint(hint)
    })
}

/// See the header.
///
/// # Safety
/// The handle came from this library, the out-parameters are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_volumes_new(
    engine: *const PsEngine,
    out: *mut *mut PsVolumes,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let engine = &handle(engine, "engine")?.0;
            let (settings, budget) = (engine.settings().clone(), engine.budget().clone());
            let instance = INSTANCES.fetch_add(1, Ordering::Relaxed);
            let engine = Arc::downgrade(engine);
            let (process, spills) = (std::process::id(), Mutex::default());
            give(out, PsVolumes { settings, engine, budget, instance, process, spills })
        })
    }
    .is_some()
}

/// See the header.
///
/// # Safety
/// `volumes` came from this library, and is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_volumes_free(volumes: *mut PsVolumes) {
    // SAFETY: the caller vouches for it.
    unsafe { free(volumes) }
}

/// See the header.
///
/// # Safety
/// Handles came from this library, text and pairs are readable, the out-parameters are null or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_volume_url(
    volumes: *const PsVolumes,
    url: PsStr,
    settings: *const PsPair,
    count: usize,
    out: *mut *mut PsRows,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let (volumes, at) = At::parsed(volumes, url, settings, count, Address::parse_any)?;
            let device = real(&at)?;
            if at.address.place == Place::Volume {
                volumes.target(&at, false)?;
            }
            // Who opens the files later sees none but the settings of all: what a connection has
            // set for itself goes along in the URL.
            let own = Asked::from_settings(&volumes.settings)?;
            let set = Asked::from_settings(&at.settings)?.unlike(own);
            give(out, PsRows::of_text(at.address.canonical(&device, set)?))
        })
    }
    .is_some()
}

/// See the header.
///
/// # Safety
/// As [`ps_volume_url`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_file_exists(
    volumes: *const PsVolumes,
    url: PsStr,
    settings: *const PsPair,
    count: usize,
    out: *mut bool,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let (volumes, at) = At::new(volumes, url, settings, count)?;
            let target = volumes.target(&at, false)?;
            put(out, target.peek(|volume| Ok(volume.exists(&target.name)))?)
        })
    }
    .is_some()
}

/// Gives a plain value to the caller.
///
/// # Safety
/// `out` is null or writable.
pub(crate) unsafe fn put<T>(out: *mut T, value: T) -> Result<()> {
    if out.is_null() {
        return Err(Error::new(Kind::Internal, "the out-parameter is null"));
    }
    // SAFETY: not null, and the caller vouches for it.
    unsafe { out.write(value) };
    Ok(())
}

/// See the header.
///
/// # Safety
/// As [`ps_volume_url`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_file_remove(
    volumes: *const PsVolumes,
    url: PsStr,
    settings: *const PsPair,
    count: usize,
    was_there: *mut bool,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let (volumes, at) = At::new(volumes, url, settings, count)?;
            let target = volumes.target(&at, true)?;
            match target.join()?.remove(&target.name) {
                Ok(()) => put(was_there, true),
                Err(error) if error.kind() == Kind::NotFound => put(was_there, false),
                Err(error) => Err(error),
            }
        })
    }
    .is_some()
}

/// See the header.
///
/// # Safety
/// As [`ps_volume_url`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_file_move(
    volumes: *const PsVolumes,
    from: PsStr,
    to: PsStr,
    settings: *const PsPair,
    count: usize,
    error: *mut *mut PsError,
) -> bool {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        guarded(error, || {
            let (volumes, at) = At::new(volumes, from, settings, count)?;
            let (_, to) = At::new(volumes, to, settings, count)?;
            let (source, target) = (volumes.target(&at, true)?, volumes.target(&to, true)?);
            if source.device != target.device {
                let message = "a file cannot move to another device";
                return Err(at.error(Kind::Unsupported, message));
            }
            source.join()?.rename(&source.name, &target.name)
        })
    }
    .is_some()
}
