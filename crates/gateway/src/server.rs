//! Listens, accepts connections, wraps them in TLS, and drains.

use crate::again::again;
use crate::draining::Drain;
use crate::front::Front;
use crate::handover::Handover;
use crate::intake::{self, Intake};
use crate::metered::Metered;
use crate::notices::Limit;
use crate::observed::Outbound;
use crate::telemetry::Telemetry;
use crate::tls::Tls;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use penstock_base::settings::ServeSettings;
use penstock_base::{Error, Kind, Result};
use penstock_store::near::Pacing;
use s3s::HttpError;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;

/// Wait after an accept that failed for want of descriptors, so that closing ones free some.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Most connections to the admin port at once.
const ADMIN_CONNECTIONS_MAX: u64 = 64;

/// Binds `listen` (`HOST:PORT`), which the setting of this flag says.
///
/// # Errors
/// `Invalid` for an address that cannot be parsed or resolved, `Conflict` for a port in use,
/// `Denied` for one that needs rights.
pub(crate) async fn bind(flag: &str, listen: &str) -> Result<(TcpListener, SocketAddr)> {
    let bound = TcpListener::bind(listen).await.and_then(|listener| {
        let address = listener.local_addr()?;
        Ok((listener, address))
    });
    bound.map_err(|cause| {
        let (kind, hint) = match cause.kind() {
            std::io::ErrorKind::AddrInUse => (
                Kind::Conflict,
                "Another process listens there: stop it, or choose another port (0 takes a free \
                 one)"
                    .to_string(),
            ),
            std::io::ErrorKind::PermissionDenied => {
                (Kind::Denied, "Ports below 1024 need rights: choose a higher one".to_string())
            }
            _ => {
                (Kind::Invalid, format!("Give {flag} as HOST:PORT with an address of this machine"))
            }
        };
        Error::new(kind, format!("cannot listen on {listen}")).with_source(cause).with_hint(hint)
    })
}

/// Which of the two ports a connection came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Port {
    S3,
    Admin,
}

/// What connections are held to.
#[derive(Clone)]
struct Connections {
    port: Port,
    http: http1::Builder,
    /// Bytes of the longest head.
    head_size: usize,
    head_timeout: Duration,
    stall_timeout: Duration,
    tls: Option<TlsAcceptor>,
}

/// A gateway's two ports and how they are served.
pub(crate) struct Server {
    pub s3: TcpListener,
    pub admin: Option<TcpListener>,
    pub front: Front,
    pub tls: Option<Arc<Tls>>,
    pub settings: ServeSettings,
}

impl Server {
    /// Serves until `shutdown` resolves, then says on `/readyz` that it goes, closes the port and
    /// lets requests in flight end, each step for its time.
    ///
    /// # Errors
    /// `Internal` when TLS cannot be set up.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<()> {
        let tls = self.tls.as_ref().map(|tls| tls.acceptor()).transpose()?;
        let s3 = connections(&self.settings, Port::S3, tls);
        let admin = connections(&self.settings, Port::Admin, None);
        let places = |count: u64| {
            let count = usize::try_from(count).unwrap_or(Semaphore::MAX_PERMITS);
            Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS)))
        };
        let (front, settings) = (&self.front, &self.settings);
        let drained = async {
            let mut drain = None;
            let graceful = GracefulShutdown::new();
            let said_no = async {
                shutdown.await;
                front.readiness.drain();
                let telemetry = front.telemetry().clone();
                drain =
                    Some(Drain::begin(telemetry, settings.drain_delay_ms, settings.drain_seconds));
                tokio::time::sleep(Duration::from_millis(settings.drain_delay_ms)).await;
            };
            // The port closes when accepting ends.
            let most = places(settings.connections_max);
            tokio::select! {
                () = accept_all(self.s3, &s3, front, most, &graceful) => {}
                () = said_no => {}
            }
            // Past the limit the connections are cut with the runtime; an upload cut so leaves no
            // object.
            let limit = Duration::from_secs(settings.drain_seconds);
            tokio::time::timeout(limit, graceful.shutdown()).await.ok();
            if let Some(drain) = drain {
                drain.end();
            }
        };
        let admin_accepting = async {
            let graceful = GracefulShutdown::new();
            match self.admin {
                Some(listener) => {
                    let most = places(ADMIN_CONNECTIONS_MAX);
                    accept_all(listener, &admin, front, most, &graceful).await;
                }
                None => std::future::pending().await,
            }
        };
        // The admin port answers to the end: that is when somebody wants to know.
        tokio::select! {
            () = drained => {}
            () = admin_accepting => {}
        }
        Ok(())
    }
}

