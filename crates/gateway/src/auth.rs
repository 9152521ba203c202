//! Who asks, and what they may: the acting side of [`crate::access`].
//!
//! Signatures are s3s's to verify (those of version 2 [`crate::v2`]'s, before it), with the keys of
//! [`crate::keys`]; here is the decision about an operation once it is known who wants it.

use crate::absent::{self, Place};
use crate::access::{Grant, Need, Right, allows, need_of};
use crate::acl::owner_of;
use crate::exchange::Exchange;
use crate::forms::FormSender;
use crate::keys::KeyRing;
use crate::notes::Notes;
use crate::sharing::{self, Ask, Asker, Entry, LetIn, Lists, ONE_OWNER, Sharing, Standing};
use crate::stats::Stats;
use crate::telemetry::Telemetry;
use crate::{refuse, versions};
use http::{Extensions, HeaderMap};
use penstock_store::ObjectMeta;
use s3s::access::{S3Access, S3AccessContext};
use s3s::dto::{CopySource, Owner};
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};
use std::net::IpAddr;
use std::sync::Arc;

/// Whoever sent a request, as its operation may want to know.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    grants: Arc<[Grant]>,
    /// Id of the owner who signed.
    pub id: Option<String>,
    /// What lists and policies are good for.
    pub sharing: Arc<Sharing>,
    /// The bucket's notes, where they were read to let the request in.
    pub notes: Option<Notes>,
    /// What let it in there.
    how: Option<LetIn>,
    /// Whether the request may go past a retention of the mode GOVERNANCE.
    pub may_bypass: bool,
    /// By what of the source of a copy the request was let in.
    pub of_source: Vec<Standing>,
    /// The same of the object that the request is for.
    pub of_object: Vec<Standing>,
    /// Actions that lists and policies do not let the request do, of those that it may turn out to
    /// ask for.
    withheld: Vec<&'static str>,
}

impl Caller {
    /// Whether a bucket is shown to them in the list of buckets.
    pub async fn may_see(&self, bucket: &str) -> bool {
        allows(&self.grants, Some(bucket), Need::Any)
            && self.sharing.is_owned(bucket, self.id.as_deref()).await
    }

    /// Whether lists and policies let the request do this, where only what it finds tells that it
    /// asks for it.
    pub fn may(&self, action: &str) -> bool {
        !self.withheld.contains(&action)
    }

    /// What the bucket said as it let the request in, to ask it for more; `None` where it was not
    /// asked.
    pub fn entry(&self) -> Option<Entry> {
        Some(Entry::new(self.notes.clone()?, self.how?, Vec::new()))
    }

    /// Whether they may let others in. Where the configuration alone says what keys may do, that
    /// takes the right to set up the bucket.
    pub fn may_open(&self, bucket: &str) -> bool {
        let by_configuration = self.sharing.lists == Lists::Public && self.id.is_some();
        !by_configuration || allows(&self.grants, Some(bucket), Need::Right(Right::Admin))
    }
}

/// Holds the version that is to answer a request against the list by which it was let in.
///
/// # Errors
/// `AccessDenied` where another version came between, with another list.
pub(crate) fn still_let_in(extensions: &Extensions, meta: &ObjectMeta) -> S3Result<()> {
    let Some(caller) = extensions.get::<Caller>() else { return Ok(()) };
    caller.of_object.iter().try_for_each(|standing| standing.check(meta))
}

/// The tags of an object by which a request was let in, as [`Standing::judged_tags`] tells them.
pub(crate) fn judged_tags(extensions: &Extensions) -> Option<Option<&[(String, String)]>> {
    let caller = extensions.get::<Caller>()?;
    caller.of_object.iter().find_map(Standing::judged_tags)
}

/// The owner of the bucket that a request is for, as listings tell them: whoever wrote an object is
/// in its own metadata only.
pub(crate) fn bucket_owner(extensions: &Extensions) -> Owner {
    let caller = extensions.get::<Caller>();
    let noted = caller.and_then(|caller| caller.notes.as_ref()?.list());
    owner_of(noted.as_ref().map_or(ONE_OWNER, |acl| &acl.owner))
}

const EXPECTED_OWNER: &str = "x-amz-expected-bucket-owner";
const EXPECTED_SOURCE_OWNER: &str = "x-amz-source-expected-bucket-owner";

/// Lets in what the grants allow, and counts each operation.
#[derive(Clone)]
pub(crate) struct Access {
    pub ring: Arc<KeyRing>,
    pub stats: Arc<Stats>,
    pub telemetry: Arc<Telemetry>,
    pub sharing: Arc<Sharing>,
}

