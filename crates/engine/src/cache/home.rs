//! Where a setting puts the disk cache: a directory, or a device that was made for it.

use crate::cache::files::Directory;
use crate::cache::medium::Medium;
use crate::cache::region::Region;
use penstock_base::door::setting;
use penstock_base::{Error, Kind, Result, Settings};
use penstock_device::address::{Address, Place, strip_scheme};
use penstock_device::volume::Asked;
use penstock_device::{Discipline, Port, peek};
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};

/// How the directory is called that is made and removed again to see whether that can be done.
const TRIAL: &str = ".penstock-trial-";
/// Longest name where the file system does not tell.
const NAME_BYTES_MAX: u64 = 255;
/// Longest path that Linux takes, with the zero at its end.
const PATH_BYTES_MAX: usize = 4096;
/// Room for the names of the cache's own files below its directory.
const FILE_BYTES_MAX: usize = 128;

/// A place for a disk cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// Made if need be.
    Directory(PathBuf),
    /// Never made: see `penstock nvme format --cache`.
    Device(DeviceHome),
}

/// A device, and how it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceHome {
    path: PathBuf,
    asked: Asked,
}

fn wrong(setting: &str, message: impl Into<String>, hint: impl Into<String>) -> Error {
    Error::new(Kind::Invalid, message)
        .with_operation("open the disk cache")
        .with_object(setting)
        .with_hint(hint)
}

impl Home {
    /// What `cache_dir` names. `~` is the home directory, as in DuckDB's own paths.
    ///
    /// # Errors
    /// `Invalid` for a URL of another kind, which would name a directory of an odd name, and for
    /// what is wrong with that of a device, or with the settings of devices.
    pub fn of(settings: &Settings) -> Result<Self> {
        let setting = settings.cache_dir.as_str();
        if strip_scheme(setting).is_some() {
            return DeviceHome::of(settings).map(Home::Device);
        }
        let home = || std::env::var_os("HOME").map(PathBuf::from);
        let path = match setting.strip_prefix('~') {
            Some("") => home(),
            Some(rest) => rest.strip_prefix('/').and_then(|rest| Some(home()?.join(rest))),
            None if setting.contains("://") => None,
            None => Some(PathBuf::from(setting)),
        };
        path.map(Home::Directory).ok_or_else(|| {
            let hint = "Write its path out, such as /var/cache/penstock, or name a device as \
                        nvme:///dev/ng0n1";
            wrong(setting, "this is no local directory", hint)
        })
    }

    /// Where a directory is, or is to be; none for a device.
    pub fn directory(self) -> Option<PathBuf> {
        match self {
            Home::Directory(path) => Some(path),
            Home::Device(_) => None,
        }
    }

    /// The one path of all that lead to it. A directory is made.
    ///
    /// # Errors
    /// `Invalid` when it cannot be made or is not there, with the reason.
    pub fn real_path(&self) -> Result<PathBuf> {
        match self {
            Home::Directory(path) => Directory::make(path),
            Home::Device(device) => device.path.canonicalize().map_err(|error| {
                let name = device.path.display();
                let size = if device.path.starts_with("/dev") { "" } else { " --size 10GiB" };
                let hint = format!("Make one with `penstock nvme format --cache {name}{size}`");
                wrong(&name.to_string(), format!("there is no such device: {error}"), hint)
            }),
        }
    }

    /// Whether it could be made and filled, before it is used: nothing is left of the trial.
    ///
    /// # Errors
    /// `Invalid` where a file or a link that leads nowhere is in the way, for a directory in which
    /// none can be made, and for a name that is too long; where there is no such device, and where
    /// that was not made a cache; as [`peek`] for what is no device.
    pub fn check(&self) -> Result<()> {
        match self {
            Home::Directory(path) => check_directory(path),
            Home::Device(device) => device.check(&self.real_path()?),
        }
    }

    /// Takes it for this process.
    ///
    /// # Errors
    /// `Invalid` when it cannot be used, or another process uses it, with the reason.
    pub(super) fn hold(&self, real_path: &Path) -> Result<Box<dyn Medium>> {
        match self {
            Home::Directory(_) => Ok(Box::new(Directory::hold(real_path)?)),
            Home::Device(device) => Ok(Box::new(Region::hold(device.port(real_path)?)?)),
        }
    }
}

/// A number that no other trial has: each hasher has other keys.
fn chance() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

