//! Small reads, one behind the other, of a file on a volume: a window that is read at once. It
//! decides what is read ahead and what may be given from memory; it reads nothing itself.
//!
//! DuckDB replays its log in pieces of 4 KiB, and each would be a command that it waits for. What
//! lies in the window is given only while no change of the file has ended since it was read.

/// Longer reads go straight to the device, and past the window's lock soon.
pub(crate) const SMALL_MAX_BYTES: usize = 32 << 10;
/// Most bytes that are read at once: what one command mostly takes.
pub(crate) const WINDOW_BYTES: usize = 256 << 10;
/// Bytes that are read at the begin of a file: what stands before the blocks of a database. DuckDB
/// reads the first 4 KiB of it twice, and then the rest.
const HEAD_BYTES: usize = 12 << 10;
/// Bytes that are read at first elsewhere.
const FIRST_BYTES: usize = 8 << 10;
/// How much longer each time is than the one before, while reads go on behind each other.
const GROWTH: usize = 4;

/// What to do for a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Read it as it is asked for.
    Straight,
    /// It lies in the window.
    Held,
    /// Read the window from its offset on.
    Fill,
}

/// What was read ahead, and where small reads are expected.
#[derive(Default)]
pub(crate) struct Window {
    bytes: Vec<u8>,
    start: u64,
    /// The file's count of changes before the bytes were read.
    changes: u64,
    /// Where the last small read ended.
    next: Option<u64>,
    /// How much is read at once for the reads that go on behind each other; 0 at their begin.
    length: usize,
}

impl Window {
    /// Judges a read; `changes` is the file's count of them now.
    pub fn plan(&mut self, offset: u64, length: usize, changes: u64) -> Plan {
        if length == 0 || length > SMALL_MAX_BYTES {
            return Plan::Straight;
        }
        let is_next = self.next == Some(offset);
        self.next = offset.checked_add(length as u64);
        if !is_next {
            self.length = 0;
        }
        match (self.holds(offset, length, changes), is_next) {
            (true, _) => Plan::Held,
            (false, false) if offset == 0 => {
                self.length = length.max(HEAD_BYTES);
                Plan::Fill
            }
            (false, true) => {
                let grown = (self.length * GROWTH).clamp(FIRST_BYTES, WINDOW_BYTES);
                self.length = grown.max(length);
                Plan::Fill
            }
            (false, false) => Plan::Straight,
        }
    }

    /// Whether the bytes are there and still right. What the file's end cut short is not: the file
    /// may have grown.
    fn holds(&self, offset: u64, length: usize, changes: u64) -> bool {
        let within = offset.checked_sub(self.start).and_then(|within| usize::try_from(within).ok());
        let end = within.and_then(|within| within.checked_add(length));
        self.changes == changes && end.is_some_and(|end| end <= self.bytes.len())
    }

