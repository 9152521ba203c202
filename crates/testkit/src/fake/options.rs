//! How a fake is set up.

use super::fault::FaultSpec;
use super::link::LinkOptions;
use std::path::PathBuf;

/// The development account that Azure's emulator made known.
pub const AZURE_ACCOUNT: &str = "devstoreaccount1";
/// Its key, which is no secret either.
pub const AZURE_ACCOUNT_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// How a fake is set up. The default suits tests: memory, any free port, the usual keys.
#[derive(Clone, Debug)]
pub struct FakeOptions {
    /// `HOST:PORT`; port 0 takes a free one.
    pub listen: String,
    /// Keeps objects here instead of in memory, and finds them again.
    pub dir: Option<PathBuf>,
    /// The emulated way to the client.
    pub link: LinkOptions,
    /// What goes wrong.
    pub faults: Vec<FaultSpec>,
    /// Seed of the faults' chance.
    pub seed: u64,
    /// S3 access key, or Azure account.
    pub account: String,
    /// S3 secret key, or Azure account key (base64).
    pub key: String,
    /// S3: requests must carry this session token.
    pub session_token: Option<String>,
    /// Azure, and S3 as Google speaks it: requests with this bearer token are let in.
    pub bearer_token: Option<String>,
    /// S3: speaks it as Google's XML API does, with generations and classes of its own.
    pub google: bool,
    /// S3: refuses headers of checksums, as services do that are older than those.
    pub without_checksums: bool,
    /// Azure: keeps the versions of blobs, as accounts do that are set so.
    pub versioning: bool,
    /// Azure: lists as accounts with a hierarchical namespace do: directory by directory, and
    /// directories as blobs without bytes.
    pub hierarchical: bool,
    /// Lets unsigned requests in.
    pub anonymous: bool,
    /// Seconds by which the server's clock is ahead.
    pub clock_offset_s: i64,
    /// Makes MD5 (and, on Azure, CRC64) of every body as the real services do. Costs about 1 CPU
    /// second per GB; without it ETags are unique numbers of the same shape.
    pub digests: bool,
    /// Smallest part of an S3 upload that is not the last.
    pub part_bytes_min: u64,
    /// Worker threads of the server.
    pub threads: usize,
    /// Requests kept for `/_penstock/requests`.
    pub log_entries: usize,
}

impl FakeOptions {
    /// Options with the keys that S3 clients of tests use: `test` and `test`.
    pub fn s3() -> Self {
        FakeOptions {
            listen: "127.0.0.1:0".to_string(),
            dir: None,
            link: LinkOptions::default(),
            faults: Vec::new(),
            seed: 1,
            account: "test".to_string(),
            key: "test".to_string(),
            session_token: None,
            bearer_token: None,
            google: false,
            without_checksums: false,
            versioning: false,
            hierarchical: false,
            anonymous: false,
            clock_offset_s: 0,
            digests: false,
            part_bytes_min: 5 << 20,
            threads: 1,
            log_entries: 10_000,
        }
    }

    /// The same, speaking as Google's XML API does.
    pub fn google() -> Self {
        FakeOptions { google: true, ..FakeOptions::s3() }
    }

    /// Options with the development account of Azure's emulator.
    pub fn azure() -> Self {
        FakeOptions {
            account: AZURE_ACCOUNT.to_string(),
            key: AZURE_ACCOUNT_KEY.to_string(),
            ..FakeOptions::s3()
        }
    }

    /// The same, of an account that keeps versions.
    pub fn azure_versioned() -> Self {
        FakeOptions { versioning: true, ..FakeOptions::azure() }
    }

    /// The same, of an account with a hierarchical namespace.
    pub fn azure_hierarchical() -> Self {
        FakeOptions { hierarchical: true, ..FakeOptions::azure() }
    }

    /// Adds a fault in its text form.
    ///
    /// # Panics
    /// When the text is no fault: a test that arms nothing proves nothing.
    #[must_use]
    pub fn fault(mut self, text: &str) -> Self {
        self.faults.push(text.parse().unwrap_or_else(|error| panic!("{error}")));
        self
    }
}