#[async_trait::async_trait]
impl S3Access for Access {
    async fn check(&self, context: &mut S3AccessContext<'_>) -> S3Result<()> {
        let operation = context.s3_op().name().to_string();
        self.stats.operation(&operation);
        known(context, &operation)?;
        let path = context.s3_path();
        let (bucket, key) = (path.get_bucket_name(), path.get_object_key().unwrap_or_default());
        versions::check_key(key)?;
        self.sharing.buckets.check_key(bucket.unwrap_or_default(), key)?;
        let exchange = context.extensions_mut().get::<Arc<Exchange>>().cloned();
        if let Some(exchange) = &exchange {
            exchange.recognised(context);
        }
        let peer = exchange.as_ref().map(|exchange| exchange.client());
        let sender = self.sender(context, exchange.as_deref())?;
        let sources = copied(context.headers())?;
        let by_configuration = by_configuration(&sender, context, &operation, &sources);
        let is_signed = sender.id.is_some();
        let mut noted = Noted::default();
        match (self.sharing.lists, is_signed) {
            (Lists::Off, _) | (Lists::Public, true) => by_configuration?,
            (Lists::Owners, true) => {
                by_configuration?;
                noted = self.by_lists(&sender, context, &operation, peer, &sources).await?;
            }
            (Lists::Public | Lists::Owners, false) => {
                if by_configuration.is_err() {
                    noted = self.by_lists(&sender, context, &operation, peer, &sources).await?;
                }
            }
        }
        self.check_owner(context, EXPECTED_OWNER, noted.bucket.as_ref())?;
        if !sources.is_empty() {
            self.check_owner(context, EXPECTED_SOURCE_OWNER, noted.sources.first())?;
        }
        let may_bypass = self.may_bypass(&sender, context, peer).await?;
        context.extensions_mut().insert(Caller {
            grants: sender.grants,
            id: sender.id,
            sharing: self.sharing.clone(),
            notes: noted.bucket,
            how: noted.how,
            may_bypass,
            of_source: noted.of_source,
            of_object: noted.of_object,
            withheld: noted.withheld,
        });
        Ok(())
    }
}

/// An object that a copy reads.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub bucket: String,
    pub key: String,
    pub version: Option<String>,
}

/// What buckets say of themselves, where lists were asked.
#[derive(Default)]
struct Noted {
    /// The one that the request is for.
    bucket: Option<Notes>,
    how: Option<LetIn>,
    /// Those that a copy reads.
    sources: Vec<Notes>,
    /// By what of objects it was let in: of the one that it is for, and of the sources.
    of_object: Vec<Standing>,
    of_source: Vec<Standing>,
    /// What the request may not do, should it turn out to ask for it.
    withheld: Vec<&'static str>,
}

/// Who sent a request, and what the configuration lets them do.
struct Sender {
    grants: Arc<[Grant]>,
    id: Option<String>,
}

fn by_configuration(
    sender: &Sender,
    context: &S3AccessContext<'_>,
    operation: &str,
    sources: &[Source],
) -> S3Result<()> {
    if !allows(&sender.grants, context.s3_path().get_bucket_name(), need_of(operation)) {
        return Err(denied(operation));
    }
    let read = Need::Right(Right::Read);
    match sources.iter().all(|it| allows(&sender.grants, Some(&it.bucket), read)) {
        true => Ok(()),
        false => Err(s3_error!(AccessDenied, "Access Denied: this key may not read the source.")),
    }
}

/// Refuses what is not here: by name, or because the query names what s3s does not know.
fn known(context: &S3AccessContext<'_>, operation: &str) -> S3Result<()> {
    if let Some(error) = absent::by_name(operation) {
        return Err(error);
    }
    let query = context.uri().query().unwrap_or_default();
    refuse::unknown_parameters(operation, query).map_err(|error| {
        let path = context.s3_path();
        let place = match (path.get_object_key(), path.get_bucket_name()) {
            (Some(_), _) => Place::Object,
            (None, Some(_)) => Place::Bucket,
            (None, None) => Place::Service("/"),
        };
        absent::by_request(context.method(), place, query).unwrap_or(error)
    })
}

impl Access {
    /// Who sent it, once their rate is found to be within bounds.
    fn sender(
        &self,
        context: &mut S3AccessContext<'_>,
        exchange: Option<&Exchange>,
    ) -> S3Result<Sender> {
        let signed = context.credentials().map(|credentials| credentials.access_key.clone());
        let of_form = context.extensions_mut().get::<FormSender>().map(|sender| sender.0.clone());
        let access_key = signed.or(of_form);
        // The one place that knows of forms and mended requests too, and before the rate: the log
        // tells whose requests were told to slow down.
        if let (Some(exchange), Some(access_key)) = (exchange, &access_key) {
            exchange.sent_by(access_key);
        }
        let charged = match &access_key {
            Some(access_key) => self.ring.charge(access_key, &self.telemetry),
            // Costs nothing, and takes nothing from those who are let in, or may ask to be.
            None if self.sharing.lists == Lists::Off && self.ring.public().is_empty() => {
                let why = "Access Denied: this gateway takes signed requests only.";
                return Err(s3_error!(AccessDenied, "{why}"));
            }
            None => self.ring.charge_public(&self.telemetry).map(|()| self.ring.public().clone()),
        };
        if let Some(exchange) = exchange {
            exchange.charged(charged.is_ok());
        }
        let id = access_key.map(|access_key| self.sharing.owner_id(&access_key));
        Ok(Sender { grants: charged?, id })
    }

