//! A device under examination, whole or the first blocks of it.

use penstock_base::Result;
use penstock_device::{Device, Discipline, Geometry, Ownership, Port, Queue};
use std::any::Any;
use std::sync::Arc;

/// Logical blocks of every device in the exam.
pub const BLOCKS: u64 = 512;

/// A fresh device, and what goes with it.
pub struct Subject {
    pub device: Arc<dyn Device>,
    _guard: Box<dyn Any>,
}

impl Subject {
    /// Examines a device, and keeps something as long as that takes.
    pub fn new(device: Arc<dyn Device>, guard: impl Any) -> Self {
        Subject { device, _guard: Box::new(guard) }
    }

    /// Examines the first blocks of a device.
    pub fn head(device: Arc<dyn Device>) -> Self {
        Subject::new(Arc::new(Head::of(device)), ())
    }

    pub fn port(&self, discipline: Discipline) -> Port {
        Port::new(self.device.clone(), discipline).expect("the device has queues")
    }
}

/// The first blocks of a larger device, so that the exam need not write all of it.
pub struct Head {
    device: Arc<dyn Device>,
    geometry: Geometry,
}

impl Head {
    /// Clears the blocks first.
    pub fn of(device: Arc<dyn Device>) -> Self {
        let geometry = Geometry { block_count: BLOCKS, ..device.geometry().clone() };
        let head = Head { device, geometry };
        let zeros = vec![0; head.geometry.size_bytes() as usize];
        let port = Port::new(head.device.clone(), Discipline::Single).expect("it has queues");
        port.write(0, &zeros).expect("it can be cleared");
        head
    }
}

impl Device for Head {
    fn name(&self) -> &str {
        self.device.name()
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn open_queue(&self, ownership: Ownership) -> Result<Box<dyn Queue>> {
        self.device.open_queue(ownership)
    }
}
