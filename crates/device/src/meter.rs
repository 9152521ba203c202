//! What queues count: commands, bytes, commands in flight, and how long each took. It decides what
//! is counted and what becomes of it when a queue goes; the names are rows of
//! [`DeviceMetric::ALL`].
//!
//! Only who holds a queue writes its meter, so nothing is locked and no addition is atomic; anybody
//! may look. A queue that is closed leaves its counts with its device.

use crate::device::Command;
use penstock_base::histogram::bucket;
use penstock_base::{DeviceMetric, Histogram, Result};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Upper bounds of the buckets of [`DeviceMetric::Latency`]: from memory (1 us) to a device that
/// hangs (8 s).
pub const BOUNDS: &[Duration] = &{
    let mut bounds = [Duration::ZERO; 24];
    let mut index = 0;
    while index < bounds.len() {
        bounds[index] = Duration::from_micros(1 << index);
        index += 1;
    }
    bounds
};

const CELLS: usize = DeviceMetric::ALL.len();
const BUCKETS: usize = BOUNDS.len() + 1;

/// The counts of one queue.
#[derive(Debug)]
pub struct Meter {
    cells: [AtomicU64; CELLS],
    buckets: [AtomicU64; BUCKETS],
    /// Finer than the microseconds that are shown: most commands to memory take less than one.
    nanos: AtomicU64,
}

impl Default for Meter {
    fn default() -> Self {
        Meter {
            cells: std::array::from_fn(|_| AtomicU64::new(0)),
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
            nanos: AtomicU64::new(0),
        }
    }
}

