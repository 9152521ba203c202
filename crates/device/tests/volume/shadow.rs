//! What a volume must hold, kept beside it: the bytes as they are now, the bytes as they were
//! synced, what was written since, and where trims left nothing to count on.

use penstock_base::Result;
use penstock_device::model::{Dice, Image, ModelDevice};
use penstock_device::volume::{
    Asked, FormatOptions, Lock, OpenFileOptions, SharedVolume, Volume, Wish, format,
};
use penstock_device::{Discipline, Io, OpenOptions, Port, open};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes of every volume in these tests: room for about 2 MiB of files.
pub const VOLUME_BYTES: u64 = 5 << 20;

pub const CREATE: OpenFileOptions = OpenFileOptions { create: true, lock: Lock::None };
pub const EXISTING: OpenFileOptions = OpenFileOptions { create: false, lock: Lock::None };

/// A device with this content, and a port to it.
pub fn device(block_size: u32, image: Image) -> (Arc<ModelDevice>, Port) {
    device_of(VOLUME_BYTES, block_size, image)
}

/// The same of another size.
pub fn device_of(bytes: u64, block_size: u32, image: Image) -> (Arc<ModelDevice>, Port) {
    let blocks = bytes / u64::from(block_size);
    let device = ModelDevice::new(block_size, blocks, image).expect("the sizes are right");
    let device = Arc::new(device);
    let port = Port::new(device.clone(), Discipline::Single).expect("the model has queues");
    (device, port)
}

/// A device with an empty volume.
pub fn formatted(block_size: u32) -> Image {
    formatted_at(VOLUME_BYTES, block_size)
}

/// The same on a device that had this size when it was formatted.
pub fn formatted_at(bytes: u64, block_size: u32) -> Image {
    let (device, port) = device_of(bytes, block_size, Image::default());
    format(&port, FormatOptions::default()).expect("it is empty");
    device.image()
}

/// A volume in a file, which goes with this.
pub struct Disk(pub PathBuf);

impl Disk {
    /// An empty one.
    pub fn new(name: &str, bytes: u64) -> Self {
        let name = format!("penstock-volume-{name}-{}", std::process::id());
        let disk = Disk(std::env::temp_dir().join(name));
        let options = OpenOptions { create_bytes: Some(bytes), ..OpenOptions::new(Io::File) };
        let device = open(&disk.0, &options).expect("makes the file");
        let port = Port::new(device, Discipline::Sync).expect("has queues");
        format(&port, FormatOptions::default()).expect("it is empty");
        disk
    }

    /// Opens it as databases do.
    pub fn open(&self, io: Io, write: bool) -> Result<SharedVolume> {
        let options = OpenOptions { write, ..OpenOptions::new(io) };
        SharedVolume::open(&self.0, &options, Discipline::Thread)
    }

    /// Opens it as a URL asks, for writing.
    pub fn join(&self, asked: Asked) -> Result<SharedVolume> {
        SharedVolume::join(&self.0, &Wish { write: true, asked, otherwise: Asked::default() })
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok();
    }
}

/// Bytes that tell where they came from.
pub fn pattern(length: usize, dice: &mut Dice) -> Vec<u8> {
    let first = dice.roll();
    (0..length as u64).map(|at| (first.wrapping_add(at / 64) | 1) as u8).collect()
}

/// What one file must hold.
#[derive(Clone, Debug, Default)]
pub struct ShadowFile {
    /// As a reader sees it now.
    pub live: Vec<u8>,
    /// As it was synced last.
    pub synced: Vec<u8>,
    /// Written since, at these offsets.
    pub since: Vec<(usize, Vec<u8>)>,
    /// What was trimmed of `live`, and of `synced`: these bytes may be any.
    pub live_any: Ranges,
    pub synced_any: Ranges,
}

/// Ranges of bytes; they may overlap.
#[derive(Clone, Debug, Default)]
pub struct Ranges(Vec<Range<usize>>);

impl Ranges {
    fn take_out(&mut self, out: &Range<usize>) {
        let rest =
            |it: &Range<usize>| [it.start..it.end.min(out.start), it.start.max(out.end)..it.end];
        self.0 = self.0.iter().flat_map(rest).filter(|it| !it.is_empty()).collect();
    }

