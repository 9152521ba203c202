//! Controllers without what others have: no volatile cache (Identify's VWC) or no deallocation
//! (ONCS). What such a device need not do it is not asked to.

use crate::shadow::{CREATE, EXISTING};
use penstock_base::{DeviceMetric, Result};
use penstock_device::meter::readings;
use penstock_device::model::{Image, ModelDevice};
use penstock_device::volume::{FormatOptions, Volume, format};
use penstock_device::{Device, Discipline, Geometry, Ownership, Port, Queue};
use std::sync::Arc;

/// A device under a name of its own that tells what it has.
struct Bare(ModelDevice, Geometry, String);

impl Device for Bare {
    fn name(&self) -> &str {
        &self.2
    }

    fn geometry(&self) -> &Geometry {
        &self.1
    }

    fn open_queue(&self, ownership: Ownership) -> Result<Box<dyn Queue>> {
        self.0.open_queue(ownership)
    }
}

/// A life of a volume; gives how many flushes and trims the device got.
fn counts(has_volatile_cache: bool, can_trim: bool) -> (u64, u64) {
    let name = format!("bare-{has_volatile_cache}-{can_trim}");
    let model = ModelDevice::new(4096, 8192, Image::default()).expect("the sizes are right");
    let geometry = Geometry { has_volatile_cache, can_trim, ..model.geometry().clone() };
    let device: Arc<dyn Device> = Arc::new(Bare(model, geometry, name.clone()));
    let port = || Port::new(device.clone(), Discipline::Thread).expect("opens");
    format(&port(), FormatOptions::default()).expect("formats");
    for number in 0..3u8 {
        let volume = Volume::open_with_helpers(port()).expect("opens");
        let file = volume.open_file("db", if number == 0 { CREATE } else { EXISTING });
        let file = file.expect("opens");
        file.write_at(&vec![number; 1 << 20], 0).expect("writes");
        file.sync().expect("syncs");
        file.truncate(1 << 19).expect("cuts");
        let mut found = vec![0xff; 1 << 19];
        file.read_at(&mut found, 0).expect("reads");
        assert!(found.iter().all(|byte| *byte == number));
    }
    let (_, queues) = readings();
    let own = || queues.iter().filter(|queue| queue.device == name);
    let sum = |metric| own().map(|queue| queue.reading.get(metric)).sum::<u64>();
    assert_eq!(sum(DeviceMetric::Errors), 0, "{name}");
    (sum(DeviceMetric::Flushes), sum(DeviceMetric::Trims))
}

#[test]
fn a_device_is_asked_for_what_it_has() {
    for (has_cache, can_trim) in [(true, true), (true, false), (false, true), (false, false)] {
        let (flushes, trims) = counts(has_cache, can_trim);
        assert_eq!(flushes > 0, has_cache, "{flushes} flushes, cache: {has_cache}");
        assert_eq!(trims > 0, can_trim, "{trims} trims, can: {can_trim}");
    }
}
