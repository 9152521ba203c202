//! An account's credentials are one set: whatever of a process asks it, one token is fetched.

#![allow(clippy::unwrap_used)] // Helpers of tests fail as tests do.

use penstock_testkit::fake::{FakeAzure, FakeHandle, FakeOptions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const TOKEN: &str = "token-of-the-machine";
const CONTAINERS: [&str; 6] = ["a-one", "a-two", "a-three", "a-four", "a-five", "a-six"];

/// The machine's identity service, which counts what it is asked.
struct Identity {
    url: String,
    asked: Arc<AtomicUsize>,
}

impl Identity {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/msi", listener.local_addr().unwrap());
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                answer(socket.unwrap(), &count);
            }
        });
        Identity { url, asked }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

fn answer(mut socket: TcpStream, count: &AtomicUsize) {
    let mut reader = BufReader::new(socket.try_clone().unwrap());
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).unwrap() == 0 {
            return;
        }
    }
    assert!(head.starts_with("GET /msi?"), "{head}");
    count.fetch_add(1, Ordering::SeqCst);
    let body = format!("{{\"access_token\":\"{TOKEN}\",\"expires_in\":3600}}");
    let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}", body.len());
    socket.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).unwrap();
}

/// A configuration of one account with many containers, as buckets of their own and dynamic ones.
struct World {
    dir: PathBuf,
    identity: Identity,
    _azure: FakeHandle,
}

impl World {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("penstock-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let options = FakeOptions { bearer_token: Some(TOKEN.to_string()), ..FakeOptions::azure() };
        let azure = FakeAzure::start(options).unwrap();
        let buckets: String = CONTAINERS
            .iter()
            .map(|name| format!("[[bucket]]\nname = \"{name}\"\nbackend = \"blob\"\n"))
            .collect();
        let config = format!(
            "listen = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\n\
             [[backend]]\nname = \"blob\"\nurl = \"az://\"\nendpoint = \"{}\"\n\
             account_name = \"{}\"\nprovider = \"managed_identity\"\ndynamic = true\n{buckets}",
            azure.endpoint(),
            FakeOptions::azure().account,
        );
        std::fs::write(dir.join("gateway.toml"), config).unwrap();
        World { dir, identity: Identity::start(), _azure: azure }
    }

    fn penstock(&self, verb: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_penstock"));
        command.env_clear().args([verb, "--anonymous", "--config"]);
        command.arg(self.config()).env("IDENTITY_ENDPOINT", &self.identity.url);
        command.env("IDENTITY_HEADER", "header");
        command
    }

    fn config(&self) -> PathBuf {
        Path::new(&self.dir).join("gateway.toml")
    }
}

impl Drop for World {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.dir).ok();
    }
}

#[test]
fn doctor_asks_for_one_token() {
    let world = World::new("identity-doctor");
    let output = world.penstock("doctor").output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{told}");
    for container in CONTAINERS {
        let tried = format!("bucket `{container}`: may be written, read and removed from");
        assert!(told.contains(&tried), "{told}");
    }
    assert_eq!(world.identity.asked(), 1, "{told}");
}

/// Kills a server that its test leaves behind.
struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn ask(address: &str, path: &str) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    write!(socket, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn serve_asks_for_one_token_for_all_its_containers_and_probes() {
    let world = World::new("identity-serve");
    let mut child = world.penstock("serve").stdout(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let lines: Vec<String> = said.take(2).collect();
    let served = Served(child);
    let after = |line: &str| line.split_once("http://").unwrap().1.to_string();
    let (address, admin) = (after(&lines[0]), after(&lines[1]).replace("/metrics", ""));
    // All at once, before there is any token.
    std::thread::scope(|scope| {
        let address = &address;
        for container in CONTAINERS {
            scope.spawn(move || {
                let listed = ask(address, &format!("/{container}?list-type=2"));
                assert!(listed.starts_with("HTTP/1.1 200"), "{listed}");
            });
        }
        scope.spawn(|| {
            let ready = ask(&admin, "/readyz");
            assert!(ready.starts_with("HTTP/1.1 200"), "{ready}");
        });
    });
    let buckets = ask(&address, "/");
    assert!(CONTAINERS.iter().all(|name| buckets.contains(name)), "{buckets}");
    assert_eq!(world.identity.asked(), 1);
    drop(served);
}