    fn forget(&self, places: &mut [bool]) {
        for range in &self.0 {
            let end = range.end.min(places.len());
            places[range.start.min(end)..end].fill(false);
        }
    }
}

impl ShadowFile {
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.write_under_way(offset, bytes, false);
        let end = offset + bytes.len();
        if self.live.len() < end {
            self.live.resize(end, 0);
        }
        self.live[offset..end].copy_from_slice(bytes);
        self.live_any.take_out(&(offset..end));
    }

    /// Whole pages of the file inside the range may hold anything from now on, also after a power
    /// cut: what was synced there is no longer needed.
    pub fn trim(&mut self, offset: usize, length: usize) {
        let end = (offset + length).min(self.live.len()) / 4096 * 4096;
        let first = offset.next_multiple_of(4096);
        if first < end {
            self.live_any.0.push(first..end);
            self.synced_any.0.push(first..end);
        }
    }

    /// A write that may have happened: a power cut may leave any of its bytes, but nothing of
    /// blocks that moved.
    pub fn write_under_way(&mut self, offset: usize, bytes: &[u8], blocks_move: bool) {
        let end = offset + bytes.len();
        let moved = if blocks_move { self.moved(offset, end) } else { end..end };
        if self.live.len() < offset {
            self.since.push((self.live.len(), vec![0; offset - self.live.len()]));
        }
        self.since.push((offset, bytes[..moved.start - offset].to_vec()));
        self.since.push((moved.end, bytes[moved.end - offset..].to_vec()));
    }

    /// What of a write goes to other places: whole pages of 16 KiB and more, as far as they were
    /// in the file when it was synced.
    pub fn moved(&self, offset: usize, end: usize) -> Range<usize> {
        let (first, last) = (offset.next_multiple_of(4096), end / 4096 * 4096);
        let known = self.synced.len().next_multiple_of(4096);
        match first + (16 << 10) <= last && first < known {
            true => first..last.min(known),
            false => end..end,
        }
    }

    /// Makes the file longer or shorter; shorter is durable with everything before.
    pub fn truncate(&mut self, size: usize) {
        let is_longer = size > self.live.len();
        self.live.resize(size, 0);
        self.live_any.take_out(&(size..usize::MAX));
        if !is_longer {
            self.sync();
        }
    }

    pub fn sync(&mut self) {
        self.synced = self.live.clone();
        self.synced_any = self.live_any.clone();
        self.since.clear();
    }

    /// Whether a reader may find this now.
    pub fn is_live(&self, found: &[u8]) -> bool {
        let mut differs = differing(found, &self.live);
        self.live_any.forget(&mut differs);
        found.len() == self.live.len() && !differs.contains(&true)
    }

    /// Whether a file may hold this after a power cut: the synced size, and every byte as synced
    /// or as written since, but for those that were trimmed.
    pub fn allows(&self, found: &[u8]) -> bool {
        if found.len() != self.synced.len() {
            return false;
        }
        let mut differs = differing(found, &self.synced);
        self.synced_any.forget(&mut differs);
        for (offset, bytes) in &self.since {
            for (index, byte) in bytes.iter().enumerate() {
                let at = offset + index;
                if at < found.len() && found[at] == *byte {
                    differs[at] = false;
                }
            }
        }
        !differs.contains(&true)
    }
}

fn differing(found: &[u8], expected: &[u8]) -> Vec<bool> {
    found.iter().zip(expected).map(|(found, expected)| found != expected).collect()
}

/// What the files of a volume must be.
pub type Shadow = BTreeMap<String, ShadowFile>;

/// Reads a whole file.
pub fn content(volume: &Arc<Volume>, name: &str) -> Vec<u8> {
    let file = volume.open_file(name, EXISTING).expect("it is there");
    let mut bytes = vec![1; file.size_bytes() as usize];
    assert_eq!(file.read_at(&mut bytes, 0).expect("reads"), bytes.len());
    bytes
}

/// All files of a volume.
pub fn contents(volume: &Arc<Volume>) -> BTreeMap<String, Vec<u8>> {
    volume.list().into_iter().map(|it| (it.name.clone(), content(volume, &it.name))).collect()
}