/// Tries what making and filling a directory needs. Rights alone do not tell: some file systems
/// take no directories from anybody.
fn check_directory(path: &Path) -> Result<()> {
    let here = Path::new(".");
    let is_there = |it: &&Path| *it != Path::new("") && it.symlink_metadata().is_ok();
    let nearest = path.ancestors().find(is_there).unwrap_or(here);
    let hint = "Name a directory that this user may make and write to";
    let is_no = |what: &str| {
        wrong(&path.display().to_string(), format!("{} {what}", nearest.display()), hint)
    };
    let leads_to = nearest.metadata().map_err(|_| is_no("is a link that leads nowhere"))?;
    if !leads_to.is_dir() {
        return Err(is_no("is no directory"));
    }
    let unwritable = |error: std::io::Error| is_no(&format!("cannot be written to ({error})"));
    let trial = nearest.join(format!("{TRIAL}{:016x}", chance()));
    std::fs::create_dir(&trial).and_then(|()| std::fs::remove_dir(&trial)).map_err(unwritable)?;
    let most = rustix::fs::statvfs(nearest).map_or(NAME_BYTES_MAX, |system| system.f_namemax);
    let missing = path.strip_prefix(nearest).unwrap_or(path);
    let longest = missing.components().map(|it| it.as_os_str().len() as u64).max();
    match longest.filter(|longest| *longest > most) {
        Some(longest) => {
            let why = format!("takes names of at most {most} bytes, and one here has {longest}");
            Err(is_no(&why))
        }
        None if path.as_os_str().len() + FILE_BYTES_MAX > PATH_BYTES_MAX => {
            Err(is_no("is the beginning of a path that is too long"))
        }
        None => Ok(()),
    }
}

impl DeviceHome {
    /// What the URL does not say, the settings of devices do.
    fn of(settings: &Settings) -> Result<Self> {
        let setting = settings.cache_dir.as_str();
        let named = |error: Error| error.with_operation("open the disk cache");
        let Address { device: path, place, asked } = Address::parse(setting).map_err(named)?;
        if place != Place::Volume {
            let hint = format!("Leave db and temp out: nvme://{}", path.display());
            return Err(wrong(setting, "a cache has a device of its own, no part of one", hint));
        }
        Ok(DeviceHome { path, asked: asked.or(Asked::from_settings(settings)?) })
    }

    /// Checks that it was made a cache. Another process may hold it meanwhile.
    fn check(&self, real_path: &Path) -> Result<()> {
        let device = peek(real_path, self.asked.io.unwrap_or_default())?;
        Region::check(&Port::new(device, Discipline::Single)?)
    }

    /// Opens the device: nobody else may have it.
    fn port(&self, real_path: &Path) -> Result<Port> {
        let opened = self.asked.open(real_path, true, None);
        let (_, device) = opened.map_err(|error| match error.kind() {
            Kind::Conflict => {
                error.with_note(format!("give each process its own {}", setting("cache_dir")))
            }
            _ => error.with_note(format!("the disk cache that {} names", setting("cache_dir"))),
        })?;
        Port::new(device, self.asked.discipline())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_device::{Io, IoChoice, Wait};

    fn of(cache_dir: &str) -> Result<Home> {
        Home::of(&Settings { cache_dir: cache_dir.into(), ..Settings::default() })
    }

    #[test]
    fn a_directory_is_checked_and_not_made() {
        let dir = std::env::temp_dir().join(format!("penstock-home-{}", std::process::id()));
        let told = |path: PathBuf| Home::Directory(path).check().map_err(|error| error.kind());
        assert_eq!(told(dir.join("a/b")), Ok(()));
        assert!(!dir.exists());
        assert_eq!(told("a-cache-of-a-test".into()), Ok(()));
        assert_eq!(told("/dev/null/cache".into()), Err(Kind::Invalid));
        for odd in ["/proc/x", "/proc/self/x", "/sys/x", &format!("/{}", "d/".repeat(2100))] {
            assert_eq!(told(odd.into()), Err(Kind::Invalid), "{odd}");
        }
        std::fs::create_dir(&dir).unwrap();
        std::os::unix::fs::symlink(dir.join("nothing"), dir.join("link")).unwrap();
        for odd in ["link".to_string(), "link/a".to_string(), "n".repeat(256)] {
            assert_eq!(told(dir.join(&odd)), Err(Kind::Invalid), "{odd}");
        }
        assert_eq!(told(dir.join("n".repeat(255))), Ok(()));
        std::os::unix::fs::symlink(&dir, dir.join("itself")).unwrap();
        assert_eq!(told(dir.join("itself/itself/new")), Ok(()));
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 2, "nothing is left of the trial");
        std::fs::remove_dir_all(&dir).unwrap();
        assert!(of("nvme:///dev/no-such-device").unwrap().check().is_err());
    }

