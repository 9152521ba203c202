//! The words of NVMe: commands, and what Identify tells; `status` has what commands end with.
//! Pure; the numbers are those of the NVM Express base and NVM command set specifications and of
//! the kernel's `linux/nvme_ioctl.h`.

mod status;

pub(crate) use status::{command_error, status_error};

use crate::device::Geometry;
use penstock_base::{Error, Kind, Result};

/// `struct nvme_uring_cmd` of the kernel: 72 bytes. `struct nvme_passthru_cmd`, which ioctls take,
/// is the same with the result in place of the last field.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Passthrough {
    pub opcode: u8,
    pub flags: u8,
    pub reserved: u16,
    pub namespace: u32,
    pub cdw2: u32,
    pub cdw3: u32,
    pub metadata: u64,
    pub address: u64,
    pub metadata_length: u32,
    pub data_length: u32,
    pub cdw10: u32,
    pub cdw11: u32,
    pub cdw12: u32,
    pub cdw13: u32,
    pub cdw14: u32,
    pub cdw15: u32,
    pub timeout_ms: u32,
    pub result: u32,
}

/// Bytes of the structure; a number of the kernel's interface.
pub(crate) const PASSTHROUGH_BYTES: usize = 72;
const _: () = assert!(size_of::<Passthrough>() == PASSTHROUGH_BYTES);

/// Bytes that Identify gives.
pub(crate) const IDENTIFY_BYTES: usize = 4096;

const WRITE: u8 = 0x01;
const READ: u8 = 0x02;
const DATASET_MANAGEMENT: u8 = 0x09;
const IDENTIFY: u8 = 0x06;
/// Most blocks of one command: their number less one has 16 bits.
const BLOCKS_MAX: u64 = 1 << 16;

impl Passthrough {
    /// A read of `bytes` from logical block `block` on to `address`.
    pub(crate) fn read(
        namespace: u32,
        block: u64,
        address: u64,
        bytes: u32,
        block_size: u32,
    ) -> Self {
        Self::transfer(READ, namespace, block, address, bytes, block_size)
    }

    /// A write, likewise.
    pub(crate) fn write(
        namespace: u32,
        block: u64,
        address: u64,
        bytes: u32,
        block_size: u32,
    ) -> Self {
        Self::transfer(WRITE, namespace, block, address, bytes, block_size)
    }

    /// The number of blocks and the length of the memory come from one number: the kernel does not
    /// compare them, and a device would write past memory that is shorter.
    fn transfer(
        opcode: u8,
        namespace: u32,
        block: u64,
        address: u64,
        bytes: u32,
        block_size: u32,
    ) -> Self {
        Passthrough {
            opcode,
            namespace,
            address,
            data_length: bytes,
            cdw10: block as u32,
            cdw11: (block >> 32) as u32,
            cdw12: bytes / block_size - 1,
            ..Self::default()
        }
    }

    /// A flush of the volatile write cache.
    pub(crate) fn flush(namespace: u32) -> Self {
        Passthrough { namespace, ..Self::default() }
    }

    /// A deallocation of the one range that [`trim_range`] has put at `address`.
    pub(crate) fn trim(namespace: u32, address: u64) -> Self {
        Passthrough {
            opcode: DATASET_MANAGEMENT,
            namespace,
            address,
            data_length: 16,
            cdw11: 1 << 2,
            ..Self::default()
        }
    }

    /// Identify: structure 0 tells of the namespace, 1 of the controller.
    pub(crate) fn identify(namespace: u32, structure: u32, address: u64) -> Self {
        Passthrough {
            opcode: IDENTIFY,
            namespace,
            address,
            data_length: IDENTIFY_BYTES as u32,
            cdw10: structure,
            ..Self::default()
        }
    }