    /// Whether a request that asks for it may go past GOVERNANCE: that takes the right to set up
    /// the bucket, and where keys are owners what lists and policies say besides.
    async fn may_bypass(
        &self,
        sender: &Sender,
        context: &S3AccessContext<'_>,
        peer: Option<IpAddr>,
    ) -> S3Result<bool> {
        let admin = Need::Right(Right::Admin);
        let is_asked = context.headers().contains_key("x-amz-bypass-governance-retention");
        let bucket = context.s3_path().get_bucket_name();
        if !is_asked || sender.id.is_none() || !allows(&sender.grants, bucket, admin) {
            return Ok(false);
        }
        if self.sharing.lists != Lists::Owners {
            return Ok(true);
        }
        match self.by_lists(sender, context, "BypassGovernanceRetention", peer, &[]).await {
            Ok(_) => Ok(true),
            Err(error) if *error.code() == S3ErrorCode::AccessDenied => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Asks lists and policies.
    async fn by_lists(
        &self,
        sender: &Sender,
        context: &S3AccessContext<'_>,
        operation: &str,
        peer: Option<IpAddr>,
        sources: &[Source],
    ) -> S3Result<Noted> {
        let path = context.s3_path();
        let who = sender.id.as_deref();
        // The list of buckets shows everybody their own, and nobody none.
        let Some(bucket) = path.get_bucket_name() else {
            return Ok(Noted::default());
        };
        if operation == "CreateBucket" {
            return if who.is_some() { Ok(Noted::default()) } else { Err(denied(operation)) };
        }
        let (headers, uri) = (context.headers(), context.uri());
        let version = sharing::version_of(uri.query().unwrap_or_default())?;
        let asker = Asker { who, headers, uri, peer };
        let ask = asker.asks(operation, bucket, path.get_object_key(), version.as_deref());
        let entry = self.sharing.permit(&ask).await?;
        let mut noted = Noted::default();
        for action in sharing::besides(operation, headers) {
            noted.of_object.extend(self.sharing.permit_besides(&ask, action, &entry).await?);
        }
        let (here, there) = sharing::perhaps(operation, headers);
        for action in here {
            if self.sharing.would_permit(&ask, action, &entry).await?.is_none() {
                noted.withheld.push(action);
            }
        }
        for source in sources {
            let (bucket, key) = (source.bucket.as_str(), Some(source.key.as_str()));
            let ask = asker.asks("GetObject", bucket, key, source.version.as_deref());
            let ask = Ask { is_source: true, ..ask };
            let entry = self.sharing.permit(&ask).await?;
            noted.of_source.extend(entry.standings.iter().cloned());
            if let Some(action) = there {
                match self.sharing.would_permit(&ask, action, &entry).await? {
                    Some(standings) => noted.of_source.extend(standings),
                    None => noted.withheld.push(action),
                }
            }
            noted.sources.push(entry.notes);
        }
        noted.of_object.extend(entry.standings);
        (noted.bucket, noted.how) = (Some(entry.notes), Some(entry.how));
        Ok(noted)
    }

    /// Holds what a header says against a bucket's owner.
    fn check_owner(
        &self,
        context: &S3AccessContext<'_>,
        header: &str,
        notes: Option<&Notes>,
    ) -> S3Result<()> {
        let Some(expected) = context.headers().get(header) else { return Ok(()) };
        let acl = self.sharing.bucket_acl(notes.unwrap_or(&Notes::default()));
        match acl.is_some_and(|acl| expected.as_bytes() == acl.owner.as_bytes()) {
            true => Ok(()),
            false => Err(s3_error!(AccessDenied, "Access Denied: the bucket has another owner.")),
        }
    }
}

fn denied(operation: &str) -> S3Error {
    let right = match need_of(operation) {
        Need::Any => "any",
        Need::Right(right) => Right::ALL.iter().find(|row| row.0 == right).map_or("", |row| row.1),
    };
    s3_error!(AccessDenied, "Access Denied: {operation} takes the right `{right}` on this bucket.")
}

/// The objects that a copy reads, as s3s will understand the same header.
pub(crate) fn copied(headers: &HeaderMap) -> S3Result<Vec<Source>> {
    let mut places = Vec::new();
    for header in headers.get_all("x-amz-copy-source") {
        let source = header.to_str().ok().and_then(|text| CopySource::parse(text).ok());
        match source {
            Some(CopySource::Bucket { bucket, key, version_id }) => {
                versions::check_key(&key)?;
                places.push(Source {
                    bucket: bucket.to_string(),
                    key: key.to_string(),
                    version: version_id.map(|id| id.to_string()),
                });
            }
            _ => return Err(s3_error!(InvalidArgument, "x-amz-copy-source is not bucket/key.")),
        }
    }
    Ok(places)
}
