//! Measures a device as threads of a process use it: random reads or writes of one size through a
//! port, for some seconds; one line of JSON tells what came of it. It decides how callers behave:
//! each thread gives batches and waits for them. The bench's `nvme_raw` runs it beside fio.
//!
//! Usage: `bench_device PATH key=value...` with io, queues, rw (read, write), size_bytes, depth,
//! threads, batch (commands given at once), wait (sleep, poll), memory (small, or huge: its pages),
//! seconds and seed, from which the places are drawn.
//! Writing destroys what the device holds.

use penstock_base::{Error, Kind, Result};
use penstock_device::{
    AlignedBuffer, Command, Discipline, Io, LargeBuffer, OpenOptions, Port, Wait, open,
};
use std::io::Write as _;
use std::ops::DerefMut;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// What to do.
struct Job {
    io: Io,
    discipline: Discipline,
    write: bool,
    size_bytes: usize,
    depth: u32,
    threads: usize,
    batch: usize,
    wait: Wait,
    has_huge_pages: bool,
    time: Duration,
    seed: u64,
}

fn invalid(message: String) -> Error {
    Error::new(Kind::Invalid, message).with_hint("See the first lines of this program's source")
}

impl Job {
    fn parse(words: &[String]) -> Result<Self> {
        let mut job = Job {
            io: Io::Uring,
            discipline: Discipline::Thread,
            write: false,
            size_bytes: 4096,
            depth: 32,
            threads: 1,
            batch: 0,
            wait: Wait::default(),
            has_huge_pages: false,
            time: Duration::from_secs(1),
            seed: 0,
        };
        for word in words {
            let (key, value) =
                word.split_once('=').ok_or_else(|| invalid(format!("{word} is no key=value")))?;
            let number =
                || value.parse::<usize>().map_err(|_| invalid(format!("{word} is no number")));
            match key {
                "io" => job.io = Io::by_name(value)?,
                "queues" => job.discipline = Discipline::by_name(value)?,
                "rw" => job.write = value == "write",
                "size_bytes" => job.size_bytes = number()?,
                "depth" => job.depth = number()? as u32,
                "threads" => job.threads = number()?,
                "wait" => job.wait = Wait::by_name(value)?,
                "batch" => job.batch = number()?,
                "memory" => {
                    job.has_huge_pages = match value {
                        "huge" => true,
                        "small" => false,
                        _ => return Err(invalid(format!("memory is small or huge, not {value}"))),
                    }
                }
                "seed" => job.seed = number()? as u64,
                "seconds" => {
                    let seconds = value.parse().map_err(|_| invalid(format!("{word}?")))?;
                    job.time = Duration::from_secs_f64(seconds);
                }
                _ => return Err(invalid(format!("there is no key {key}"))),
            }
        }
        job.batch = job.batch.max(1);
        Ok(job)
    }
}

/// A xorshift generator: where the next command goes.
struct Places {
    state: u64,
    count: u64,
}

impl Iterator for Places {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        // The upper half of the product: evenly spread without a division.
        Some(((u128::from(self.state) * u128::from(self.count)) >> 64) as u64)
    }
}

/// What one thread does; gives how many commands it carried out.
fn work(port: &Port, job: &Job, thread: u64, start: &Barrier) -> Result<u64> {
    let blocks = job.size_bytes as u64 / u64::from(port.geometry().block_size_bytes);
    let count = port.geometry().block_count / blocks.max(1);
    // No two threads of any two runs draw the same.
    let seed = job.seed << 16 | thread;
    let mut places = Places { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, count };
    let length = job.size_bytes * job.batch;
    let mut memory: Box<dyn DerefMut<Target = [u8]>> = match job.has_huge_pages {
        true => Box::new(LargeBuffer::new(length)),
        false => Box::new(AlignedBuffer::new(length, 4096)),
    };
    for (index, byte) in memory.iter_mut().enumerate() {
        *byte = (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[7];
    }
    let mut done = 0;
    start.wait();
    if job.time.is_zero() {
        // What it costs to be there: its time is taken from that of runs that move something.
        return Ok(0);
    }
    let begin = Instant::now();
    loop {
        let buffers = memory.chunks_exact_mut(job.size_bytes);
        let mut commands: Vec<Command<'_>> = buffers
            .zip(&mut places)
            .map(|(into, place)| match job.write {
                true => Command::Write { block: place * blocks, from: into },
                false => Command::Read { block: place * blocks, into },
            })
            .collect();
        port.run(&mut commands)?;
        done += job.batch as u64;
        if begin.elapsed() >= job.time {
            return Ok(done);
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    let (path, words) =
        arguments.split_first().ok_or_else(|| invalid("no device is named".to_string()))?;
    let job = Job::parse(words)?;
    let (write, queue_depth, wait) = (job.write, Some(job.depth), job.wait);
    let options = OpenOptions { write, queue_depth, wait, ..OpenOptions::new(job.io) };
    let port = Port::new(open(Path::new(path), &options)?, job.discipline)?;
    let start = Barrier::new(job.threads + 1);
    let (outcomes, wall) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..job.threads as u64)
            .map(|thread| {
                let (port, job, start) = (&port, &job, &start);
                scope.spawn(move || work(port, job, thread + 1, start))
            })
            .collect();
        start.wait();
        let begin = Instant::now();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<u64>>| {
            thread.join().expect("a thread of the bench does not panic")
        };
        (threads.into_iter().map(join).collect::<Vec<_>>(), begin.elapsed())
    });
    let commands = outcomes.into_iter().sum::<Result<u64>>()?;
    let line = format!("{{\"commands\": {commands}, \"wall_s\": {:.6}}}", wall.as_secs_f64());
    writeln!(std::io::stdout(), "{line}").map_err(|error| invalid(error.to_string()))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench_device: {error}");
            ExitCode::from(2)
        }
    }
}