    #[test]
    fn a_device_is_checked_and_may_be_in_use() {
        let dir = std::env::temp_dir().join(format!("penstock-home-device-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let check = |path: &Path, how: &str| {
            let home = of(&format!("nvme://{}{how}", path.display())).unwrap();
            home.check().map_err(|error| error.to_string())
        };
        let image = dir.join("cache.img");
        std::fs::write(&image, "").unwrap();
        let empty = check(&image, "").unwrap_err();
        assert!(empty.contains("less than one block"), "{empty}");
        std::fs::File::options().write(true).open(&image).unwrap().set_len(64 << 20).unwrap();
        let unmade = check(&image, "").unwrap_err();
        assert!(unmade.contains("Make one with `penstock nvme format --cache"), "{unmade}");
        let home = of(&format!("nvme://{}?io=file", image.display())).unwrap();
        let Home::Device(device) = &home else { unreachable!("it is a device") };
        crate::cache::format_device(&device.port(&image).unwrap(), false).unwrap();
        let before = std::fs::read(&image).unwrap();
        let in_use = home.hold(&image).unwrap();
        for how in ["", "?io=file", "?io=direct", "?io=uring&queues=pool"] {
            assert_eq!(check(&image, how), Ok(()), "{how}");
        }
        drop(in_use);
        assert!(std::fs::read(&image).unwrap() == before, "nothing was written");
        let error = check(&image, "?io=ioctl").unwrap_err();
        assert!(error.contains("no NVMe device for commands"), "{error}");
        for (path, how, reason) in [
            (Path::new("/dev/null"), "", "no NVMe device for commands"),
            (Path::new("/dev/null"), "?io=file", "neither a file nor a block device"),
            (&dir, "", "a directory is no device for blocks"),
        ] {
            let error = check(path, how).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn directories_and_devices_are_told_apart() {
        assert_eq!(of("/var/c").unwrap(), Home::Directory("/var/c".into()));
        let Home::Device(device) = of("NVMe:///dev/ng0n1?io=ioctl&queues=pool&wait=sleep").unwrap()
        else {
            unreachable!("it is a device")
        };
        assert_eq!(device.path, Path::new("/dev/ng0n1"));
        let (io, discipline) = (Some(IoChoice::By(Io::Ioctl)), Some(Discipline::Pool));
        let (queue_depth, wait) = (Some(32), Some(Wait::Sleep));
        assert_eq!(device.asked, Asked { io, discipline, queue_depth, wait });
    }

    #[test]
    fn what_the_url_of_a_device_leaves_open_the_settings_say() {
        let cache_dir = "nvme:///d?queues=pool".to_string();
        let mut settings = Settings { cache_dir, ..Settings::default() };
        for (name, value) in [
            ("nvme_io", "direct"),
            ("nvme_queues", "single"),
            ("nvme_queue_depth", "8"),
            ("nvme_wait", "poll"),
        ] {
            settings.set(name, value).unwrap();
        }
        let Ok(Home::Device(device)) = Home::of(&settings) else { unreachable!("it is a device") };
        let (io, discipline) = (Some(IoChoice::By(Io::Direct)), Some(Discipline::Pool));
        let (queue_depth, wait) = (Some(8), Some(Wait::Poll));
        assert_eq!(device.asked, Asked { io, discipline, queue_depth, wait });
        settings.nvme_io = "urin".into();
        assert!(Home::of(&settings).unwrap_err().hint().unwrap().contains("uring"));
    }

    #[test]
    fn a_device_may_be_called_as_no_volume_is() {
        for name in ["/x.wal", "/duckdb_temp_x"] {
            let Ok(Home::Device(device)) = of(&format!("nvme://{name}")) else { panic!("{name}") };
            assert_eq!(device.path, Path::new(name));
        }
    }

    #[test]
    fn what_is_wrong_is_told() {
        for (setting, told) in [
            ("s3://bucket/cache", "local directory"),
            ("nvme://", "names no device"),
            ("nvme:///d?io=urin", "Did you mean uring"),
            ("nvme:///d?queue=pool", "Did you mean queues"),
            ("nvme:///d?db=sales", "a device of its own"),
        ] {
            let error = of(setting).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid);
            assert!(error.to_string().contains(told), "{error}");
        }
        let gone = of("nvme:///dev/no-such-device").unwrap().real_path().unwrap_err();
        assert!(gone.hint().unwrap().ends_with("format --cache /dev/no-such-device`"), "{gone}");
        let gone = of("nvme:///no/such/file").unwrap().real_path().unwrap_err();
        assert!(gone.hint().unwrap().ends_with("--cache /no/such/file --size 10GiB`"), "{gone}");
    }
}
