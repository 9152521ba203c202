//! Who may ask: holders of a key pair, or anyone where the operator says so.

use crate::stats::Stats;
use penstock_base::Secret;
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3Result, s3_error};
use std::sync::Arc;

/// The key pair that signs requests.
#[derive(Clone, Debug)]
pub struct KeyPair {
    /// Names the pair; not a secret.
    pub access_key: String,
    /// Signs.
    pub secret_key: Secret,
}

/// Answers s3s with the secret of a pair. A signed request is verified even where unsigned
/// ones are let in: a wrong key is a mistake that its owner wants to hear of.
pub(crate) struct Keys(pub Vec<KeyPair>);

#[async_trait::async_trait]
impl S3Auth for Keys {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        if let Some(pair) = self.0.iter().find(|pair| pair.access_key == access_key) {
            return Ok(SecretKey::from(pair.secret_key.reveal()));
        }
        match self.0.is_empty() {
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

/// Lets signed requests in, unsigned ones where `anonymous` is set, and counts each operation.
pub(crate) struct Access {
    pub anonymous: bool,
    pub stats: Arc<Stats>,
}

#[async_trait::async_trait]
impl S3Access for Access {
    async fn check(&self, context: &mut S3AccessContext<'_>) -> S3Result<()> {
        self.stats.operation(context.s3_op().name());
        if context.credentials().is_some() || self.anonymous {
            return Ok(());
        }
        Err(s3_error!(AccessDenied, "Access Denied: this gateway takes signed requests only."))
    }
}
