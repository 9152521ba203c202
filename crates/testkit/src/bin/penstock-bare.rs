//! `penstock-bare`: the least that a gateway could do, as the limit beside its figures.
//!
//! Answers the PUTs and GETs of one well-meaning client: a thread for each connection, blocking
//! calls, files sent by the kernel, bodies through one buffer. No signatures, digests, times or
//! limits, and no look at what a name holds: for the bench on this machine only, never a server.

use penstock_store::near::{self, Pacing};
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

const USAGE: &str = "\
penstock-bare --dir DIR | --to HOST:PORT[/ACCOUNT[?SAS]] | --relay HOST:PORT

The bare loop of a gateway, to measure what the kernel alone takes: no signatures, digests or
checks. Listens on a free port of 127.0.0.1.

  --dir DIR                objects are files: `sendfile` for a GET; write, fsync, rename for a PUT
  --to HOST:PORT           objects are behind an S3 server that takes unsigned requests
  --to HOST:PORT/ACCOUNT   the same for an Azure Blob server; ?SAS is added to each request, for
                           one that takes none without
  --relay HOST:PORT        gives every byte on, both ways, and understands none
";

/// As much as a gateway reads at once.
const BUFFER_BYTES: usize = 256 << 10;
/// What a gateway hands to the kernel at once.
const SENDFILE_BYTES: usize = 1 << 20;

/// Where the objects are.
#[derive(Clone)]
enum Behind {
    Dir(PathBuf),
    Server(Server),
    /// Whatever it is, unread.
    Relayed {
        host: String,
    },
}

#[derive(Clone)]
struct Server {
    host: String,
    /// `/ACCOUNT` of an Azure Blob server, else empty.
    account: String,
    /// What each request's query ends with, where it is not empty.
    sas: String,
}

impl Server {
    /// From `HOST:PORT[/ACCOUNT[?SAS]]`.
    fn parse(text: &str) -> Self {
        let (text, sas) = text.split_once('?').unwrap_or((text, ""));
        let (host, account) = text.split_once('/').unwrap_or((text, ""));
        let account = if account.is_empty() { String::new() } else { format!("/{account}") };
        Self { host: host.to_string(), account, sas: sas.to_string() }
    }

    /// The target of a request for `path`, in the server's own terms.
    fn target(&self, path: &str) -> String {
        let is_container = !path.trim_matches('/').contains('/') && !self.account.is_empty();
        let container = if is_container { "restype=container" } else { "" };
        let query: Vec<&str> =
            [container, &self.sas].into_iter().filter(|q| !q.is_empty()).collect();
        let mark = if query.is_empty() { "" } else { "?" };
        format!("{}{path}{mark}{}", self.account, query.join("&"))
    }
}

/// A connection and what was read of it beyond the last head.
struct Peer {
    stream: TcpStream,
    buffer: Vec<u8>,
    filled: usize,
}

/// First line and what matters of the fields.
struct Head {
    first: String,
    length: u64,
    range: Option<String>,
}

impl Head {
    fn word(&self, number: usize) -> Result<&str> {
        self.first.split(' ').nth(number).ok_or_else(|| odd("a first line without its words"))
    }
}

fn odd(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, what)
}

impl Peer {
    fn new(stream: TcpStream) -> Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; BUFFER_BYTES], filled: 0 })
    }

    /// The next head; what follows it stays in the buffer. `None`: the other side is done.
    fn head(&mut self) -> Result<Option<Head>> {
        loop {
            let end = self.buffer[..self.filled].windows(4).position(|four| four == b"\r\n\r\n");
            if let Some(end) = end {
                let head = parse(&self.buffer[..end])?;
                self.buffer.copy_within(end + 4..self.filled, 0);
                self.filled -= end + 4;
                return Ok(Some(head));
            }
            match self.stream.read(&mut self.buffer[self.filled..])? {
                0 => return Ok(None),
                count => self.filled += count,
            }
        }
    }

    /// Gives a body of `length` bytes on, as it comes.
    fn body(&mut self, length: u64, to: &mut impl Write) -> Result<()> {
        let mut left = length;
        while left > 0 {
            if self.filled == 0 {
                let most = usize::try_from(left).map_or(BUFFER_BYTES, |n| n.min(BUFFER_BYTES));
                self.filled = self.stream.read(&mut self.buffer[..most])?;
                if self.filled == 0 {
                    return Err(odd("a body ended early"));
                }
            }
            to.write_all(&self.buffer[..self.filled])?;
            left = left.saturating_sub(self.filled as u64);
            self.filled = 0;
        }
        Ok(())
    }
}

