//! Back ends that say nothing, or are not there: clients hear so in time and by the back end's
//! name, load balancers too, and nothing has to be started again once it is back.

use crate::common::raw::{PATIENCE, at_rest, metric, until};
use crate::common::{Answer, Dir, Lane, Request, Server, options_over};
use futures_util::future::join_all;
use penstock_gateway::{BackendOptions, Options};
use penstock_testkit::fake::{FakeAzure, FakeHandle, FakeOptions, FakeS3};
use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;

on_lane!(azure, Azure: a_back_end_that_falls_silent_is_told_in_time_and_comes_back,
    a_back_end_that_is_not_there_is_told_in_time_and_comes_back,
    a_back_end_that_answers_no_write_is_a_line);
on_lane!(s3, S3: a_back_end_that_falls_silent_is_told_in_time_and_comes_back,
    a_back_end_that_is_not_there_is_told_in_time_and_comes_back,
    a_back_end_that_answers_no_write_is_a_line);

fn impatient(options: &mut Options) {
    options.serve.backend_deadline_ms = 1000;
    options.serve.ready_timeout_ms = 200;
    options.settings.stall_timeout_ms = 500;
}

/// What every kind of request comes to while nothing answers.
async fn all_are_told(server: &Server) {
    let large = vec![7; 1 << 20];
    let batch = b"<Delete><Object><Key>k</Key></Object></Delete>";
    let source = [("x-amz-copy-source", "/lake/k")];
    let request = |method, path, body| Request { method, path, body, ..Default::default() };
    let asked = [
        request("GET", "/lake/k", &b""[..]),
        request("HEAD", "/lake/k", b""),
        request("GET", "/lake?list-type=2", b""),
        request("GET", "/", b""),
        request("PUT", "/lake/new", b"small"),
        request("PUT", "/lake/flows", &large),
        Request { headers: &source, ..request("PUT", "/lake/copied", b"") },
        request("DELETE", "/lake/k", b""),
        request("POST", "/lake?delete", batch),
    ];
    let answers = asked.iter().map(async |request| {
        let answer = server.send(request.clone()).await;
        is_told(request, &answer);
    });
    tokio::time::timeout(PATIENCE, join_all(answers)).await.expect("all are answered in time");
}

fn is_told(request: &Request<'_>, answer: &Answer) {
    let told = format!("{} {}: {}", request.method, request.path, answer.text());
    if request.path == "/lake?delete" && answer.status == 200 {
        assert!(
            answer.text().contains("<Error>") && !answer.text().contains("<Deleted>"),
            "{told}"
        );
        return;
    }
    assert_eq!(answer.status, 503, "{told}");
    if request.method != "HEAD" {
        assert_eq!(answer.code(), "ServiceUnavailable", "{told}");
        assert!(answer.text().contains("The back end `back` "), "{told}");
    }
    // Where it is, is no business of clients.
    assert!(!answer.text().contains("127.0.0.1"), "{told}");
}

/// What `/readyz` says once it has looked.
async fn is_unready(server: &Server, why: &str) {
    until(why, async || {
        let page = server.admin_page("/readyz").await;
        let is_told = page.text() == format!("no back end answers\nback: {why}\n");
        page.status == 503 && is_told && metric(server, READY).await == 0
    })
    .await;
}

const READY: &str = "penstock_backend_ready{backend=\"back\"}";

async fn is_back(server: &Server) {
    // At once, whatever was found a moment ago.
    assert_eq!(server.put("/lake/k", b"back again").await.status, 200);
    assert_eq!(server.get("/lake/k").await.body, b"back again");
    assert_eq!(server.put("/lake/large", &vec![7; 1 << 20]).await.status, 200);
    let is_ready = async || server.admin_page("/readyz").await.status == 200;
    until("ready", is_ready).await;
    assert_eq!(metric(server, READY).await, 1);
    for absent in ["/lake/new", "/lake/flows", "/lake/copied"] {
        assert_eq!(server.get(absent).await.status, 404, "{absent}");
    }
    at_rest(server).await;
}

