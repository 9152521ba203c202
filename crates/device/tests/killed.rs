//! A process that is killed in the middle of its work (SIGKILL), two hundred times on a file and
//! two hundred times on a loop device: what it had said to be durable is there, and the volume
//! opens at once. The test starts itself as the process that is killed, so it has a main function
//! of its own: `killed child PATH IO FIRST` works until it is killed, and prints what is durable.

use penstock_base::Result;
use penstock_device::model::Dice;
use penstock_device::volume::{File, FormatOptions, Lock, OpenFileOptions, Volume, format};
use penstock_device::{Discipline, Io, OpenOptions, Port, open};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

const KILLS: u64 = 200;
const VOLUME_BYTES: u64 = 16 << 20;
const RECORD_BYTES: usize = 16;
const BLOCK_BYTES: usize = 16 << 10;
/// Blocks of the database, written in turn.
const BLOCKS: u64 = 20;
/// Records of the log between two checkpoints.
const RECORDS: u64 = 12;

fn port(path: &Path, io: &str, create: bool) -> Result<Port> {
    let mut options = OpenOptions::new(Io::by_name(io)?);
    options.create_bytes = create.then_some(VOLUME_BYTES);
    Port::new(open(path, &options)?, Discipline::Thread)
}

fn file(volume: &Arc<Volume>, name: &str) -> Result<File> {
    volume.open_file(name, OpenFileOptions { create: true, lock: Lock::Write })
}

fn record(number: u64) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[8..].copy_from_slice(&(!number).to_le_bytes());
    bytes
}

fn block(number: u64) -> Vec<u8> {
    record(number).repeat(BLOCK_BYTES / RECORD_BYTES)
}

fn place(number: u64) -> u64 {
    number / RECORDS % BLOCKS * BLOCK_BYTES as u64
}

/// Appends to a log as a database does, says what is durable, and moves it to the database now and
/// then; until it is killed.
fn child(path: &Path, io: &str, first: u64) -> Result<()> {
    let volume = Volume::open(port(path, io, false)?)?;
    let mut log = file(&volume, "db.wal")?;
    let db = file(&volume, "db")?;
    for number in first.. {
        if number.is_multiple_of(RECORDS) {
            db.write_at(&block(number), place(number))?;
            db.sync()?;
            let next = file(&volume, "db.wal.checkpoint")?;
            next.truncate(0)?;
            next.write_at(&record(number), 0)?;
            next.sync()?;
            drop(log);
            volume.rename("db.wal.checkpoint", "db.wal")?;
            log = next;
        } else {
            log.write_at(&record(number), log.size_bytes())?;
            log.sync()?;
        }
        // A parent that is gone is the end, too.
        if writeln!(std::io::stdout(), "{number}").is_err() {
            break;
        }
    }
    Ok(())
}

/// Opens the volume after a kill; returns the last record, and checks all.
fn check(path: &Path, io: &str, said: u64) -> u64 {
    let volume = Volume::open(port(path, io, false).expect("it is free")).expect("it opens");
    let log = file(&volume, "db.wal").expect("it opens");
    let mut bytes = vec![0; log.size_bytes() as usize];
    log.read_at(&mut bytes, 0).expect("it can be read");
    assert_eq!(bytes.len() % RECORD_BYTES, 0, "a record was cut");
    let mut last = None;
    for found in bytes.chunks(RECORD_BYTES) {
        let number = u64::from_le_bytes(found[..8].try_into().expect("eight bytes"));
        assert_eq!(found, record(number));
        assert!(last.is_none_or(|last| number == last + 1), "{number} after {last:?}");
        if last.is_none() && number > 0 {
            let mut found = vec![0; BLOCK_BYTES];
            let db = file(&volume, "db").expect("it opens");
            db.read_at(&mut found, place(number)).expect("it can be read");
            assert!(found == block(number), "the checkpoint of {number} is not in the database");
        }
        last = Some(number);
    }
    assert!(last >= Some(said), "{said} was said to be durable, there is {last:?}");
    last.map_or(0, |last| last + 1)
}

fn make(path: &Path) {
    let port = port(path, "file", true).expect("it is free");
    format(&port, FormatOptions { force: true }).expect("it can be written");
}

fn parent(path: &Path) {
    make(path);
    let mut dice = Dice::new(7);
    let mut first = 0;
    for round in 0..KILLS {
        let io = ["file", "direct", "uring"][(round % 3) as usize];
        let me = std::env::current_exe().expect("it has a path");
        let mut child = Command::new(me)
            .args(["child", &path.display().to_string(), io, &first.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("it was asked for")).lines();
        let many = dice.below(25) as usize + 1;
        let said = lines.map_while(std::result::Result::ok).take(many).last();
        child.kill().expect("it runs");
        child.wait().expect("it has ended");
        let said = said.expect("it said something");
        first = check(path, io, said.parse().expect("a number"));
    }
    assert!(first > KILLS, "{first} records");
}

/// A file of the test; it is gone afterwards.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let name = format!("penstock-killed-{name}-{}", std::process::id());
        Scratch(std::env::temp_dir().join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A loop device on a file, detached afterwards.
struct Loop {
    device: PathBuf,
    _image: Scratch,
}

impl Loop {
    /// # Errors
    /// What `losetup` says; it takes root and a kernel with loop devices.
    fn new() -> std::result::Result<Self, String> {
        let image = Scratch::new("loop");
        let file = std::fs::File::create(&image.0).expect("it can be made");
        file.set_len(VOLUME_BYTES).expect("there is room");
        let mut losetup = Command::new("losetup");
        losetup.args(["--find", "--show", "--direct-io=on"]).arg(&image.0);
        let output = losetup.output().map_err(|error| format!("losetup: {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_string());
        }
        let device = String::from_utf8_lossy(&output.stdout).trim().into();
        Ok(Loop { device, _image: image })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.device).status();
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["child", path, io, first] => {
            let first = first.parse().expect("a number");
            child(Path::new(path), io, first).expect("nothing but the kill ends it");
        }
        // What runners ask of every test binary.
        words if words.contains(&"--list") => {}
        _ => {
            parent(&Scratch::new("file").0);
            match Loop::new() {
                Ok(device) => parent(&device.device),
                Err(why) => eprintln!("killed: NOT RUN on a loop device: {why}"),
            }
        }
    }
}
