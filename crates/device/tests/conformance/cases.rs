//! The cases; each takes a maker of fresh devices.

use crate::subject::{BLOCKS, Subject};
use penstock_base::Kind;
use penstock_device::{AlignedBuffer, Command, Discipline, Port};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

type Make<'a> = &'a dyn Fn() -> Subject;

fn each(make: Make<'_>, case: impl Fn(&Port)) {
    for (discipline, _, _) in Discipline::ALL {
        let subject = make();
        case(&subject.port(*discipline));
    }
}

fn block_size(port: &Port) -> usize {
    port.geometry().block_size_bytes as usize
}

/// Bytes that differ from block to block and from seed to seed.
fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}

pub fn fresh_blocks_read_as_zeros(make: Make<'_>) {
    each(make, |port| {
        let mut bytes = vec![1; BLOCKS as usize * block_size(port)];
        port.read(0, &mut bytes).expect("reads");
        assert!(bytes.iter().all(|byte| *byte == 0));
    });
}

/// One step of the random case; addresses are in blocks, `shift` puts memory off its alignment.
#[derive(Clone, Debug)]
enum Step {
    Read { block: u64, blocks: u64, shift: usize },
    Write { block: u64, blocks: u64, shift: usize, seed: u64 },
    Flush,
    Trim { block: u64, blocks: u64 },
    Pair { first: u64, second: u64, seed: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let range = || (0..BLOCKS, 1u64..40).prop_map(|(at, many)| (at, many.min(BLOCKS - at)));
    let step = prop_oneof![
        4 => (range(), 0usize..3).prop_map(|((block, blocks), shift)| {
            Step::Read { block, blocks, shift }
        }),
        5 => (range(), 0usize..3, any::<u64>()).prop_map(|((block, blocks), shift, seed)| {
            Step::Write { block, blocks, shift, seed }
        }),
        1 => Just(Step::Flush),
        1 => range().prop_map(|(block, blocks)| Step::Trim { block, blocks }),
        2 => (0..BLOCKS / 2, BLOCKS / 2..BLOCKS, any::<u64>())
            .prop_map(|(first, second, seed)| Step::Pair { first, second, seed }),
    ];
    prop::collection::vec(step, 1..40)
}

/// What a block must hold: these bytes, or after a trim also zeros.
struct Model {
    bytes: Vec<u8>,
    trimmed: Vec<bool>,
    size: usize,
}

impl Model {
    fn write(&mut self, block: u64, from: &[u8]) {
        let start = block as usize * self.size;
        self.bytes[start..start + from.len()].copy_from_slice(from);
        let first = block as usize;
        self.trimmed[first..first + from.len() / self.size].fill(false);
    }