fn connections(settings: &ServeSettings, port: Port, tls: Option<TlsAcceptor>) -> Connections {
    let head_timeout = Duration::from_millis(settings.head_timeout_ms);
    let head_size = usize::try_from(settings.head_size_max_bytes).unwrap_or(usize::MAX);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(head_timeout).max_header_size(head_size);
    let stall_timeout = Duration::from_millis(settings.client_stall_timeout_ms);
    Connections { port, http, head_size, head_timeout, stall_timeout, tls }
}

/// What a connection's requests tell it.
struct Ways {
    intake: Arc<Intake>,
    /// Only where nothing (such as TLS) comes between it and the HTTP layer.
    handover: Option<Arc<Handover>>,
}

async fn accept_all(
    listener: TcpListener,
    connections: &Connections,
    front: &Front,
    places: Arc<Semaphore>,
    graceful: &GracefulShutdown,
) {
    let pacing = Pacing::of_listener(&listener);
    loop {
        // Only with a place: further connections wait in the kernel's queue. The semaphore is
        // never closed, so there is a place in the end.
        let place = places.clone().acquire_owned().await.ok();
        match listener.accept().await {
            // One that has nothing to say of itself has broken already.
            Ok((stream, peer))
                if pacing.accepted(&stream, peer, || stream.local_addr()).is_err() => {}
            Ok((stream, peer)) => {
                let (connections, front) = (connections.clone(), front.clone());
                let watcher = graceful.watcher();
                tokio::spawn(connections.serve(stream, peer, place, front, watcher));
            }
            Err(error) => {
                front.telemetry().accept_failures.add(1);
                let (notices, words) = (&front.telemetry().notices, not_accepted(&error));
                notices.say_within(Limit::Accepts, "connections", &words);
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn not_accepted(error: &std::io::Error) -> String {
    format!(
        "a connection could not be accepted: {error}; clients wait. If it has too many \
         files open, raise the hard limit (ulimit -Hn, LimitNOFILE) or lower connections_max"
    )
}

/// A connection that counts as open for as long as this is there, however its task ends.
struct Open(Arc<Telemetry>);

impl Open {
    fn begin(telemetry: Arc<Telemetry>) -> Self {
        telemetry.connections.add(1);
        telemetry.connections_open.add(1);
        Open(telemetry)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.connections_open.sub(1);
    }
}

impl Connections {
    async fn serve(
        mut self,
        stream: TcpStream,
        peer: SocketAddr,
        _place: Option<OwnedSemaphorePermit>,
        front: Front,
        watcher: Watcher,
    ) {
        let telemetry = front.telemetry().clone();
        // Goes before the place does.
        let _open = (self.port == Port::S3).then(|| {
            front.stats.connection();
            Open::begin(telemetry.clone())
        });
        // A head must fit.
        let held = intake::held_bytes_most(telemetry.connections_open.get());
        self.http.max_buf_size(self.head_size.max(held));
        // Without it the last segment of an answer waits for the peer's delayed acknowledgement.
        stream.set_nodelay(true).ok();
        let (stats, open) = (front.stats.clone(), telemetry.clone());
        let stream = Metered::new(stream, stats, self.stall_timeout, open);
        let mut ways = Ways { intake: stream.intake(), handover: None };
        match &self.tls {
            None => {
                ways.handover = Some(stream.handover());
                self.serve_http(stream, ways, peer, front, watcher).await;
            }
            Some(tls) => match tokio::time::timeout(self.head_timeout, tls.accept(stream)).await {
                Ok(Ok(stream)) => self.serve_http(stream, ways, peer, front, watcher).await,
                Ok(Err(_)) | Err(_) => telemetry.tls_failures.add(1),
            },
        }
    }

    async fn serve_http(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
        ways: Ways,
        peer: SocketAddr,
        front: Front,
        watcher: Watcher,
    ) {
        let port = self.port;
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(ways.intake.clone());
            if let Some(handover) = &ways.handover {
                request.extensions_mut().insert(handover.clone());
            }
            answer(port, front.clone(), peer, request)
        });
        let connection = self.http.serve_connection(TokioIo::new(stream), service);
        // A connection that breaks is its client's affair, and the client knows.
        again(watcher.watch(connection)).await.ok();
    }
}

async fn answer(
    port: Port,
    front: Front,
    peer: SocketAddr,
    request: Request<Incoming>,
) -> std::result::Result<Response<Outbound>, HttpError> {
    match port {
        Port::S3 => front.answer(peer, request).await,
        Port::Admin => front.admin_answer(peer, request).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_whose_task_panics_is_open_no_more() {
        let telemetry = Arc::new(Telemetry::new(std::time::SystemTime::UNIX_EPOCH));
        let open = telemetry.clone();
        let task = std::thread::spawn(move || {
            let _open = Open::begin(open.clone());
            assert_eq!(open.connections_open.get(), 1);
            panic!("a task that ends so");
        });
        assert!(task.join().is_err());
        assert_eq!((telemetry.connections_open.get(), telemetry.connections.get()), (0, 1));
    }
}
