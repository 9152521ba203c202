//! Uploads that the back end does not take: the gateway holds their senders back, and its memory
//! does not grow with what they would send.

#![allow(clippy::unwrap_used)] // Helpers of tests fail as tests do.

use penstock_testkit::fake::{FakeAzure, FakeHandle, FakeOptions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// As many as there are places.
const UPLOADS: usize = 64;
const UPLOAD_BYTES: usize = 16 << 20;
/// What a gateway of a debug build may hold then, itself included: an eighth of what is offered.
const PEAK_BYTES_MAX: u64 = (UPLOADS * UPLOAD_BYTES / 8) as u64;
const PATIENCE: Duration = Duration::from_secs(60);

/// A gateway before an Azure fake.
struct World {
    dir: PathBuf,
    child: Child,
    address: String,
    admin: String,
    azure: FakeHandle,
}

impl World {
    fn start() -> Self {
        let dir = std::env::temp_dir().join(format!("penstock-pressure-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let azure = FakeAzure::start(FakeOptions::azure()).unwrap();
        let config = format!(
            "listen = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\nrequests_max = {UPLOADS}\n\
             stall_timeout_ms = 5000\n[[backend]]\nname = \"blob\"\nurl = \"az://\"\n\
             connection_string = \"{}\"\ndynamic = true\n",
            azure.connection_string(),
        );
        std::fs::write(dir.join("gateway.toml"), config).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_penstock"));
        command.env_clear().args(["serve", "--anonymous", "--config"]);
        let mut child =
            command.arg(dir.join("gateway.toml")).stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let lines: Vec<String> = said.take(2).collect();
        let after = |line: &str| line.split_once("http://").unwrap().1.to_string();
        let (address, admin) = (after(&lines[0]), after(&lines[1]).replace("/metrics", ""));
        World { dir, child, address, admin, azure }
    }

    /// A line of the child's `/proc/PID/status`, in bytes.
    fn memory(&self, name: &str) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    fn metric(&self, name: &str) -> u64 {
        let page = answer(begun(&self.admin, "GET", "/metrics", 0));
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("{name} is missing in {page}")).parse().unwrap()
    }

    fn until(&self, what: &str, has_come: impl Fn() -> bool) {
        let begun = Instant::now();
        while !has_come() {
            assert!(begun.elapsed() < PATIENCE, "never: {what}");
            std::thread::yield_now();
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        std::fs::remove_dir_all(&self.dir).ok();
    }
}

/// A request whose head is sent.
fn begun(address: &str, method: &str, path: &str, length: usize) -> TcpStream {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        socket,
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n"
    )
    .unwrap();
    socket
}

fn answer(mut socket: TcpStream) -> String {
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

/// Sends a whole body, as far as it is taken, while the answer is waited for.
fn upload(address: &str, path: &str, body: &[u8]) -> String {
    let socket = begun(address, "PUT", path, body.len());
    let mut out = socket.try_clone().unwrap();
    std::thread::scope(|scope| {
        // It ends when all is sent, or the gateway closes.
        scope.spawn(move || out.write_all(body).ok());
        let mut reader = BufReader::new(socket);
        let mut said = String::new();
        // A connection that is reset behind its answer has told it.
        while reader.read_line(&mut said).is_ok_and(|read| read > 0) {}
        said
    })
}

#[test]
fn uploads_that_nobody_takes_wait_with_their_senders() {
    let world = World::start();
    let made = answer(begun(&world.address, "PUT", "/lake", 0));
    assert!(made.starts_with("HTTP/1.1 200"), "{made}");
    let idle = world.memory("VmHWM:");
    world.azure.fault("stall=60000,op=PutBlob");
    let body = vec![7; UPLOAD_BYTES];
    std::thread::scope(|scope| {
        let uploads: Vec<_> = (0..UPLOADS)
            .map(|number| {
                let (address, body) = (&world.address, &body);
                scope.spawn(move || upload(address, &format!("/lake/k{number}"), body))
            })
            .collect();
        world.until("all have a place", || {
            world.metric("penstock_requests_in_flight") == UPLOADS as u64
        });
        // One more has none, and is told so at once.
        let refused = upload(&world.address, "/lake/more", b"small");
        assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
        assert!(refused.contains("<Code>SlowDown</Code>"), "{refused}");
        assert!(refused.to_ascii_lowercase().contains("retry-after: 1\r\n"), "{refused}");
        for upload in uploads {
            let said = upload.join().unwrap();
            assert!(said.starts_with("HTTP/1.1 503"), "{said}");
            assert!(said.contains("The back end `blob` cannot be reached"), "{said}");
        }
    });
    let peak = world.memory("VmHWM:");
    let sent = world.metric("penstock_received_bytes_total");
    let told = format!("{} MB idle, {} MB at most, {} MB in", idle >> 20, peak >> 20, sent >> 20);
    assert!(peak < PEAK_BYTES_MAX, "{told}");
    // What came in lies in sockets that nobody read, most of it; the rest never left its senders.
    assert!(sent < (UPLOADS * UPLOAD_BYTES) as u64, "{told}");
    world.azure.faults().clear();
    let put = upload(&world.address, "/lake/k0", &body);
    assert!(put.starts_with("HTTP/1.1 200"), "{put}");
    assert_eq!(world.metric("penstock_requests_in_flight"), 0);
}