/// There is one writer at a time, who holds the queue.
fn add(cell: &AtomicU64, amount: u64) {
    cell.store(cell.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

impl Meter {
    fn cell(&self, metric: DeviceMetric) -> &AtomicU64 {
        &self.cells[metric as usize]
    }

    /// So many commands are with the device now.
    pub(crate) fn in_flight(&self, commands: usize) {
        let commands = commands as u64;
        self.cell(DeviceMetric::InFlightNow).store(commands, Ordering::Relaxed);
        let most = self.cell(DeviceMetric::InFlightMost);
        if commands > most.load(Ordering::Relaxed) {
            most.store(commands, Ordering::Relaxed);
        }
    }

    /// A command has ended, `took` after the device got it.
    pub(crate) fn ended(&self, command: &Command<'_>, took: Duration, is_good: bool) {
        let (count, bytes) = match command {
            Command::Read { .. } => (DeviceMetric::Reads, Some(DeviceMetric::BytesRead)),
            Command::Write { .. } => (DeviceMetric::Writes, Some(DeviceMetric::BytesWritten)),
            Command::Flush => (DeviceMetric::Flushes, None),
            Command::Trim { .. } => (DeviceMetric::Trims, None),
        };
        add(self.cell(count), 1);
        if let Some(bytes) = bytes {
            add(self.cell(bytes), command.length_bytes());
        }
        if !is_good {
            add(self.cell(DeviceMetric::Errors), 1);
        }
        add(&self.nanos, took.as_nanos() as u64);
        add(&self.buckets[bucket(BOUNDS, took)], 1);
    }

    /// Carries out commands one after the other until one fails. The clock is read once for each,
    /// and once before.
    pub(crate) fn one_by_one(
        &self,
        commands: &mut [Command<'_>],
        mut job: impl FnMut(&mut Command<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut begun = Instant::now();
        for command in commands {
            self.in_flight(1);
            let outcome = job(command);
            let now = Instant::now();
            self.in_flight(0);
            self.ended(command, now - begun, outcome.is_ok());
            begun = now;
            outcome?;
        }
        Ok(())
    }

    pub(crate) fn reading(&self) -> Reading {
        let load = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        let mut values = [0; CELLS];
        values.iter_mut().zip(&self.cells).for_each(|(value, cell)| *value = load(cell));
        let counts: Vec<u64> = self.buckets.iter().map(load).collect();
        let mut latency = Histogram::new(BOUNDS);
        latency.add(&counts, Duration::from_nanos(load(&self.nanos)));
        Reading { values, latency }
    }
}

/// What a queue, or several together, have counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    values: [u64; CELLS],
    /// The times of all commands.
    pub latency: Histogram,
}

impl Default for Reading {
    fn default() -> Self {
        Reading { values: [0; CELLS], latency: Histogram::new(BOUNDS) }
    }
}

impl Reading {
    /// One count; of [`DeviceMetric::Latency`] the number of commands.
    pub fn get(&self, metric: DeviceMetric) -> u64 {
        match metric {
            DeviceMetric::TimeMicros => self.latency.sum().as_micros() as u64,
            DeviceMetric::Latency => self.latency.count(),
            other => self.values[other as usize],
        }
    }

    fn add(&mut self, other: &Reading) {
        for (metric, ..) in DeviceMetric::ALL {
            let (into, value) =
                (&mut self.values[*metric as usize], other.values[*metric as usize]);
            match metric {
                DeviceMetric::InFlightMost => *into = value.max(*into),
                _ => *into += value,
            }
        }
        let counts: Vec<u64> = other.latency.buckets().map(|(_, count)| count).collect();
        self.latency.add(&counts, other.latency.sum());
    }
}

/// The queues of one device.
#[derive(Debug, Default)]
struct Row {
    live: BTreeMap<u64, Arc<Meter>>,
    next: u64,
    closed: Option<Reading>,
}

/// By the names of the devices. A device that is opened again goes on with its row.
static DEVICES: Mutex<BTreeMap<String, Row>> = Mutex::new(BTreeMap::new());

/// Rows are changed in single steps.
fn devices() -> MutexGuard<'static, BTreeMap<String, Row>> {
    DEVICES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts what is no single queue's: it goes to what the device's closed queues counted.
pub(crate) fn note(device: &str, metric: DeviceMetric, amount: u64) {
    let mut devices = devices();
    let closed = &mut devices.entry(device.to_string()).or_default().closed;
    closed.get_or_insert_default().values[metric as usize] += amount;
}

/// A meter in the list of all; its counts stay with the device when it goes.
#[derive(Debug)]
pub(crate) struct Listed {
    device: String,
    number: u64,
    meter: Arc<Meter>,
}

impl Listed {
    pub(crate) fn new(device: &str) -> Self {
        let mut devices = devices();
        let row = devices.entry(device.to_string()).or_default();
        let (number, meter) = (row.next, Arc::<Meter>::default());
        row.next += 1;
        row.live.insert(number, meter.clone());
        Listed { device: device.to_string(), number, meter }
    }

    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut devices = devices();
        if let Some(row) = devices.get_mut(&self.device)
            && row.live.remove(&self.number).is_some()
        {
            row.closed.get_or_insert_default().add(&self.meter.reading());
        }
    }
}

/// What one queue of a device has counted, or all that are closed.
#[derive(Clone, Debug)]
pub struct QueueReading {
    /// How errors call the device.
    pub device: String,
    /// The queue's number among those of its device; `None` for all that are closed.
    pub queue: Option<u64>,
    /// What it counted.
    pub reading: Reading,
}

/// What all queues of the process have counted, by device; and their sum.
pub fn readings() -> (Reading, Vec<QueueReading>) {
    let mut queues = Vec::new();
    let mut sum = Reading::default();
    for (device, row) in devices().iter() {
        let live = row.live.iter().map(|(number, meter)| (Some(*number), meter.reading()));
        let closed = row.closed.iter().map(|reading| (None, reading.clone()));
        for (queue, reading) in live.chain(closed) {
            sum.add(&reading);
            queues.push(QueueReading { device: device.clone(), queue, reading });
        }
    }
    (sum, queues)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Failure, Image, ModelDevice};
    use crate::{Device, Discipline, Geometry, Ownership, Port, Queue};

    /// A device under another name, so that tests do not meet in the list.
    struct Named(ModelDevice, &'static str);

    impl Device for Named {
        fn name(&self) -> &str {
            self.1
        }

        fn geometry(&self) -> &Geometry {
            self.0.geometry()
        }

        fn open_queue(&self, ownership: Ownership) -> Result<Box<dyn Queue>> {
            self.0.open_queue(ownership)
        }
    }

    fn of(device: &str) -> Vec<QueueReading> {
        readings().1.into_iter().filter(|queue| queue.device == device).collect()
    }

    #[test]
    fn commands_are_counted_by_queue_and_stay_when_it_closes() {
        let model = ModelDevice::new(512, 1024, Image::default()).expect("the sizes are right");
        model.fail(5..6, Failure::Failing);
        let port = Port::new(Arc::new(Named(model, "counted")), Discipline::Thread);
        let port = port.expect("the model has queues");
        let length = 2 * port.geometry().transfer_max_bytes as usize;
        port.write(0, &vec![1; length]).expect("writes");
        port.flush().expect("flushes");
        let read = || {
            port.read(0, &mut vec![0; length]).expect("reads");
            let numbers: Vec<_> = of("counted").iter().map(|queue| queue.queue).collect();
            assert_eq!(numbers, [Some(0), Some(1)], "a queue for each thread");
        };
        std::thread::scope(|scope| scope.spawn(read).join().expect("no panic"));
        port.trim(0, 1).expect_err("the sixth command fails");
        let found = of("counted");
        let numbers: Vec<_> = found.iter().map(|queue| queue.queue).collect();
        assert_eq!(numbers, [Some(0), None], "the other thread is gone");
        assert_eq!(found[0].reading.get(DeviceMetric::Reads), 0);
        assert_eq!(found[1].reading.get(DeviceMetric::Reads), 2);
        drop(port);
        let found = of("counted");
        assert_eq!((found.len(), found[0].queue), (1, None));
        let closed = &found[0].reading;
        use DeviceMetric as M;
        let counts =
            [M::Reads, M::Writes, M::Flushes, M::Trims, M::Errors].map(|it| closed.get(it));
        assert_eq!(counts, [2, 2, 1, 1, 1]);
        let bytes = [M::BytesRead, M::BytesWritten].map(|it| closed.get(it));
        assert_eq!(bytes, [length as u64; 2]);
        let others = [M::InFlightNow, M::InFlightMost, M::Latency].map(|it| closed.get(it));
        assert_eq!(others, [0, 1, 6]);
        assert!(readings().0.get(DeviceMetric::Reads) >= 2);
    }

    #[test]
    fn the_bounds_rise() {
        assert!(BOUNDS.is_sorted() && BOUNDS[0] == Duration::from_micros(1));
    }
}
