//! The end of a Parquet file, no more than what says where its columns lie: for tests of what is
//! fetched ahead.

use penstock_base::ByteRange;

const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn structures(out: &mut Vec<u8>, count: usize) {
    if count < 15 {
        out.push((count as u8) << 4 | STRUCT);
    } else {
        out.push(0xf0 | STRUCT);
        varint(out, count as u64);
    }
}

/// The end of a Parquet file with these column chunks, and fields around them that do not matter.
pub fn footer(row_groups: &[Vec<ByteRange>]) -> Vec<u8> {
    let mut out = vec![0x10 | I32, 2, 0x30 | LIST];
    structures(&mut out, row_groups.len());
    for chunks in row_groups {
        out.push(0x10 | LIST);
        structures(&mut out, chunks.len());
        for chunk in chunks {
            // file_offset; meta_data with type, path_in_schema, total_compressed_size and
            // data_page_offset
            out.extend([0x20 | I64, 0, 0x10 | STRUCT, 0x10 | I32, 4]);
            out.extend([0x20 | LIST, 0x10 | BINARY, 1, b'x', 0x40 | I64]);
            varint(&mut out, chunk.len() << 1);
            out.push(0x20 | I64);
            varint(&mut out, chunk.start << 1);
            out.extend([0, 0]);
        }
        out.extend([0x10 | I64, 0, 0]);
    }
    out.extend([0x20 | BINARY, 2, b'm', b'e', 0]);
    let length = out.len() as u32;
    out.extend(length.to_le_bytes());
    out.extend(b"PAR1");
    out
}
