//! Whether a batch goes through the ring or by calls, one command after the other. Which is faster
//! a device does not tell, so it is learned of what both take: where commands end within the call a
//! ring only adds work, where they have to be waited for a ring waits for many at once. Pure; it
//! measures nothing.

use crate::device::Command;
use std::time::Duration;

/// How a batch goes to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Ring,
    Calls,
    /// The first command by a call, to see what that takes, and the others through the ring.
    Both,
}

/// Commands that are alike: of one direction, and each of about one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Likes(usize);

/// Lengths by their powers of two, of two directions; what is longer is alike.
const LENGTHS: usize = 24;

impl Likes {
    /// Of a batch that is all reads or all writes, whose lengths have one power of two: the time of
    /// a part of it is compared with that of the others.
    pub(super) fn of(commands: &[Command<'_>]) -> Option<Likes> {
        let first = Likes::of_one(commands.first()?)?;
        commands.iter().all(|command| Likes::of_one(command) == Some(first)).then_some(first)
    }

    fn of_one(command: &Command<'_>) -> Option<Likes> {
        let direction = match command {
            Command::Read { .. } => 1,
            Command::Write { .. } => 0,
            _ => return None,
        };
        let power = command.length_bytes().checked_ilog2().unwrap_or(0) as usize;
        Some(Likes(power.min(LENGTHS - 1) + direction * LENGTHS))
    }
}

/// The first batches are looked at often, later ones seldom: a look at a call costs a device that
/// has to be waited for one command's time, a look at the ring one slow batch.
const LOOKS_SELDOM: u32 = 256;
/// So many looks at both before calls are chosen.
const LOOKS_LEAST: u32 = 3;

/// What was seen of commands that are alike.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    ring: Pace,
    call: Pace,
    is_by_calls: bool,
    /// Batches since the last look, and after how many the next one is due.
    since: u32,
    due: u32,
}

/// The mean time of a command. What was slow counts for little, what was fast for much: a thread
/// that was not given the processor for a while says nothing of the device.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    nanoseconds: u64,
    count: u32,
}

impl Pace {
    fn note(&mut self, took: Duration, commands: usize) {
        let (each, mean) = (took.as_nanos() as u64 / commands.max(1) as u64, self.nanoseconds);
        self.nanoseconds = match each {
            _ if self.count == 0 || each < mean / 4 => each,
            _ if each < mean => (mean + each) / 2,
            _ => (3 * mean + each.min(4 * mean)) / 4,
        }
        .max(1);
        self.count = self.count.saturating_add(1);
    }
}

/// What a queue has seen.
#[derive(Debug)]
pub(super) struct Ways([Seen; 2 * LENGTHS]);

impl Default for Ways {
    fn default() -> Self {
        Ways([Seen::default(); 2 * LENGTHS])
    }
}

impl Ways {
    /// How the next batch goes. The first one goes through the ring: nothing is known to choose
    /// by, and most devices have to be waited for.
    pub(super) fn next(&mut self, likes: Likes) -> Way {
        let seen = &mut self.0[likes.0];
        if seen.ring.count == 0 {
            // Who opens a volume reads one batch, and would wait for the device a second time.
            return Way::Ring;
        }
        seen.since += 1;
        let is_due = seen.since > seen.due;
        if is_due {
            seen.since = 0;
            seen.due = (2 * seen.due + 1).min(LOOKS_SELDOM);
        }
        match (seen.is_by_calls, is_due) {
            (false, false) | (true, true) => Way::Ring,
            (false, true) => Way::Both,
            (true, false) => Way::Calls,
        }
    }

    /// So many commands took so long through the ring.
    pub(super) fn note_ring(&mut self, likes: Likes, took: Duration, commands: usize) {
        self.0[likes.0].ring.note(took, commands);
        self.judge(likes);
    }

    /// So many commands took so long by calls.
    pub(super) fn note_calls(&mut self, likes: Likes, took: Duration, commands: usize) {
        self.0[likes.0].call.note(took, commands);
        self.judge(likes);
    }

