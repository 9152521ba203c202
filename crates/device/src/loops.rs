//! Loop devices and the files under them: the same bytes by two names. It decides which file has to
//! be locked with a loop device, and which file must not be written beside one.

use rustix::fs::{Stat, major, minor};
use std::fs::File;
use std::path::{Path, PathBuf};

/// The file under a loop device, or under a partition of one; none for other devices, and where the
/// file cannot be opened, as in another mount namespace.
pub(crate) fn file_under(device: &Stat) -> Option<File> {
    let number = format!("{}:{}", major(device.st_rdev), minor(device.st_rdev));
    let own = Path::new("/sys/dev/block").join(number);
    let backing = [own.join("loop"), own.join("../loop")].into_iter().find_map(backing)?;
    File::open(backing).ok()
}

/// The loop device over a file.
pub(crate) fn device_over(file: &Stat) -> Option<PathBuf> {
    let devices = std::fs::read_dir("/sys/block").ok()?;
    devices.flatten().find_map(|device| {
        let under = rustix::fs::stat(backing(device.path().join("loop"))?).ok()?;
        let is_it = (under.st_dev, under.st_ino) == (file.st_dev, file.st_ino);
        is_it.then(|| Path::new("/dev").join(device.file_name()))
    })
}

/// What a loop device's folder in sysfs says.
fn backing(folder: PathBuf) -> Option<PathBuf> {
    let path = std::fs::read_to_string(folder.join("backing_file")).ok()?;
    Some(PathBuf::from(path.strip_suffix('\n').unwrap_or(&path)))
}
