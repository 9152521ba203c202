//! The device of a verb: what its path may be, and how it is opened.

use crate::args::NvmeDevice;
use crate::output::shown;
use penstock_base::{ByteSize, Error, Kind, Result};
use penstock_device::address::{Address, Place, strip_scheme};
use penstock_device::volume::{Asked, Volume};
use penstock_device::{IoChoice, Port};
use std::path::Path;
use std::sync::Arc;

/// A device, and how it is opened.
pub(super) struct Target<'a> {
    pub(super) path: &'a Path,
    asked: Asked,
}

impl<'a> Target<'a> {
    /// What its flag does not say, the settings do.
    pub(super) fn new(device: &'a NvmeDevice, set: Asked) -> Result<Self> {
        refuse_url(&device.path)?;
        let io = device.io.as_deref().map(IoChoice::by_name).transpose()?;
        Ok(Target { path: &device.path, asked: Asked { io, ..Asked::default() }.or(set) })
    }

    pub(super) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// The name for a line of stdout.
    pub(super) fn shown(&self) -> String {
        shown(&self.name()).into_owned()
    }

    pub(super) fn port(&self, write: bool, create: Option<ByteSize>) -> Result<Port> {
        let (_, device) = self.asked.open(self.path, write, create.map(|size| size.0))?;
        Port::new(device, self.asked.discipline())
    }

    pub(super) fn volume(&self, write: bool) -> Result<Arc<Volume>> {
        Volume::open(self.port(write, None)?)
    }
}

/// Refuses what ATTACH takes: here the path stands alone, and the database in `--db`.
fn refuse_url(path: &Path) -> Result<()> {
    let Some(text) = path.to_str().filter(|text| strip_scheme(text).is_some()) else {
        return Ok(());
    };
    let address = Address::parse(text)?;
    let hint = format!("Name it by its path: {}", shown(&address.device.display().to_string()));
    let hint = match address.place {
        Place::Database(name) => format!("{hint}; the database by --db {}", shown(&name)),
        Place::Temp { .. } | Place::Volume => hint,
    };
    Err(Error::new(Kind::Invalid, "it is a URL, no device")
        .with_object(path.display().to_string())
        .with_hint(hint))
}
