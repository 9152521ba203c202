//! What a device holds already, told from its first bytes. Pure; it guards formatting.

/// Bytes that must be looked at.
pub const HEAD_BYTES: usize = 192 << 10;

/// What a cache of ours is called.
pub const CACHE: &str = "a Penstock cache";

/// What a database in a file of its own is called.
pub const DUCKDB: &str = "a DuckDB database";

/// Magic bytes, where they lie, and what they mean. More specific ones come first.
const SIGNATURES: &[(usize, &[u8], &str)] = &[
    (0, b"PENSTOCK", "a Penstock volume"),
    (0, b"PENCACHE", CACHE),
    (0, b"NVMEFS", "an nvmefs database"),
    (0, b"LUKS\xba\xbe", "an encrypted LUKS volume"),
    (0, b"XFSB", "an XFS file system"),
    (0, b"hsqs", "a SquashFS file system"),
    (0, b"SQLite format 3\0", "a SQLite database"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (3, b"-FVE-FS-", "a BitLocker volume"),
    (8, b"DUCK", DUCKDB),
    (54, b"FAT1", "a FAT file system"),
    (82, b"FAT32", "a FAT32 file system"),
    (512, b"LABELONE", "an LVM physical volume"),
    (512, b"EFI PART", "a GPT partition table"),
    (4096, b"EFI PART", "a GPT partition table"),
    (0, b"\xfc\x4e\x2b\xa9", "a RAID member"),
    (4096, b"\xfc\x4e\x2b\xa9", "a RAID member"),
    (1024, b"\x10\x20\xf5\xf2", "an F2FS file system"),
    (1080, b"\x53\xef", "an ext2, ext3 or ext4 file system"),
    (4086, b"SWAPSPACE2", "a swap area"),
    (4086, b"SWAP-SPACE", "a swap area"),
    (4120, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca", "a bcache device"),
    (4096, b"BlueFS bdev", "a Ceph device"),
    (0, b"bluestore block device", "a Ceph device"),
    (32769, b"CD001", "an ISO 9660 image"),
    (65600, b"_BHRfS_M", "a Btrfs file system"),
    (131_072, b"\x0c\xb1\xba\0\0\0\0\0", "a ZFS pool"),
    (510, b"\x55\xaa", "a partition table or boot sector"),
];

/// What begins with these bytes, if it is known.
pub fn recognise(head: &[u8]) -> Option<&'static str> {
    let is_there = |(at, magic, _): &&(usize, &[u8], &str)| {
        head.get(*at..at + magic.len()).is_some_and(|found| found == *magic)
    };
    SIGNATURES.iter().find(is_there).map(|row| row.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signature_is_found_where_it_lies_and_nowhere_else() {
        for (at, magic, name) in SIGNATURES {
            let mut head = vec![0; HEAD_BYTES];
            head[*at..at + magic.len()].copy_from_slice(magic);
            assert_eq!(recognise(&head), Some(*name));
            head.rotate_right(1);
            assert_eq!(recognise(&head), None, "{name} one byte off");
        }
        assert_eq!(recognise(&[]), None);
        assert_eq!(recognise(&[0; HEAD_BYTES]), None);
    }
}
