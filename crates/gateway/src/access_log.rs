//! The access log, and that of requests to back ends: one line of JSON per request, written by a
//! thread of its own.
//!
//! A log that cannot keep up, or a full disk, loses lines and counts them: requests never wait for
//! it. It decides nothing about what may stand in a line; a [`Line`] holds nothing secret.

use crate::telemetry::Telemetry;
use penstock_base::{Error, Kind, Result};
use rustix::fs::Access;
use serde::{Serialize, Serializer};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::SystemTime;

/// Lines that wait to be written: some megabytes.
const QUEUE_LINES: usize = 8192;
/// Bytes gathered before one write.
const BATCH_BYTES: usize = 64 * 1024;

/// What a line tells.
#[derive(Debug, Serialize)]
pub struct Line {
    /// When the head was read.
    #[serde(serialize_with = "rfc3339")]
    pub time: SystemTime,
    /// The x-amz-request-id.
    pub id: String,
    /// The client's address: as trusted proxies tell it, else the other end of the connection.
    pub peer: String,
    /// The access key id whose signature held; none for unsigned and refused requests.
    pub key_id: Option<String>,
    /// The access key id that a request named whose signature did not hold; operation, bucket and
    /// key are then what it asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claimed_key_id: Option<String>,
    /// The S3 operation, where one was recognised.
    pub operation: Option<String>,
    /// The HTTP method.
    pub method: String,
    /// The bucket.
    pub bucket: Option<String>,
    /// The object's key.
    pub key: Option<String>,
    /// HTTP status; 0 where the client went before there was one.
    pub status: u16,
    /// The S3 code of an answer that is an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Why it is one: what failed, and what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Whether the answer was sent whole.
    #[serde(rename = "whole")]
    pub is_whole: bool,
    /// Body bytes received.
    pub received_bytes: u64,
    /// Body bytes sent.
    pub sent_bytes: u64,
    /// Until the answer's head.
    pub first_byte_ms: f64,
    /// Until the answer's last byte.
    pub total_ms: f64,
    /// Requests to back ends over HTTP.
    pub backend_requests: u64,
    /// Their time, added up.
    pub backend_ms: f64,
    /// What the client calls itself.
    pub user_agent: String,
    /// The trace of which the request is a span.
    pub trace_id: String,
    /// The request's span: the parent of those of its requests to back ends.
    pub span_id: String,
    /// The span that the client named in `traceparent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<String>,
}

pub(crate) fn rfc3339<S: Serializer>(
    time: &SystemTime,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    match jiff::Timestamp::try_from(*time) {
        Ok(time) => serializer.serialize_str(&format!("{time:.3}")),
        Err(error) => Err(serde::ser::Error::custom(error)),
    }
}

/// Where lines go.
#[derive(Clone, Debug)]
enum Target {
    Stdout,
    File(PathBuf),
}

enum Message {
    Line(Vec<u8>),
    Reopen,
}