    fn check(&self, block: u64, read: &[u8]) {
        for (index, found) in read.chunks(self.size).enumerate() {
            let at = block as usize + index;
            let expected = &self.bytes[at * self.size..][..self.size];
            let is_zero = self.trimmed[at] && found.iter().all(|byte| *byte == 0);
            assert!(found == expected || is_zero, "block {at}");
        }
    }
}

fn apply(port: &Port, model: &mut Model, step: &Step) {
    let size = model.size;
    match *step {
        Step::Read { block, blocks, shift } => {
            let mut memory = AlignedBuffer::new(blocks as usize * size + shift, 4096);
            port.read(block, &mut memory[shift..]).expect("reads");
            model.check(block, &memory[shift..]);
        }
        Step::Write { block, blocks, shift, seed } => {
            let mut memory = AlignedBuffer::new(blocks as usize * size + shift, 4096);
            let length = memory.len();
            memory[shift..].copy_from_slice(&pattern(length - shift, seed));
            port.write(block, &memory[shift..]).expect("writes");
            model.write(block, &memory[shift..]);
        }
        Step::Flush => port.flush().expect("flushes"),
        Step::Trim { block, blocks } => {
            port.trim(block, blocks).expect("trims");
            model.trimmed[block as usize..(block + blocks) as usize].fill(true);
        }
        Step::Pair { first, second, seed } => {
            let from = pattern(size, seed);
            let mut into = vec![0; size];
            let mut both = [
                Command::Write { block: first, from: &from },
                Command::Read { block: second, into: &mut into },
            ];
            port.run(&mut both).expect("runs");
            model.write(first, &from);
            model.check(second, &into);
        }
    }
}

pub fn random_commands_agree_with_a_model(make: Make<'_>) {
    each(make, |port| {
        let size = block_size(port);
        let mut runner = TestRunner::new(Config { cases: 6, ..Config::default() });
        let outcome = runner.run(&steps(), |steps| {
            let zeros = vec![0; BLOCKS as usize * size];
            port.write(0, &zeros).expect("writes");
            let mut model = Model { bytes: zeros, trimmed: vec![false; BLOCKS as usize], size };
            steps.iter().for_each(|step| apply(port, &mut model, step));
            let mut all = vec![0; BLOCKS as usize * size];
            port.read(0, &mut all).expect("reads");
            model.check(0, &all);
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{error}"));
    });
}

pub fn memory_at_any_address_will_do(make: Make<'_>) {
    each(make, |port| {
        let length = 24 * block_size(port);
        for shift in [0usize, 1, 2, 4, 16, 511, 512] {
            let from = pattern(length, shift as u64 + 1);
            let mut memory = AlignedBuffer::new(length + shift, 4096);
            memory[shift..].copy_from_slice(&from);
            port.write(3, &memory[shift..]).expect("writes");
            memory.fill(0);
            port.read(3, &mut memory[shift..]).expect("reads");
            assert!(memory[shift..] == from[..], "shift {shift}");
        }
    });
}

pub fn a_batch_may_be_longer_than_the_queue(make: Make<'_>) {
    each(make, |port| {
        let size = block_size(port);
        let from = pattern(BLOCKS as usize * size, 5);
        let mut writes: Vec<Command<'_>> = from
            .chunks(size)
            .zip(0u64..)
            .map(|(from, block)| Command::Write { block, from })
            .collect();
        port.run(&mut writes).expect("writes");
        let mut into = vec![0; from.len()];
        let mut reads: Vec<Command<'_>> = into
            .chunks_mut(size)
            .zip(0u64..)
            .map(|(into, block)| Command::Read { block, into })
            .collect();
        port.run(&mut reads).expect("reads");
        assert!(into == from);
    });
}

pub fn threads_do_not_disturb_each_other(make: Make<'_>) {
    const THREADS: u64 = 8;
    each(make, |port| {
        let size = block_size(port);
        let work = |thread: u64| {
            let blocks = BLOCKS / THREADS;
            for round in 0..2 {
                let from = pattern(blocks as usize * size, thread * 100 + round);
                port.write(thread * blocks, &from).expect("writes");
                port.flush().expect("flushes");
                let mut into = vec![0; from.len()];
                port.read(thread * blocks, &mut into).expect("reads");
                assert!(into == from, "thread {thread}, round {round}");
            }
        };
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || work(thread));
            }
        });
    });
}

pub fn one_queue_after_another_sees_the_same_bytes(make: Make<'_>) {
    let subject = make();
    for (writer, name, _) in Discipline::ALL {
        let port = subject.port(*writer);
        let from = pattern(9 * block_size(&port), name.len() as u64);
        port.write(100, &from).expect("writes");
        drop(port);
        for (reader, _, _) in Discipline::ALL {
            let mut into = vec![0; from.len()];
            subject.port(*reader).read(100, &mut into).expect("reads");
            assert!(into == from, "written by {name}");
        }
    }
}

pub fn wrong_ranges_are_refused_before_anything_is_done(make: Make<'_>) {
    each(make, |port| {
        let size = block_size(port);
        let ones = vec![1; 2 * size];
        let good = || Command::Write { block: 0, from: &ones };
        let bad = [
            Command::Write { block: BLOCKS - 1, from: &ones },
            Command::Write { block: u64::MAX, from: &ones },
            Command::Write { block: 0, from: &ones[1..] },
            Command::Trim { block: 1, blocks: BLOCKS },
            Command::Trim { block: 1, blocks: u64::MAX },
        ];
        for command in bad {
            let text = format!("{} {}", command.name(), command.length_bytes());
            let error = port.run(&mut [good(), command]).expect_err(&text);
            assert_eq!(error.kind(), Kind::Invalid, "{error}");
            assert!(error.to_string().contains(port.name()), "{error}");
        }
        let mut into = vec![1; 2 * size];
        let error = port.read(BLOCKS, &mut into).expect_err("it passes the end");
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
        port.read(0, &mut into).expect("reads");
        assert!(into.iter().all(|byte| *byte == 0), "the good half of a bad batch was done");
    });
}

pub fn empty_commands_are_nothing(make: Make<'_>) {
    each(make, |port| {
        port.run(&mut []).expect("nothing");
        port.read(BLOCKS, &mut []).expect("nothing at the end");
        port.write(0, &[]).expect("nothing");
        port.trim(BLOCKS, 0).expect("nothing at the end");
    });
}

pub fn names_and_numbers_are_right(make: Make<'_>) {
    each(make, |port| {
        let geometry = port.geometry();
        geometry.check(port.name()).expect("the geometry is right");
        assert_eq!(geometry.block_count, BLOCKS);
        assert_eq!(geometry.size_bytes(), BLOCKS * u64::from(geometry.block_size_bytes));
        assert!(!port.name().is_empty());
    });
}