    /// The bytes as they lie in an entry of the ring.
    pub(crate) fn to_entry(self) -> [u8; 80] {
        let mut entry = [0; 80];
        entry[0] = self.opcode;
        entry[1] = self.flags;
        let words = [(4, self.namespace), (8, self.cdw2), (12, self.cdw3)];
        let more = [
            (32, self.metadata_length),
            (36, self.data_length),
            (40, self.cdw10),
            (44, self.cdw11),
            (48, self.cdw12),
            (52, self.cdw13),
            (56, self.cdw14),
            (60, self.cdw15),
            (64, self.timeout_ms),
        ];
        for (at, word) in words.into_iter().chain(more) {
            entry[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        entry[16..24].copy_from_slice(&self.metadata.to_ne_bytes());
        entry[24..32].copy_from_slice(&self.address.to_ne_bytes());
        entry
    }
}

/// One range of a deallocation; `None` if there are more blocks than one range counts.
pub(crate) fn trim_range(block: u64, blocks: u64) -> Option<[u8; 16]> {
    let mut range = [0; 16];
    range[4..8].copy_from_slice(&u32::try_from(blocks).ok()?.to_le_bytes());
    range[8..].copy_from_slice(&block.to_le_bytes());
    Some(range)
}

/// What Identify tells of a namespace and its controller. `transfer_max_bytes` is the kernel's own
/// limit, where it tells one.
///
/// # Errors
/// `Unsupported` for metadata beside the blocks and for sizes that no device has.
pub(crate) fn geometry(
    controller: &[u8; IDENTIFY_BYTES],
    namespace: &[u8; IDENTIFY_BYTES],
    transfer_max_bytes: Option<u32>,
    object: &str,
) -> Result<Geometry> {
    let refuse = |message: &str| {
        Err(Error::new(Kind::Unsupported, message)
            .with_operation("device identify")
            .with_object(object)
            .with_hint("Give it a format without metadata: `nvme format --lbaf`"))
    };
    // The format in use: four bits, and two more where there are more than 16 formats.
    let flags = namespace[26];
    let format = usize::from(flags & 15 | (flags >> 5 & 3) << 4);
    let at = 128 + 4 * format;
    let metadata_bytes = u16::from_le_bytes([namespace[at], namespace[at + 1]]);
    if metadata_bytes != 0 {
        return refuse("its blocks carry metadata");
    }
    let shift = namespace[at + 2];
    if !(9..=16).contains(&shift) {
        return refuse("its blocks have a size that is not known");
    }
    let block_size_bytes = 1u32 << shift;
    let mut count = [0; 8];
    count.copy_from_slice(&namespace[..8]);
    // In units of the smallest page, 4096 bytes on every controller that Linux drives; 0: no limit.
    let own = match controller[77] {
        0 => u64::MAX,
        shift => 4096u64.checked_shl(shift.into()).unwrap_or(u64::MAX),
    };
    let kernel = transfer_max_bytes.map_or(u64::MAX, u64::from);
    let most = own.min(kernel).min(BLOCKS_MAX * u64::from(block_size_bytes)).min(1 << 20);
    let optional = u16::from_le_bytes([controller[520], controller[521]]);
    let geometry = Geometry {
        block_size_bytes,
        block_count: u64::from_le_bytes(count),
        transfer_max_bytes: most as u32 / block_size_bytes * block_size_bytes,
        buffer_alignment_bytes: 4,
        has_volatile_cache: controller[525] & 1 != 0,
        can_trim: optional & 1 << 2 != 0,
        is_read_only: false,
    };
    geometry.check(object)?;
    Ok(geometry)
}

/// What controller and namespace tell is taken from a fuzzer: the bytes that matter are few.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzz(input: &[u8]) {
    let (mut controller, mut namespace) = ([0; IDENTIFY_BYTES], [0; IDENTIFY_BYTES]);
    let places = [77, 520, 521, 525].into_iter().map(|at| (true, at));
    let places = places.chain((0..8).chain([26]).chain(128..384).map(|at| (false, at)));
    for ((is_controller, at), byte) in places.zip(input) {
        let told = if is_controller { &mut controller } else { &mut namespace };
        told[at] = *byte;
    }
    for most in [None, Some(4096), Some(u32::MAX)] {
        if let Ok(geometry) = geometry(&controller, &namespace, most, "/dev/ng0n1") {
            assert!(geometry.transfer_max_bytes >= geometry.block_size_bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identify(shift: u8, mdts: u8) -> ([u8; IDENTIFY_BYTES], [u8; IDENTIFY_BYTES]) {
        let (mut controller, mut namespace) = ([0; IDENTIFY_BYTES], [0; IDENTIFY_BYTES]);
        controller[77] = mdts;
        controller[520] = 4;
        controller[525] = 1;
        namespace[..8].copy_from_slice(&1000u64.to_le_bytes());
        namespace[26] = 1;
        namespace[128 + 4 + 2] = shift;
        (controller, namespace)
    }

    #[test]
    fn identify_gives_the_geometry() {
        let (controller, namespace) = identify(12, 5);
        let told = geometry(&controller, &namespace, None, "ng").expect("it is right");
        assert_eq!((told.block_size_bytes, told.block_count), (4096, 1000));
        assert_eq!(told.transfer_max_bytes, 128 << 10);
        assert!(told.has_volatile_cache && told.can_trim);
        let narrow = geometry(&controller, &namespace, Some(64 << 10), "ng").expect("right");
        assert_eq!(narrow.transfer_max_bytes, 64 << 10);
        let (controller, namespace) = identify(9, 0);
        let told = geometry(&controller, &namespace, None, "ng").expect("it is right");
        assert_eq!((told.block_size_bytes, told.transfer_max_bytes), (512, 1 << 20));
    }

    #[test]
    fn what_a_controller_does_not_have_is_not_asked_of_it() {
        let (mut controller, namespace) = identify(12, 5);
        for (cache, optional) in [(0, 0), (1, 0), (0, 4), (6, !4)] {
            (controller[525], controller[520]) = (cache, optional);
            let told = geometry(&controller, &namespace, None, "ng").expect("it is right");
            assert_eq!(told.has_volatile_cache, cache == 1, "VWC {cache}");
            assert_eq!(told.can_trim, optional == 4, "ONCS {optional}");
        }
    }

    #[test]
    fn metadata_and_odd_blocks_are_refused() {
        let (controller, mut namespace) = identify(12, 5);
        namespace[128 + 4] = 8;
        let error = geometry(&controller, &namespace, None, "ng").expect_err("metadata");
        assert!(error.to_string().contains("metadata"), "{error}");
        let (controller, namespace) = identify(3, 5);
        assert!(geometry(&controller, &namespace, None, "ng").is_err());
    }

    #[test]
    fn commands_lie_in_memory_as_the_kernel_reads_them() {
        let read = Passthrough::read(3, 0x1_0000_0002, 0x1122, 8192, 512).to_entry();
        assert_eq!(read[0], 2);
        assert_eq!(read[4..8], 3u32.to_ne_bytes());
        assert_eq!(read[24..32], 0x1122u64.to_ne_bytes());
        assert_eq!(read[36..40], 8192u32.to_ne_bytes());
        assert_eq!(read[40..44], 2u32.to_ne_bytes());
        assert_eq!(read[44..48], 1u32.to_ne_bytes());
        assert_eq!(read[48..52], 15u32.to_ne_bytes(), "blocks less one");
        assert_eq!(Passthrough::flush(1).to_entry()[0], 0);
        let range = trim_range(7, 9).expect("it fits");
        assert_eq!(range, [0, 0, 0, 0, 9, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(trim_range(0, 1 << 32), None);
    }
}
