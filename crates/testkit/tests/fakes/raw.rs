//! A client of bytes: it sends what it is told and hides nothing of what comes back.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// Longest wait for a byte; a test that hangs fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// One answer.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
    /// Whether the body was as long as its head told.
    pub whole: bool,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A connection.
pub struct Raw {
    stream: TcpStream,
    held: Vec<u8>,
}

impl Raw {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Raw { stream, held: Vec::new() }
    }

    /// Gives up a read sooner than usual, where silence is what is expected.
    pub fn impatient(self) -> Self {
        self.stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        self
    }

    pub fn send(&mut self, bytes: &[u8]) -> &mut Self {
        self.stream.write_all(bytes).unwrap();
        self
    }

    /// No more requests will follow.
    pub fn end(&mut self) -> &mut Self {
        self.stream.shutdown(Shutdown::Write).unwrap();
        self
    }

    fn fill(&mut self) -> std::io::Result<usize> {
        let mut buf = [0; 65_536];
        let read = self.stream.read(&mut buf)?;
        self.held.extend_from_slice(&buf[..read]);
        Ok(read)
    }

    /// The next answer; `None` when the connection ends before its head is whole.
    pub fn answer_to(&mut self, method: &str) -> Option<Answer> {
        let head_len = loop {
            if let Some(at) = self.held.windows(4).position(|it| it == b"\r\n\r\n") {
                break at + 4;
            }
            if self.fill().ok()? == 0 {
                return None;
            }
        };
        let head = String::from_utf8(self.held.drain(..head_len).collect()).unwrap();
        let status: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut answer = Answer { status, head, body: Vec::new(), whole: true };
        let bodiless = method == "HEAD" || matches!(status, 100 | 204 | 304);
        let length: usize = match answer.header("Content-Length") {
            Some(length) if !bodiless => length.parse().unwrap(),
            _ => 0,
        };
        while self.held.len() < length {
            if !self.fill().is_ok_and(|read| read > 0) {
                break;
            }
        }
        let taken = length.min(self.held.len());
        answer.whole = taken == length;
        answer.body = self.held.drain(..taken).collect();
        Some(answer)
    }

    /// Sends a request and reads its answer.
    pub fn ask(
        &mut self,
        method: &str,
        target: &str,
        headers: &str,
        body: &[u8],
    ) -> Option<Answer> {
        let length = body.len();
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\
             {headers}\r\n"
        );
        self.send(head.as_bytes()).send(body).answer_to(method)
    }
}

/// One request on a connection of its own.
pub fn ask(address: SocketAddr, method: &str, target: &str, headers: &str) -> Option<Answer> {
    Raw::connect(address).ask(method, target, headers, b"")
}

/// Puts bytes and asserts that they were taken.
pub fn put(address: SocketAddr, target: &str, body: &[u8]) {
    let answer = Raw::connect(address).ask("PUT", target, "", body).expect("an answer to PUT");
    assert_eq!(answer.status, 200, "{}", answer.text());
}