async fn a_back_end_that_falls_silent_is_told_in_time_and_comes_back(lane: Lane) {
    let server = Server::on_with(lane, impatient).await;
    assert_eq!(server.put("/lake/k", b"there").await.status, 200);
    let fake = server.fake.as_ref().unwrap();
    fake.fault("stall=60000");
    let unready = is_unready(&server, "no answer in time");
    tokio::join!(all_are_told(&server), unready);
    fake.faults().clear();
    assert_eq!(server.get("/lake/k").await.body, b"there");
    is_back(&server).await;
}

/// A port that nobody else gets and that nobody listens on, until a service is behind it.
struct Door {
    address: SocketAddr,
    socket: TcpSocket,
}

impl Door {
    fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        Door { address: socket.local_addr().unwrap(), socket }
    }

    /// Lets everybody through to `service`, as long as the task runs.
    fn open(self, service: SocketAddr) -> JoinHandle<()> {
        let listener = self.socket.listen(64).unwrap();
        tokio::spawn(pass(listener, service))
    }
}

async fn pass(listener: TcpListener, service: SocketAddr) {
    let mut passing = tokio::task::JoinSet::new();
    loop {
        let (mut inner, _) = listener.accept().await.unwrap();
        passing.spawn(async move {
            let mut outer = TcpStream::connect(service).await.unwrap();
            tokio::io::copy_bidirectional(&mut inner, &mut outer).await.ok();
        });
    }
}

/// The same back end, at another address.
fn behind(door: SocketAddr, fake: &FakeHandle, lane: Lane) -> BackendOptions {
    let backend =
        if lane == Lane::Azure { crate::common::azure(fake) } else { crate::common::s3(fake) };
    let moved = |secret: &penstock_base::Secret| {
        let at = secret.reveal().replace(&fake.address().to_string(), &door.to_string());
        penstock_base::Secret::new(at)
    };
    let options = backend.options.iter().map(|(name, value)| (name.clone(), moved(value)));
    BackendOptions { options: options.collect(), ..backend }
}

async fn a_back_end_that_is_not_there_is_told_in_time_and_comes_back(lane: Lane) {
    let fake = match lane {
        Lane::Azure => FakeAzure::start(FakeOptions::azure()),
        _ => FakeS3::start(FakeOptions { digests: true, ..FakeOptions::s3() }),
    };
    let (fake, door) = (fake.unwrap(), Door::new());
    let mut options = options_over(behind(door.address, &fake, lane));
    impatient(&mut options);
    // It need not be there when the gateway starts.
    let server = Server::start_with(Dir::new(), options).await;
    tokio::join!(all_are_told(&server), is_unready(&server, "not reachable"));
    let passing = door.open(fake.address());
    let make = Request { method: "PUT", path: "/lake", ..Default::default() };
    assert_eq!(server.send(make).await.status, 200);
    is_back(&server).await;
    // Connections that stood are dead now, and there are no others.
    passing.abort();
    until("the door is shut", async || passing.is_finished()).await;
    tokio::join!(all_are_told(&server), is_unready(&server, "not reachable"));
    at_rest(&server).await;
}

/// Reads are answered, so that writes alone say it.
async fn a_back_end_that_answers_no_write_is_a_line(lane: Lane) {
    let server = Server::on_with(lane, impatient).await;
    let fake = server.fake.as_ref().unwrap();
    let put = if lane == Lane::Azure { "PutBlob" } else { "PutObject" };
    fake.fault(&format!("reset,op={put}"));
    let lost = || server.notices.lines().iter().filter(|it| it.contains("no answer")).count();
    assert_eq!(server.put("/lake/small", b"small").await.status, 503);
    assert_eq!(lost(), 1, "{:?}", server.notices.lines());
    fake.faults().clear();
    assert_eq!(server.put("/lake/small", b"small").await.status, 200);
    let lines = server.notices.lines();
    assert!(lines.iter().any(|it| it.contains("answers again")), "{lines:?}");
}