    /// Reads the window by `read`, which fills a buffer and tells how much of it. A failure leaves
    /// it empty.
    pub fn fill<E>(
        &mut self,
        offset: u64,
        changes: u64,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<(), E> {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.resize(self.length, 0);
        let count = read(&mut bytes)?;
        bytes.truncate(count);
        (self.bytes, self.start, self.changes) = (bytes, offset, changes);
        Ok(())
    }

    /// Copies what the window has of a read; less than its length only after a fill that the end of
    /// the file cut short.
    pub fn take(&self, into: &mut [u8], offset: u64) -> usize {
        let within = usize::try_from(offset - self.start).unwrap_or(usize::MAX);
        let held = self.bytes.get(within..).unwrap_or_default();
        let count = held.len().min(into.len());
        into[..count].copy_from_slice(&held[..count]);
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads through a window over `file`; how many bytes, and by which plan.
    fn read(
        window: &mut Window,
        file: &[u8],
        changes: u64,
        offset: u64,
        into: &mut [u8],
    ) -> (usize, Plan) {
        let source = |room: &mut [u8]| {
            let rest = file.get(offset as usize..).unwrap_or_default();
            let count = rest.len().min(room.len());
            room[..count].copy_from_slice(&rest[..count]);
            count
        };
        let plan = window.plan(offset, into.len(), changes);
        if plan == Plan::Fill {
            let filled: Result<(), ()> = window.fill(offset, changes, |room| Ok(source(room)));
            filled.expect("the source does not fail");
        }
        match plan {
            Plan::Straight => (source(into), plan),
            Plan::Held | Plan::Fill => (window.take(into, offset), plan),
        }
    }

    fn file(length: usize, salt: u8) -> Vec<u8> {
        (0..length).map(|at| (at / 7) as u8 ^ (at / 4096) as u8 ^ salt).collect()
    }

    #[test]
    fn a_log_in_small_pieces_is_a_read_in_sixty() {
        let bytes = file(1_000_001, 0);
        let (mut window, mut at, mut fills) = (Window::default(), 0, 0);
        loop {
            let mut piece = [0; 4096];
            let (count, plan) = read(&mut window, &bytes, 0, at, &mut piece);
            fills += usize::from(plan != Plan::Held);
            assert_eq!(piece[..count], bytes[at as usize..][..count]);
            at += count as u64;
            if count < piece.len() {
                break;
            }
        }
        assert_eq!(at, 1_000_001);
        // The first, those that grow, one per window, and at the end the piece that the window has
        // not whole.
        assert!((7..=10).contains(&fills), "{fills}");
    }

    #[test]
    fn what_stands_before_the_blocks_is_read_without_them_and_no_read_is_cut_short() {
        let bytes = file(400_000, 1);
        let (mut window, mut piece) = (Window::default(), [0; 4096]);
        let held = [0, 4096, 8192].map(|offset| (offset, Plan::Held));
        for (offset, plan) in [(0, Plan::Fill)].into_iter().chain(held) {
            assert_eq!(read(&mut window, &bytes, 0, offset, &mut piece), (4096, plan), "{offset}");
        }
        assert_eq!(window.start + window.bytes.len() as u64, 12288, "blocks begin there");
        let mut long = [0; SMALL_MAX_BYTES];
        for offset in [0, 100] {
            let mut window = Window::default();
            window.plan(offset, 100, 0);
            let offset = offset + 100;
            let found = read(&mut window, &bytes, 0, offset, &mut long);
            assert_eq!(found, (SMALL_MAX_BYTES, Plan::Fill));
            assert!(long[..] == bytes[offset as usize..][..SMALL_MAX_BYTES]);
        }
        let found = read(&mut Window::default(), &bytes, 0, 0, &mut long);
        assert_eq!(found, (SMALL_MAX_BYTES, Plan::Fill));
        assert!(long[..] == bytes[..SMALL_MAX_BYTES]);
    }

    #[test]
    fn random_and_long_reads_go_straight() {
        let mut window = Window::default();
        for (offset, length) in [(4096, 4096), (16384, 4096), (16384, 4096), (20480, 100_000)] {
            assert_eq!(window.plan(offset, length, 0), Plan::Straight, "{offset}");
        }
        // The long one in between is none of them.
        assert_eq!(window.plan(20480, 4096, 0), Plan::Fill);
        assert_eq!(window.plan(u64::MAX - 5, 4096, 0), Plan::Straight);
        assert_eq!(window.plan(u64::MAX, 4096, 0), Plan::Straight);
        assert_eq!(window.plan(7, 0, 0), Plan::Straight);
    }

    /// Random reads, writes and changes of length: what is read is what is there.
    #[test]
    fn no_byte_is_ever_old() {
        let mut seed = 7u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        let (mut bytes, mut changes) = (file(300_000, 0), 0);
        let (mut window, mut at) = (Window::default(), 0u64);
        for round in 0..4_000u64 {
            match random(8) {
                0 => {
                    let place = random(bytes.len() as u64) as usize;
                    bytes[place] ^= round as u8 | 1;
                    changes += 1;
                }
                1 if random(20) == 0 => {
                    bytes.resize(random(400_000) as usize + 1, round as u8);
                    changes += 1;
                }
                2 => at = random(bytes.len() as u64),
                _ => {}
            }
            let mut piece = vec![0; random(6000) as usize];
            let (count, _) = read(&mut window, &bytes, changes, at, &mut piece);
            let there = bytes.get(at as usize..).unwrap_or_default();
            assert_eq!(count, there.len().min(piece.len()), "round {round} at {at}");
            assert_eq!(piece[..count], there[..count], "round {round} at {at}");
            at += count as u64;
        }
    }

    #[test]
    fn a_failed_read_leaves_nothing() {
        let mut window = Window::default();
        for offset in [0, 10, 20] {
            assert_eq!(window.plan(offset, 10, 0), Plan::Fill, "nothing of it is held");
            assert_eq!(window.fill(offset, 0, |_| Err("broken")), Err("broken"));
        }
    }
}
