//! What a gigabyte costs the client: GETs bodies of 1 GiB from a server in another process into a
//! reused buffer of 8 MiB, and prints the CPU time of this process per GB beside that of plain
//! blocking socket reads.
//!
//! ```text
//! cargo run --release -p penstock-store --example get_cost -- [bodies] [runs]
//! ```

use http::Request;
use penstock_store::{HttpClient, HttpOptions, Observer, Payload, RequestEvent};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

const BODY_BYTES: u64 = 1 << 30;
const BUFFER_BYTES: usize = 8 << 20;

#[derive(Debug)]
struct Deaf;

impl Observer for Deaf {
    fn request_finished(&self, _event: RequestEvent) {}
}

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|word| word == "serve") {
        return serve();
    }
    let number = |index: usize, default| {
        arguments.get(index).and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (bodies, runs) = (number(0, 4u32), number(1, 3u32));
    let server = Server::start()?;
    let http = format!("http://{}", server.address);
    let https = format!("https://{}", server.tls_address);
    for _ in 0..runs {
        report("blocking sockets", bodies, || plain(&server.address, bodies))?;
        report("penstock client", bodies, || ours(&http, bodies, BODY_BYTES))?;
        report("in ranges of 8 MiB", bodies, || ours(&http, bodies, BUFFER_BYTES as u64))?;
        report("in ranges of 64 KiB", bodies, || ours(&http, bodies, 64 << 10))?;
        report("https", bodies, || ours(&https, bodies, BODY_BYTES))?;
    }
    Ok(())
}

fn report(name: &str, bodies: u32, run: impl FnOnce() -> Outcome<()>) -> Outcome<()> {
    let (cpu, wall) = (cpu_seconds()?, Instant::now());
    run()?;
    let gigabytes = f64::from(bodies) * BODY_BYTES as f64 / 1e9;
    let (cpu, wall) = (cpu_seconds()? - cpu, wall.elapsed().as_secs_f64());
    let mut out = std::io::stdout().lock();
    writeln!(out, "{name:20} {:.3} CPU s/GB  {:.2} GB/s", cpu / gigabytes, gigabytes / wall)?;
    Ok(())
}

/// User and system time of this process, from clock ticks of 10 ms.
fn cpu_seconds() -> Outcome<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: Vec<f64> = fields.skip(11).take(2).filter_map(|field| field.parse().ok()).collect();
    Ok(ticks.iter().sum::<f64>() / 100.0)
}

fn plain(address: &str, bodies: u32) -> Outcome<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut stream = TcpStream::connect(address)?;
    for _ in 0..bodies {
        write!(stream, "GET /{BODY_BYTES} HTTP/1.1\r\nHost: x\r\n\r\n")?;
        let mut left = BODY_BYTES + HEAD.len() as u64 + 10;
        while left > 0 {
            let count = stream.read(&mut buffer)?;
            left = left.checked_sub(count as u64).filter(|_| count > 0).ok_or("odd answer")?;
        }
    }
    Ok(())
}

fn ours(root: &str, bodies: u32, piece: u64) -> Outcome<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let url = format!("{root}/{piece}");
    let task = runtime.spawn(async move {
        let http = HttpClient::new(HttpOptions::default(), Arc::new(Deaf))?.with_verify_tls(false);
        let mut buffer = vec![0; BUFFER_BYTES];
        for _ in 0..u64::from(bodies) * (BODY_BYTES / piece) {
            let request = Request::get(url.as_str()).body(()).expect("a request").into_parts().0;
            let mut answer = http.send(request, Payload::default()).await?;
            while answer.body.read_full(&mut buffer).await? > 0 {}
        }
        Ok::<(), penstock_base::Error>(())
    });
    Ok(runtime.block_on(task)??)
}

struct Server {
    child: Child,
    address: String,
    tls_address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        // A server that has ended already is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start() -> Outcome<Self> {
        let program = std::env::current_exe()?;
        let mut child = Command::new(program).arg("serve").stdout(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("no pipe")?).lines();
        let mut line = || lines.next().ok_or("no address");
        let (address, tls_address) = (line()??, line()??);
        Ok(Server { child, address, tls_address })
    }
}

const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\n";

/// Answers `GET /<n>` with n bytes, on one port plain and on another with TLS.
fn serve() -> Outcome<()> {
    let (plain, secure) = (TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?);
    let mut out = std::io::stdout();
    writeln!(out, "{}\n{}", plain.local_addr()?, secure.local_addr()?)?;
    let config = tls_config()?;
    std::thread::spawn(move || {
        for stream in secure.incoming().flatten() {
            let Ok(session) = ServerConnection::new(config.clone()) else { return };
            // A client that hangs up ends its connection, not the server.
            let _ = answer(StreamOwned::new(session, stream));
        }
    });
    for stream in plain.incoming() {
        let stream = stream?;
        stream.set_nodelay(true)?;
        let _ = answer(stream);
    }
    Ok(())
}

fn tls_config() -> Outcome<Arc<ServerConfig>> {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(vec!["localhost".to_string()])?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)?;
    Ok(Arc::new(config))
}

fn answer(mut stream: impl Read + Write) -> Outcome<()> {
    let zeros = vec![0; 1 << 20];
    loop {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            if stream.read(&mut byte)? == 0 {
                return Ok(());
            }
            head.push(byte[0]);
        }
        let line = String::from_utf8(head)?;
        let length = line.split('/').nth(1).and_then(|rest| rest.split(' ').next());
        let length: u64 = length.ok_or("no length")?.parse()?;
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n")?;
        let mut left = length;
        while left > 0 {
            let count = left.min(zeros.len() as u64);
            stream.write_all(&zeros[..count as usize])?;
            left -= count;
        }
        stream.flush()?;
    }
}
