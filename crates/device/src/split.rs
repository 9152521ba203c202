//! Cuts what callers ask into commands that a device takes. Pure; it moves no bytes.

use crate::device::{Command, Geometry};

/// The same work in commands of at most `transfer_max_bytes`, in the order of the addresses.
/// Lengths are whole blocks already ([`Geometry::check_command`]); empty transfers vanish.
pub fn split<'a>(commands: &'a mut [Command<'_>], geometry: &Geometry) -> Vec<Command<'a>> {
    let most = geometry.transfer_max_bytes as usize;
    let step = u64::from(geometry.transfer_max_bytes / geometry.block_size_bytes);
    let mut pieces = Vec::with_capacity(commands.len());
    for command in commands {
        match command {
            Command::Read { block, into } => {
                let chunks = into.chunks_mut(most).zip(0u64..);
                pieces.extend(
                    chunks
                        .map(|(into, index)| Command::Read { block: *block + index * step, into }),
                );
            }
            Command::Write { block, from } => {
                let chunks = from.chunks(most).zip(0u64..);
                pieces.extend(
                    chunks
                        .map(|(from, index)| Command::Write { block: *block + index * step, from }),
                );
            }
            Command::Flush => pieces.push(Command::Flush),
            Command::Trim { blocks: 0, .. } => {}
            Command::Trim { block, blocks } => {
                pieces.push(Command::Trim { block: *block, blocks: *blocks });
            }
        }
    }
    pieces
}

/// Whether the commands are what [`split`] would make of them, which then need not be made.
pub fn is_split(commands: &[Command<'_>], geometry: &Geometry) -> bool {
    let most = u64::from(geometry.transfer_max_bytes);
    !commands.is_empty()
        && commands.iter().all(|command| match command {
            Command::Read { .. } | Command::Write { .. } => {
                (1..=most).contains(&command.length_bytes())
            }
            Command::Flush => true,
            Command::Trim { blocks, .. } => *blocks > 0,
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn geometry(block: u32, blocks_per_transfer: u32) -> Geometry {
        Geometry {
            block_size_bytes: block,
            block_count: 1 << 40,
            transfer_max_bytes: block * blocks_per_transfer,
            buffer_alignment_bytes: 1,
            has_volatile_cache: true,
            can_trim: true,
            is_read_only: false,
        }
    }

    proptest! {
        #[test]
        fn pieces_cover_each_byte_once_in_order_and_fit(
            shift in 9u32..13, per_transfer in 1u32..70,
            first in 0u64..1 << 39, blocks in 0usize..300,
        ) {
            let geometry = geometry(1 << shift, per_transfer);
            let size = geometry.block_size_bytes as usize;
            let source: Vec<u8> = (0..blocks * size).map(|at| (at / 7) as u8).collect();
            let mut target = vec![0u8; source.len()];
            let base = target.as_ptr().addr();
            let mut commands = [
                Command::Write { block: first, from: &source },
                Command::Read { block: first, into: &mut target },
            ];
            let (mut written, mut read) = (0usize, 0usize);
            let fits = (1..=per_transfer as usize).contains(&blocks);
            prop_assert_eq!(is_split(&commands, &geometry), fits);
            for piece in split(&mut commands, &geometry) {
                let length = piece.length_bytes();
                prop_assert!(length > 0 && length <= u64::from(geometry.transfer_max_bytes));
                match piece {
                    Command::Write { block, from } => {
                        prop_assert_eq!(block, first + (written / size) as u64);
                        prop_assert_eq!(from, &source[written..written + from.len()]);
                        written += from.len();
                    }
                    Command::Read { block, into } => {
                        prop_assert_eq!(block, first + (read / size) as u64);
                        prop_assert_eq!(into.as_ptr().addr(), base + read);
                        read += into.len();
                    }
                    other => prop_assert!(false, "{} was not asked", other.name()),
                }
            }
            prop_assert_eq!((written, read), (source.len(), source.len()));
            let least = (blocks as u64).div_ceil(u64::from(per_transfer));
            let mut again = [Command::Write { block: first, from: &source }];
            prop_assert_eq!(split(&mut again, &geometry).len() as u64, least);
        }
    }

    #[test]
    fn flush_and_trim_stay_whole() {
        let mut commands = [
            Command::Trim { block: 3, blocks: 1 << 30 },
            Command::Trim { block: 3, blocks: 0 },
            Command::Flush,
        ];
        let names: Vec<_> =
            split(&mut commands, &geometry(512, 1)).iter().map(Command::name).collect();
        assert_eq!(names, ["device trim", "device flush"]);
    }
}
