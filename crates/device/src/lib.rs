//! Addressed blocks: devices behind one small trait, and the queues through which threads use them.
//!
//! A [`Device`] has a [`Geometry`] and hands out [`Queue`]s; a [`Port`] gives the threads of a
//! process their queues by a [`Discipline`] and cuts what they ask into commands that the device
//! takes. A [`volume::Volume`] keeps the files of databases on a port. Nothing here retries, and
//! nothing here knows objects or stores.

pub mod address;
mod backend;
pub mod buffer;
pub mod device;
mod errno;
pub mod file;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod holes;
mod kernel;
mod lock;
mod loops;
pub mod memory;
pub mod meter;
pub mod model;
mod namespace;
mod nvme;
pub mod open;
mod peek;
pub mod port;
mod process;
pub mod queues;
pub mod split;
mod state;
pub mod volume;
pub mod wait;

pub use backend::Backend;
pub use buffer::AlignedBuffer;
pub use device::{Command, Device, Geometry, Ownership, Queue};
pub use file::FileDevice;
pub use holes::Written;
pub use kernel::heaps::limit_heaps;
pub use kernel::ioctl::IoctlDevice;
pub use kernel::large::{HUGE_PAGE_BYTES, LargeBuffer};
pub use kernel::pages::populate;
pub use kernel::passthrough::PassthroughDevice;
pub use kernel::uring::UringDevice;
pub use kernel::xnvme::XnvmeDevice;
pub use memory::MemoryDevice;
pub use meter::Meter;
pub use open::{Io, IoChoice, OpenOptions, open, open_by};
pub use peek::peek;
pub use port::Port;
pub use queues::Discipline;
pub use wait::Wait;