fn parse(bytes: &[u8]) -> Result<Head> {
    let text = std::str::from_utf8(bytes).map_err(|_| odd("a head that is no text"))?;
    let mut lines = text.split("\r\n");
    let first = lines.next().unwrap_or_default().to_string();
    let mut head = Head { first, length: 0, range: None };
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        match name.to_ascii_lowercase().as_str() {
            "content-length" => {
                head.length =
                    value.trim().parse().map_err(|_| odd("a length that is no number"))?;
            }
            "range" => head.range = Some(value.trim().to_string()),
            _ => {}
        }
    }
    Ok(head)
}

/// First and last byte of `bytes=A-B`.
fn span(range: &str) -> Result<(u64, u64)> {
    range
        .strip_prefix("bytes=")
        .and_then(|span| span.split_once('-'))
        .and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)))
        .ok_or_else(|| odd("a range that is not bytes=A-B"))
}

fn get_file(client: &mut Peer, path: &Path, head: &Head) -> Result<()> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let (first, last) = head.range.as_deref().map_or(Ok((0, size.saturating_sub(1))), span)?;
    let (mut at, end) = (first, size.min(last + 1));
    let status = if head.range.is_some() { "206 Partial Content" } else { "200 OK" };
    let length = end - at;
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n");
    rustix::net::send(&client.stream, answer.as_bytes(), rustix::net::SendFlags::MORE)?;
    while at < end {
        let most = usize::try_from(end - at).map_or(SENDFILE_BYTES, |n| n.min(SENDFILE_BYTES));
        if rustix::fs::sendfile(&client.stream, &file, Some(&mut at), most)? == 0 {
            return Err(odd("a file was cut"));
        }
    }
    Ok(())
}

fn put_file(client: &mut Peer, path: &Path, head: &Head) -> Result<()> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let parent = path.parent().ok_or_else(|| odd("a name without a directory"))?;
    let temp = parent.join(format!(".{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
    let mut file = File::create(&temp)?;
    client.body(head.length, &mut file)?;
    file.sync_data()?;
    std::fs::rename(&temp, path)?;
    File::open(parent)?.sync_all()?;
    client.stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
}

fn forward(client: &mut Peer, server: &mut Peer, behind: &Server, head: &Head) -> Result<()> {
    let (method, target) = (head.word(0)?, behind.target(head.word(1)?));
    let mut out = format!("{method} {target} HTTP/1.1\r\nhost: {}\r\n", behind.host);
    if !behind.account.is_empty() {
        out += "x-ms-version: 2021-12-02\r\nx-ms-blob-type: BlockBlob\r\n";
    }
    if let Some(range) = &head.range {
        out += &format!("range: {range}\r\n");
    }
    if method == "PUT" {
        out += &format!("content-length: {}\r\n", head.length);
    }
    server.stream.write_all((out + "\r\n").as_bytes())?;
    client.body(head.length, &mut server.stream)?;
    let answer = server.head()?.ok_or_else(|| odd("the server closed"))?;
    // What S3 says where Azure says 201.
    let status = answer.first.replace("201 Created", "200 OK");
    let length = answer.length;
    let told = format!("{status}\r\nContent-Length: {length}\r\n\r\n");
    client.stream.write_all(told.as_bytes())?;
    server.body(length, &mut client.stream)
}

/// Gives on what comes, until there is no more.
fn pass(mut from: &TcpStream, mut to: &TcpStream) -> Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let count = from.read(&mut buffer)?;
        if count == 0 {
            return to.shutdown(Shutdown::Write);
        }
        to.write_all(&buffer[..count])?;
    }
}

/// Both ways at once, since nothing tells whose turn it is.
fn relay(client: &TcpStream, server: &TcpStream) -> Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    std::thread::scope(|threads| {
        let back = threads.spawn(|| pass(server, client));
        pass(client, server)?;
        back.join().unwrap_or_else(|_| Err(odd("the way back panicked")))
    })
}