/// Takes lines. Clones write to the same log; the last one that goes waits until all is written.
#[derive(Clone, Debug)]
pub struct AccessLog(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    sender: Option<SyncSender<Message>>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl AccessLog {
    /// Opens the log that a setting names: `-` is stdout, anything else a file that lines are added
    /// to, and nothing no log.
    ///
    /// # Errors
    /// `Invalid` for a file that cannot be opened.
    pub fn open(
        setting: &'static str,
        target: &str,
        telemetry: &Arc<Telemetry>,
    ) -> Result<Option<Self>> {
        let target = match target {
            "" => return Ok(None),
            "-" => Target::Stdout,
            path => Target::File(PathBuf::from(path)),
        };
        let sink = open_sink(&target).map_err(|error| named(setting, error))?;
        let telemetry = Arc::clone(telemetry);
        let (sender, receiver) = sync_channel(QUEUE_LINES);
        let writer = std::thread::Builder::new()
            .name("penstock-log".to_string())
            .spawn(move || write_all(&receiver, (setting, &target), sink, &telemetry))
            .map_err(|cause| {
                Error::new(Kind::Exhausted, "the thread of a log cannot be started")
                    .with_source(cause)
            })?;
        let writer = Mutex::new(Some(writer));
        Ok(Some(AccessLog(Arc::new(Shared { sender: Some(sender), writer }))))
    }

    /// Adds a line, or counts it as lost where the queue is full.
    pub fn write(&self, line: &impl Serialize, telemetry: &Telemetry) {
        let json = serde_json::to_vec(line).map(|mut json| {
            json.push(b'\n');
            json
        });
        let sender = self.0.sender.as_ref();
        let is_sent = json.is_ok_and(|json| {
            sender.is_some_and(|sender| sender.try_send(Message::Line(json)).is_ok())
        });
        if !is_sent {
            telemetry.log_lost.add(1);
        }
    }

    /// Opens the file again under its name, for whoever moved it away.
    pub fn reopen(&self) {
        if let Some(sender) = &self.0.sender {
            // A full queue is a log in trouble; the next signal finds it better.
            sender.try_send(Message::Reopen).ok();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.sender = None;
        let writer = self.writer.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer {
            writer.join().ok();
        }
    }
}

/// Where a log's bytes go, and whether the last of them ended a line.
struct Sink<W> {
    out: W,
    is_torn: bool,
}

impl<W: Write> Sink<W> {
    /// Writes whole lines; the number of those that did not get out whole. A line that was cut off,
    /// by a full disk say, is ended before the next one: a reader loses that one alone.
    fn write_lines(&mut self, lines: &[u8]) -> u64 {
        let whole = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        if self.is_torn && self.write_some(b"\n") == 1 {
            self.is_torn = false;
        }
        // Bytes behind a torn line would be a part of it.
        let written = if self.is_torn { 0 } else { self.write_some(lines) };
        if let Some(last) = written.checked_sub(1) {
            self.is_torn = lines[last] != b'\n';
        }
        whole(&lines[written..])
    }

    /// Writes until something fails; the number of bytes that got out.
    fn write_some(&mut self, bytes: &[u8]) -> usize {
        let mut written = 0;
        while written < bytes.len() {
            match self.out.write(&bytes[written..]) {
                Ok(0) => break,
                Ok(more) => written += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        written
    }
}

/// Whether a log could be opened. Makes none.
///
/// # Errors
/// As [`AccessLog::open`].
pub fn check(setting: &'static str, target: &str) -> Result<()> {
    if matches!(target, "" | "-") {
        return Ok(());
    }
    let path = Path::new(target);
    let opened = match OpenOptions::new().append(true).open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let may = Access::WRITE_OK | Access::EXEC_OK;
            rustix::fs::access(parent.unwrap_or(Path::new(".")), may).map_err(Into::into)
        }
        opened => opened.map(drop),
    };
    opened.map_err(|cause| named(setting, unopened(path, cause)))
}

fn named(setting: &str, error: Error) -> Error {
    error.with_hint(format!("{setting} names a file in a directory that this user may write to"))
}

/// Unbuffered: what was written is out.
fn open_sink(target: &Target) -> Result<Sink<File>> {
    match target {
        Target::Stdout => {
            let out = std::io::stdout().as_fd().try_clone_to_owned().map_err(|cause| {
                Error::new(Kind::Invalid, "stdout cannot be written to").with_source(cause)
            })?;
            Ok(Sink { out: File::from(out), is_torn: false })
        }
        Target::File(path) => {
            let out = open_file(path)?;
            Ok(Sink { is_torn: is_cut_off(path, &out), out })
        }
    }
}

/// Whether a file's last line has no end, as a killed process may have left it. What cannot be read
/// counts as whole.
fn is_cut_off(path: &Path, file: &File) -> bool {
    let len = file.metadata().map_or(0, |metadata| metadata.len());
    let last = |at| {
        let mut last = [0];
        File::open(path)?.read_exact_at(&mut last, at).map(|()| last[0])
    };
    len.checked_sub(1).is_some_and(|at| last(at).is_ok_and(|last| last != b'\n'))
}

fn open_file(path: &Path) -> Result<File> {
    let opened = OpenOptions::new().create(true).append(true).open(path);
    opened.map_err(|cause| unopened(path, cause))
}

fn unopened(path: &Path, cause: std::io::Error) -> Error {
    Error::new(Kind::Invalid, format!("the log {} cannot be opened", path.display()))
        .with_source(cause)
}

/// Until every sender is gone.
fn write_all(
    receiver: &Receiver<Message>,
    (setting, target): (&'static str, &Target),
    mut sink: Sink<File>,
    telemetry: &Telemetry,
) {
    let mut batch = Vec::with_capacity(BATCH_BYTES);
    while let Ok(first) = receiver.recv() {
        let mut next = Some(first);
        let mut must_reopen = false;
        while let Some(message) = next {
            match message {
                Message::Line(line) => batch.extend_from_slice(&line),
                Message::Reopen => must_reopen = true,
            }
            let has_room = batch.len() < BATCH_BYTES && !must_reopen;
            next = if has_room { receiver.try_recv().ok() } else { None };
        }
        // Both logs may be there, and each has its own thread.
        let turn = matches!(target, Target::Stdout).then(|| std::io::stdout().lock());
        let lost = sink.write_lines(&batch);
        drop(turn);
        if lost > 0 {
            telemetry.log_lost.add(lost);
        }
        batch.clear();
        if must_reopen {
            match open_sink(target) {
                Ok(opened) => sink = opened,
                // The old file goes on, which is better than none; whoever moved it must know.
                Err(error) => {
                    let error = named(setting, error);
                    let words = format!("{error}; lines go on into the file that was open");
                    telemetry.notices.say(setting, &words);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    fn line(key: &str) -> Line {
        Line {
            time: UNIX_EPOCH + Duration::from_millis(1500),
            id: "AB".into(),
            peer: "127.0.0.1".into(),
            key_id: Some("K".into()),
            claimed_key_id: None,
            operation: Some("GetObject".into()),
            method: "GET".into(),
            bucket: Some("lake".into()),
            key: Some(key.into()),
            status: 200,
            error: None,
            cause: None,
            is_whole: true,
            received_bytes: 0,
            sent_bytes: 5,
            first_byte_ms: 0.25,
            total_ms: 1.5,
            backend_requests: 1,
            backend_ms: 0.125,
            user_agent: "test".into(),
            trace_id: "4b".into(),
            span_id: "0a".into(),
            parent_id: None,
        }
    }

    fn telemetry() -> Arc<Telemetry> {
        Arc::new(Telemetry::new(UNIX_EPOCH))
    }

    #[test]
    fn a_line_is_one_json_object_whatever_the_key() {
        let json = serde_json::to_string(&line("a\n\"b\u{1}")).unwrap();
        assert!(!json.contains('\n'));
        let back: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(back["time"], "1970-01-01T00:00:01.500Z");
        assert_eq!(back["key"], "a\n\"b\u{1}");
    }

    #[test]
    fn lines_are_written_and_the_file_is_opened_again_after_a_move() {
        let dir = std::env::temp_dir().join(format!("penstock-log-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (path, moved) = (dir.join("log"), dir.join("log.1"));
        let telemetry = telemetry();
        let log = AccessLog::open("access_log", path.to_str().unwrap(), &telemetry);
        let log = log.unwrap().unwrap();
        log.write(&line("one"), &telemetry);
        // The first line is in the first file before that is moved.
        while std::fs::metadata(&path).unwrap().len() == 0 {
            std::thread::yield_now();
        }
        std::fs::rename(&path, &moved).unwrap();
        log.reopen();
        log.write(&line("two"), &telemetry);
        drop(log);
        let text = |path: &Path| std::fs::read_to_string(path).unwrap();
        assert!(text(&moved).contains("\"one\"") && !text(&moved).contains("\"two\""));
        assert!(text(&path).contains("\"two\""));
        assert_eq!(telemetry.log_lost.get(), 0);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    /// Takes so many bytes, then nothing until it is given room again.
    struct Small {
        bytes: Vec<u8>,
        room: usize,
    }

    impl Write for Small {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let taken = bytes.len().min(self.room).min(3);
            if taken == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            self.room -= taken;
            self.bytes.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_a_disk_cuts_off_are_counted_and_spoil_no_other() {
        for room in 0..=18 {
            let mut sink = Sink { out: Small { bytes: Vec::new(), room }, is_torn: false };
            let lost = [sink.write_lines(b"first\nsecond\n"), sink.write_lines(b"third\n")];
            sink.out.room = 100;
            assert_eq!(sink.write_lines(b"fourth\n"), 0);
            let text = String::from_utf8(sink.out.bytes).unwrap();
            let lines = ["first", "second", "third", "fourth"];
            let whole = text.lines().filter(|line| lines.contains(line)).count() as u64;
            // A line that lacks nothing but its end is there after all.
            let spared = u64::from([5, 12, 18].contains(&room));
            assert_eq!(whole + lost[0] + lost[1], 4 + spared, "{room}: {lost:?} {text:?}");
            assert!(text.ends_with("\nfourth\n") || text == "fourth\n", "{room}: {text:?}");
            assert!(text.lines().all(|line| !line.is_empty()), "{room}: {text:?}");
        }
    }

    #[test]
    fn what_a_killed_process_left_of_a_line_is_ended() {
        let path = std::env::temp_dir().join(format!("penstock-torn-{}", std::process::id()));
        std::fs::write(&path, "{\"key\":\"whole\"}\n{\"key\":\"to").unwrap();
        for key in ["one", "two"] {
            let telemetry = telemetry();
            let log = AccessLog::open("access_log", path.to_str().unwrap(), &telemetry);
            let log = log.unwrap().unwrap();
            log.write(&line(key), &telemetry);
            drop(log);
        }
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..2], ["{\"key\":\"whole\"}", "{\"key\":\"to"]);
        assert!(lines[2].contains("\"one\"") && lines[3].contains("\"two\""), "{text}");
        assert_eq!(lines.len(), 4);
    }

    #[test]
    fn a_full_disk_is_counted() {
        let telemetry = telemetry();
        let log = AccessLog::open("access_log", "/dev/full", &telemetry).unwrap().unwrap();
        log.write(&line("lost"), &telemetry);
        drop(log);
        assert_eq!(telemetry.log_lost.get(), 1);
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_told() {
        let error = AccessLog::open("backend_log", "/nowhere/log", &telemetry()).unwrap_err();
        assert!(error.to_string().contains("/nowhere/log"), "{error}");
        assert!(error.to_string().contains("backend_log names a file"), "{error}");
        assert!(AccessLog::open("backend_log", "", &telemetry()).unwrap().is_none());
        assert_eq!(
            check("backend_log", "/nowhere/log").unwrap_err().to_string(),
            error.to_string()
        );
    }

    #[test]
    fn a_check_leaves_no_file_and_takes_none_away() {
        let path = std::env::temp_dir().join(format!("penstock-check-{}", std::process::id()));
        let name = path.to_str().unwrap();
        check("access_log", name).unwrap();
        assert!(!path.exists());
        std::fs::write(&path, "").unwrap();
        check("access_log", name).unwrap();
        assert!(path.exists());
        std::fs::remove_file(&path).unwrap();
    }
}
