//! Who asks, and what they may: the acting side of [`crate::access`].
//!
//! Signatures are s3s's to verify (it compares them in constant time); here are the keys it asks
//! for, and the decision about an operation once it is known who wants it.

use crate::access::{Grant, Need, Right, allows, need_of};
use crate::error::slow_down;
use crate::exchange::Exchange;
use crate::rate::{Rate, RateLimit};
use crate::stats::Stats;
use crate::telemetry::{Refused, Telemetry};
use http::HeaderMap;
use penstock_base::Secret;
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::dto::CopySource;
use s3s::{S3Error, S3Result, s3_error};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::time::Instant;

/// A key pair that signs requests, and what it may.
#[derive(Clone, Debug)]
pub struct KeyPair {
    /// Names the pair; not a secret.
    pub access_key: String,
    /// Signs.
    pub secret_key: Secret,
    /// What it may; nothing where it is empty.
    pub grants: Vec<Grant>,
    /// Most requests per second; `None` for what the settings say, 0 for no limit.
    pub requests_per_second: Option<u64>,
}

impl KeyPair {
    /// A pair that may do everything.
    pub fn new(access_key: impl Into<String>, secret_key: Secret) -> Self {
        KeyPair {
            access_key: access_key.into(),
            secret_key,
            grants: vec![Grant::everything()],
            requests_per_second: None,
        }
    }
}

#[derive(Debug)]
struct Key {
    secret: Secret,
    grants: Arc<[Grant]>,
    rate: Option<Rate>,
}

/// The keys of a gateway.
#[derive(Debug)]
pub(crate) struct KeyRing {
    keys: HashMap<String, Key>,
    public: Arc<[Grant]>,
    started: Instant,
}

impl KeyRing {
    /// `public` is what unsigned requests may; `rate` holds for keys that have none of their own.
    pub fn new(pairs: Vec<KeyPair>, public: Vec<Grant>, per_second: u64, burst: u64) -> Self {
        let key = |pair: KeyPair| {
            let per_second = pair.requests_per_second.unwrap_or(per_second);
            let limit = RateLimit { per_second, burst };
            let key = Key {
                secret: pair.secret_key,
                grants: pair.grants.into(),
                rate: (per_second > 0).then(|| Rate::new(limit)),
            };
            (pair.access_key, key)
        };
        KeyRing {
            keys: pairs.into_iter().map(key).collect(),
            public: public.into(),
            started: Instant::now(),
        }
    }
}

/// Answers s3s with the secret of a pair. A signed request is verified even where unsigned
/// ones are let in: a wrong key is a mistake that its owner wants to hear of.
pub(crate) struct Keys(pub Arc<KeyRing>);

#[async_trait::async_trait]
impl S3Auth for Keys {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        if let Some(key) = self.0.keys.get(access_key) {
            return Ok(SecretKey::from(key.secret.reveal()));
        }
        match self.0.keys.is_empty() {
            false => Err(s3_error!(
                InvalidAccessKeyId,
                "The access key Id you provided does not exist in our records."
            )),
            true => Err(s3_error!(
                InvalidAccessKeyId,
                "This gateway has no keys (--anonymous): send the request unsigned."
            )),
        }
    }
}

/// Whoever sent a request, as its operation may want to know.
#[derive(Clone, Debug)]
pub(crate) struct Caller(Arc<[Grant]>);

impl Caller {
    /// Whether a bucket is shown to them in the list of buckets.
    pub fn may_see(&self, bucket: &str) -> bool {
        allows(&self.0, Some(bucket), Need::Any)
    }
}

/// Lets in what the grants allow, and counts each operation.
pub(crate) struct Access {
    pub ring: Arc<KeyRing>,
    pub stats: Arc<Stats>,
    pub telemetry: Arc<Telemetry>,
}

#[async_trait::async_trait]
impl S3Access for Access {
    async fn check(&self, context: &mut S3AccessContext<'_>) -> S3Result<()> {
        let operation = context.s3_op().name().to_string();
        self.stats.operation(&operation);
        let exchange = context.extensions_mut().get::<Arc<Exchange>>().cloned();
        if let Some(exchange) = exchange {
            exchange.recognised(context);
        }
        let grants = self.grants(context)?;
        let bucket = context.s3_path().get_bucket_name();
        if !allows(&grants, bucket, need_of(&operation)) {
            return Err(denied(&operation));
        }
        let may_read = |source: &str| allows(&grants, Some(source), Need::Right(Right::Read));
        if !copied_buckets(context.headers())?.iter().all(|source| may_read(source)) {
            return Err(s3_error!(
                AccessDenied,
                "Access Denied: this key may not read the source."
            ));
        }
        context.extensions_mut().insert(Caller(grants));
        Ok(())
    }
}

impl Access {
    /// What the sender may, once their rate is found to be within bounds.
    fn grants(&self, context: &S3AccessContext<'_>) -> S3Result<Arc<[Grant]>> {
        let Some(credentials) = context.credentials() else {
            if self.ring.public.is_empty() {
                let why = "Access Denied: this gateway takes signed requests only.";
                return Err(s3_error!(AccessDenied, "{why}"));
            }
            return Ok(self.ring.public.clone());
        };
        // The signature held, so the key was there a moment ago.
        let key = self.ring.keys.get(&credentials.access_key);
        let key = key.ok_or_else(|| s3_error!(InvalidAccessKeyId))?;
        if let Some(rate) = &key.rate
            && let Err(wait) = rate.take(self.ring.started.elapsed())
        {
            self.telemetry.refused(Refused::Rate);
            return Err(slow_down("This key sends requests faster than it may.", wait));
        }
        Ok(key.grants.clone())
    }
}

fn denied(operation: &str) -> S3Error {
    let right = match need_of(operation) {
        Need::Any => "any",
        Need::Right(right) => Right::ALL.iter().find(|row| row.0 == right).map_or("", |row| row.1),
    };
    s3_error!(AccessDenied, "Access Denied: {operation} takes the right `{right}` on this bucket.")
}

/// The buckets that a copy reads, as s3s will understand the same header.
fn copied_buckets(headers: &HeaderMap) -> S3Result<Vec<String>> {
    let mut buckets = Vec::new();
    for header in headers.get_all("x-amz-copy-source") {
        let source = header.to_str().ok().and_then(|text| CopySource::parse(text).ok());
        match source {
            Some(CopySource::Bucket { bucket, .. }) => buckets.push(bucket.to_string()),
            _ => return Err(s3_error!(InvalidArgument, "x-amz-copy-source is not bucket/key.")),
        }
    }
    Ok(buckets)
}