fn serve(stream: TcpStream, behind: &Behind) -> Result<()> {
    if let Behind::Relayed { host } = behind {
        return relay(&stream, &near::connect(host)?);
    }
    let mut client = Peer::new(stream)?;
    let mut server = match behind {
        Behind::Server(server) => Some(Peer::new(near::connect(&server.host)?)?),
        _ => None,
    };
    while let Some(head) = client.head()? {
        match (behind, &mut server) {
            (Behind::Server(behind), Some(server)) => {
                forward(&mut client, server, behind, &head)?;
            }
            (Behind::Dir(dir), _) => {
                let name = head.word(1)?.trim_matches('/');
                let path = dir.join(name);
                match head.word(0)? {
                    "GET" => get_file(&mut client, &path, &head)?,
                    "PUT" if name.contains('/') => put_file(&mut client, &path, &head)?,
                    "PUT" => {
                        std::fs::create_dir_all(&path)?;
                        client.body(head.length, &mut std::io::sink())?;
                        client.stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?;
                    }
                    _ => return Err(odd("neither GET nor PUT")),
                }
            }
            _ => return Err(odd("no connection behind")),
        }
    }
    Ok(())
}

fn behind(arguments: &[String]) -> Option<Behind> {
    match arguments {
        [flag, dir] if flag == "--dir" => Some(Behind::Dir(dir.into())),
        [flag, to] if flag == "--to" => Some(Behind::Server(Server::parse(to))),
        [flag, host] if flag == "--relay" => Some(Behind::Relayed { host: host.clone() }),
        _ => None,
    }
}

fn run(behind: &Behind) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    // Who asks is on this machine; what a gateway spares itself then, its limit does as well.
    let _ = Pacing::of_listener(&listener);
    let address = listener.local_addr()?;
    writeln!(std::io::stdout(), "penstock-bare listening on http://{address}")?;
    for stream in listener.incoming() {
        let (stream, behind) = (stream?, behind.clone());
        std::thread::spawn(move || {
            if let Err(error) = serve(stream, &behind) {
                eprintln!("penstock-bare: {error}");
            }
        });
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(behind) = behind(&arguments) else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(&behind) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("penstock-bare: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(address: &str, request: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Serves `behind` until the process ends; gives the address.
    fn started(behind: Behind) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                serve(stream.unwrap(), &behind).unwrap();
            }
        });
        address
    }

    #[test]
    fn a_directory_keeps_what_it_was_given() {
        let scratch = penstock_testkit::scratch::Scratch::new("bare");
        let address = started(Behind::Dir(scratch.path().to_path_buf()));
        asked(&address, "PUT /b HTTP/1.1\r\n\r\n");
        let put = asked(&address, "PUT /b/k HTTP/1.1\r\nContent-Length: 6\r\n\r\nabcdef");
        assert!(put.starts_with("HTTP/1.1 200 OK"), "{put}");
        let two = "GET /b/k HTTP/1.1\r\n\r\nGET /b/k HTTP/1.1\r\nRange: bytes=1-3\r\n\r\n";
        let got = asked(&address, two);
        assert!(got.contains("Content-Length: 6\r\n\r\nabcdef"), "{got}");
        assert!(got.ends_with("206 Partial Content\r\nContent-Length: 3\r\n\r\nbcd"), "{got}");
    }

    #[test]
    fn a_relay_gives_on_what_it_does_not_understand() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = String::new();
            stream.read_to_string(&mut asked).unwrap();
            stream.write_all(asked.to_uppercase().as_bytes()).unwrap();
        });
        assert_eq!(asked(&started(Behind::Relayed { host }), "no head at all"), "NO HEAD AT ALL");
    }

    #[test]
    fn arguments_say_where_objects_are() {
        let words = |line: &str| line.split(' ').map(str::to_string).collect::<Vec<_>>();
        assert!(matches!(
            behind(&words("--to h:1/acc")),
            Some(Behind::Server(to)) if to.host == "h:1" && to.target("/b/k") == "/acc/b/k"
        ));
        let signed = Server::parse("h:1/acc?sv=1");
        assert_eq!(signed.target("/b/k"), "/acc/b/k?sv=1");
        assert_eq!(signed.target("/b"), "/acc/b?restype=container&sv=1");
        assert_eq!(Server::parse("h:1").target("/b"), "/b");
        assert!(behind(&words("--dir")).is_none());
        assert!(span("bytes=5-").is_err());
    }
}
