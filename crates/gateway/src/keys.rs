//! The keys that sign requests, what each may, and how often: each has a rate of its own, and all
//! unsigned requests share one. Decides nothing about an operation.

use crate::access::Grant;
use crate::error::slow_down;
use crate::rate::{Rate, RateLimit};
use crate::telemetry::{Refused, Telemetry};
use penstock_base::Secret;
use penstock_base::settings::ServeSettings;
use ring::digest;
use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3Result, s3_error};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
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
    /// By which a text is known to be the secret; comparing the secret itself would tell how much
    /// of a guess is right.
    secret_digest: digest::Digest,
    grants: Arc<[Grant]>,
    rate: Option<Rate>,
}

/// What the settings say of rates; 0 requests per second are no limit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rates {
    /// Of each key that has none of its own.
    pub key_per_second: u64,
    /// Of all unsigned requests together.
    pub public_per_second: u64,
    /// What any of them may send at once after a pause.
    pub burst: u64,
}

impl Rates {
    pub fn of(serve: &ServeSettings) -> Self {
        Rates {
            key_per_second: serve.key_requests_per_second,
            public_per_second: serve.public_requests_per_second,
            burst: serve.key_requests_burst,
        }
    }

    fn rate(self, per_second: u64) -> Option<Rate> {
        (per_second > 0).then(|| Rate::new(RateLimit { per_second, burst: self.burst }))
    }
}

/// The keys of a gateway, what they and nobody may, and how often.
#[derive(Debug)]
pub(crate) struct KeyRing {
    keys: HashMap<String, Key>,
    public: Arc<[Grant]>,
    /// One for all: what nobody signs has no name by which it could have one of its own.
    public_rate: Option<Rate>,
    started: Instant,
}

impl KeyRing {
    /// The secret of a key.
    pub fn secret(&self, access_key: &str) -> Option<&Secret> {
        self.keys.get(access_key).map(|key| &key.secret)
    }

    /// Whether a text is the secret of a key: nothing may show it.
    pub fn is_secret(&self, text: &str) -> bool {
        let digest = digest::digest(&digest::SHA256, text.as_bytes());
        self.keys.values().any(|key| key.secret_digest.as_ref() == digest.as_ref())
    }

    /// The ids of all keys.
    pub fn access_keys(&self) -> impl Iterator<Item = &String> {
        self.keys.keys()
    }

    /// `public` is what everybody may: unsigned requests, and so each key too.
    pub fn new(pairs: Vec<KeyPair>, public: Vec<Grant>, rates: Rates) -> Self {
        let key = |pair: KeyPair| {
            let per_second = pair.requests_per_second.unwrap_or(rates.key_per_second);
            let secret = pair.secret_key.reveal().as_bytes();
            let key = Key {
                secret_digest: digest::digest(&digest::SHA256, secret),
                secret: pair.secret_key,
                grants: pair.grants.into_iter().chain(public.iter().cloned()).collect(),
                rate: rates.rate(per_second),
            };
            (pair.access_key, key)
        };
        KeyRing {
            keys: pairs.into_iter().map(key).collect(),
            public: public.into(),
            public_rate: rates.rate(rates.public_per_second),
            started: Instant::now(),
        }
    }

    /// What unsigned requests may.
    pub fn public(&self) -> &Arc<[Grant]> {
        &self.public
    }

    /// What a key may, once a request of it is found to be within its rate.
    ///
    /// # Errors
    /// `SlowDown`, which is counted; `InvalidAccessKeyId`.
    pub fn charge(&self, access_key: &str, telemetry: &Telemetry) -> S3Result<Arc<[Grant]>> {
        // The signature held, so the key was there a moment ago.
        let key = self.keys.get(access_key);
        let key = key.ok_or_else(|| s3_error!(InvalidAccessKeyId))?;
        self.take(key.rate.as_ref()).map_err(|wait| {
            telemetry.refused(Refused::Rate);
            slow_down("This key sends requests faster than it may.", wait)
        })?;
        Ok(key.grants.clone())
    }

    /// Whether a request that nobody signed is within the rate of all of them.
    ///
    /// # Errors
    /// `SlowDown`, which is counted.
    pub fn charge_public(&self, telemetry: &Telemetry) -> S3Result<()> {
        self.take(self.public_rate.as_ref()).map_err(|wait| {
            telemetry.refused(Refused::Public);
            slow_down("Unsigned requests come faster than they may: sign yours.", wait)
        })
    }

    /// The same of what is asked of a back end for the sake of a request that was never charged to
    /// anybody; that one has its answer already, so nobody is told to slow down.
    pub fn spares_public(&self) -> bool {
        self.take(self.public_rate.as_ref()).is_ok()
    }

    fn take(&self, rate: Option<&Rate>) -> std::result::Result<(), Duration> {
        rate.map_or(Ok(()), |rate| rate.take(self.started.elapsed()))
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
                "The AWS Access Key Id you provided does not exist in our records."
            )),
            true => Err(s3_error!(
                InvalidAccessKeyId,
                "This gateway has no keys (--anonymous): send the request unsigned."
            )),
        }
    }
}