    /// Calls have to be an eighth faster, and are left when they are slower: at the same speed what
    /// is chosen stays.
    fn judge(&mut self, likes: Likes) {
        let Seen { ring, call, is_by_calls, .. } = self.0[likes.0];
        let is_faster = match is_by_calls {
            true => call.nanoseconds <= ring.nanoseconds,
            false => {
                ring.count.min(call.count) >= LOOKS_LEAST
                    && call.nanoseconds + call.nanoseconds / 8 < ring.nanoseconds
            }
        };
        if is_faster != is_by_calls {
            let seen = &mut self.0[likes.0];
            // It is looked again soon whether that was right.
            (seen.is_by_calls, seen.since, seen.due) = (is_faster, 0, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BATCH: usize = 16;

    /// A device of which a call takes so long, and a command of a batch through the ring; of one
    /// measurement in sixteen the thread was not given the processor for a millisecond.
    struct Disk {
        call: u64,
        ring: u64,
        noise: u64,
    }

    impl Disk {
        fn take(&mut self, each: u64, commands: usize) -> Duration {
            self.noise = self.noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let spread = each * commands as u64 * (90 + (self.noise >> 33) % 20) / 100;
            let away = if (self.noise >> 40).is_multiple_of(16) { 1_000_000 } else { 0 };
            Duration::from_nanos(spread + away)
        }

        /// Gives how many of some batches went by calls, and how many commands in all.
        fn run(&mut self, ways: &mut Ways, likes: Likes, batches: usize) -> (usize, usize) {
            let (mut whole, mut called) = (0, 0);
            for _ in 0..batches {
                let way = ways.next(likes);
                let calls = match way {
                    Way::Ring => 0,
                    Way::Both => 1,
                    Way::Calls => BATCH,
                };
                if calls > 0 {
                    let took = self.take(self.call, calls);
                    ways.note_calls(likes, took, calls);
                }
                if calls < BATCH {
                    let took = self.take(self.ring, BATCH - calls);
                    ways.note_ring(likes, took, BATCH - calls);
                }
                whole += usize::from(way == Way::Calls);
                called += calls;
            }
            (whole, called)
        }
    }

    fn reads() -> Likes {
        let mut memory = [0; 4096];
        Likes::of(&[Command::Read { block: 0, into: &mut memory }]).expect("it is a read")
    }

    proptest! {
        #[test]
        fn calls_are_chosen_where_they_are_faster(
            ring in 2_000u64..400_000, share in 2u64..50, noise: u64,
        ) {
            let mut disk = Disk { call: ring * share / 100, ring, noise };
            let mut ways = Ways::default();
            disk.run(&mut ways, reads(), 60);
            let (whole, _) = disk.run(&mut ways, reads(), 1000);
            prop_assert!(whole > 800, "{whole}");
        }

        #[test]
        fn a_device_that_has_to_be_waited_for_is_called_seldom(
            ring in 5_000u64..400_000, times in 3u64..20, noise: u64,
        ) {
            let mut disk = Disk { call: ring * times, ring, noise };
            let mut ways = Ways::default();
            let (_, first) = disk.run(&mut ways, reads(), 16);
            let (_, later) = disk.run(&mut ways, reads(), 10_000);
            prop_assert!(first <= 6 + BATCH && later <= 800, "{first} {later}");
        }

        #[test]
        fn it_changes_with_the_device(noise: u64) {
            let mut ways = Ways::default();
            Disk { call: 2_000, ring: 9_000, noise }.run(&mut ways, reads(), 2000);
            let mut slow = Disk { call: 80_000, ring: 9_000, noise };
            slow.run(&mut ways, reads(), 300);
            let (whole, _) = slow.run(&mut ways, reads(), 1000);
            prop_assert!(whole < 20, "{whole}");
            let mut fast = Disk { call: 2_000, ring: 9_000, noise };
            fast.run(&mut ways, reads(), 12 * LOOKS_SELDOM as usize);
            let (whole, _) = fast.run(&mut ways, reads(), 1000);
            prop_assert!(whole > 800, "{whole}");
        }
    }

    #[test]
    fn only_commands_that_are_alike_are_compared() {
        let (mut small, mut large) = ([0; 4096], [0; 65_536]);
        let of = |commands: &[Command<'_>]| Likes::of(commands);
        let write = Command::Write { block: 0, from: &[0; 4096] };
        let short = of(&[Command::Read { block: 0, into: &mut small }]);
        let long = of(&[Command::Read { block: 0, into: &mut large }]);
        assert!(short.is_some() && short != long && short != of(&[write]));
        let read = Command::Read { block: 0, into: &mut small };
        let write = Command::Write { block: 0, from: &[0; 4096] };
        assert_eq!(of(&[read, write]), None);
        let write = Command::Write { block: 0, from: &[0; 4096] };
        assert_eq!(of(&[write, Command::Flush]), None, "a flush is not a write");
        assert_eq!(of(&[]), None);
        // A part of such a batch says nothing of the rest.
        let first = Command::Read { block: 0, into: &mut small };
        assert_eq!(of(&[first, Command::Read { block: 8, into: &mut large }]), None);
        let mut ways = Ways::default();
        Disk { call: 1_000, ring: 9_000, noise: 7 }.run(&mut ways, short.expect("reads"), 100);
        let long = long.expect("reads");
        assert_eq!(ways.next(long), Way::Ring, "of these nothing is known");
        ways.note_ring(long, Duration::from_micros(9), BATCH);
        assert_eq!(ways.next(long), Way::Both, "of calls nothing is known");
    }
}
