//! Starting and stopping a fake, in a process of its own or inside a test.

use super::exchange;
use super::fault::FaultPlan;
use super::link::Link;
use super::options::{AZURE_ACCOUNT, FakeOptions};
use super::stats::{RequestRecord, Stats, StatsSnapshot};
use super::vault::Vault;
use penstock_base::{Error, Kind, Result};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// Pause after an accept that failed.
const ACCEPT_AGAIN: Duration = Duration::from_millis(10);

/// Which service is faked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Amazon S3.
    S3,
    /// Azure Blob Storage.
    Azure,
}

/// One server: what all its connections share.
#[derive(Debug)]
pub struct Server {
    /// Which service is faked.
    pub protocol: Protocol,
    /// How it was set up.
    pub options: FakeOptions,
    /// What it keeps.
    pub vault: Vault,
    /// What goes wrong.
    pub faults: FaultPlan,
    /// What it counted.
    pub stats: Stats,
    /// The emulated way to the client.
    pub link: Arc<Link>,
    connections: AtomicU64,
}

impl Server {
    /// Prepares a server.
    ///
    /// # Errors
    /// `Invalid` when the directory cannot be used.
    pub fn new(protocol: Protocol, options: FakeOptions) -> Result<Self> {
        let vault = Vault::open(options.dir.as_deref()).map_err(|error| {
            let dir = options.dir.clone().unwrap_or_default();
            Error::new(Kind::Invalid, format!("cannot use directory {}", dir.display()))
                .with_source(error)
        })?;
        Ok(Server {
            protocol,
            vault,
            faults: FaultPlan::new(options.faults.clone(), options.seed),
            stats: Stats::new(options.log_entries),
            link: Arc::new(Link::new(options.link)),
            connections: AtomicU64::new(0),
            options,
        })
    }

    /// Binds the address of the options.
    ///
    /// # Errors
    /// `Invalid` when it cannot be bound.
    pub async fn bind(&self) -> Result<TcpListener> {
        TcpListener::bind(&self.options.listen).await.map_err(|error| {
            Error::new(Kind::Invalid, format!("cannot listen on {}", self.options.listen))
                .with_source(error)
        })
    }

    /// Serves connections until the future is dropped.
    pub async fn run(self: Arc<Self>, listener: TcpListener) {
        loop {
            // An accept fails when descriptors run out; one may be free a little later.
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            };
            let _ = stream.set_nodelay(true);
            let serial = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
            self.stats.connected();
            tokio::spawn(exchange::serve(self.clone(), stream, serial));
        }
    }
}

/// A running fake; it ends when this is dropped.
#[derive(Debug)]
pub struct FakeHandle {
    server: Arc<Server>,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl FakeHandle {
    fn start(protocol: Protocol, options: FakeOptions) -> Result<Self> {
        let server = Arc::new(Server::new(protocol, options)?);
        let (told, address) = std::sync::mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let serving = server.clone();
        let thread = std::thread::Builder::new()
            .name("penstock-fake".to_string())
            .spawn(move || {
                let runtime = runtime(serving.options.threads);
                runtime.block_on(async move {
                    let bound = serving.bind().await;
                    let listener = match bound {
                        Ok(listener) => listener,
                        Err(error) => return drop(told.send(Err(error))),
                    };
                    let address = listener.local_addr().map_err(|error| {
                        Error::new(Kind::Internal, "a bound socket has no address")
                            .with_source(error)
                    });
                    let _ = told.send(address);
                    tokio::select! {
                        () = serving.run(listener) => {}
                        _ = stopped => {}
                    }
                });
                runtime.shutdown_background();
            })
            .map_err(|error| {
                Error::new(Kind::Exhausted, "cannot start a thread").with_source(error)
            })?;
        let address = address.recv().unwrap_or_else(|_| {
            Err(Error::new(Kind::Internal, "the server's thread ended before it listened"))
        })?;
        Ok(FakeHandle { server, address, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The endpoint to give to a client: `http://127.0.0.1:PORT`, for Azure with the account
    /// behind it, as its emulator has it.
    pub fn endpoint(&self) -> String {
        match self.server.protocol {
            Protocol::S3 => format!("http://{}", self.address),
            Protocol::Azure => format!("http://{}/{}", self.address, self.server.options.account),
        }
    }

    /// Azure: the connection string of the account.
    pub fn connection_string(&self) -> String {
        format!(
            "DefaultEndpointsProtocol=http;AccountName={};AccountKey={};BlobEndpoint={};",
            self.server.options.account,
            self.server.options.key,
            self.endpoint()
        )
    }

    /// Counters at this moment.
    pub fn stats(&self) -> StatsSnapshot {
        self.server.stats.snapshot()
    }

    /// The last requests, oldest first.
    pub fn requests(&self) -> Vec<RequestRecord> {
        self.server.stats.requests()
    }

    /// Requests whose answers have not been sent yet.
    pub fn in_flight(&self) -> u64 {
        self.server.stats.in_flight()
    }

    /// Forgets everything counted.
    pub fn reset_stats(&self) {
        self.server.stats.reset();
    }

    /// What goes wrong; faults can be added and cleared while it runs.
    pub fn faults(&self) -> &FaultPlan {
        &self.server.faults
    }

    /// Arms a fault in its text form.
    ///
    /// # Panics
    /// When the text is no fault: a test that arms nothing proves nothing.
    pub fn fault(&self, text: &str) {
        self.faults().add(text.parse().unwrap_or_else(|error| panic!("{error}")));
    }

    /// What it keeps.
    pub fn vault(&self) -> &Vault {
        &self.server.vault
    }
}

impl Drop for FakeHandle {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A server thread that panicked has printed why.
            let _ = thread.join();
        }
    }
}

/// A runtime with so many workers; one worker runs on the thread that blocks on it.
pub fn runtime(threads: usize) -> tokio::runtime::Runtime {
    let mut builder = match threads {
        0 | 1 => tokio::runtime::Builder::new_current_thread(),
        threads => {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(threads);
            builder
        }
    };
    builder.enable_all().build().expect("the system grants a runtime its descriptors")
}

/// A fake S3.
#[derive(Debug)]
pub struct FakeS3;

impl FakeS3 {
    /// Starts one on a thread of its own.
    ///
    /// # Errors
    /// `Invalid` when the address or the directory cannot be used.
    pub fn start(options: FakeOptions) -> Result<FakeHandle> {
        FakeHandle::start(Protocol::S3, options)
    }
}

/// A fake Azure Blob service.
#[derive(Debug)]
pub struct FakeAzure;

impl FakeAzure {
    /// The account that [`FakeOptions::azure`] sets up.
    pub const ACCOUNT: &'static str = AZURE_ACCOUNT;

    /// Starts one on a thread of its own.
    ///
    /// # Errors
    /// `Invalid` when the address or the directory cannot be used.
    pub fn start(options: FakeOptions) -> Result<FakeHandle> {
        FakeHandle::start(Protocol::Azure, options)
    }
}
