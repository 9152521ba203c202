//! What can be set up on a bucket besides lists: tags, CORS, policy, public access block,
//! ownership, location. Kept in its notes.
//!
//! Where nothing was set up the answer is 404 with the name that S3 has for it, which is what SDKs
//! and Terraform ask before they go on.

use crate::buckets::Buckets;
use crate::cors;
use crate::judged::Judged;
use crate::notes::{Notes, PublicBlock};
use crate::policy::Policy;
use crate::refuse;
use crate::sharing::{ENFORCED, Lists, OWNERSHIPS, no_lists_beside_enforced};
use crate::tagging;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use s3s::{S3Error, S3ErrorCode, S3Result, dto, s3_error};

/// A 404 with S3's own name for what was never set up.
fn not_set_up(code: &'static str, why: &str) -> S3Error {
    let code = S3ErrorCode::from_bytes(code.as_bytes());
    let code = code.unwrap_or_else(|| S3ErrorCode::Custom("NotFound".into()));
    let mut error = S3Error::with_message(code, why.to_string());
    error.set_status_code(StatusCode::NOT_FOUND);
    error
}

/// The notes of a bucket that is there.
async fn notes(buckets: &Buckets, bucket: &str) -> S3Result<Notes> {
    let (notes, version) = buckets.notes(bucket).await?;
    if version.is_none() {
        buckets.check(bucket).await?;
    }
    Ok(notes)
}

/// Changes one field of the notes.
async fn change(
    buckets: &Buckets,
    judged: &Judged<'_>,
    change: impl Fn(&mut Notes) + Send + Sync,
) -> S3Result<()> {
    let change = |notes: &mut Notes| {
        change(notes);
        Ok(())
    };
    buckets.change_notes(judged, change).await
}

/// GetBucketLocation. No constraint is how S3 spells us-east-1; signatures of any region are good.
pub(crate) async fn location(
    buckets: &Buckets,
    bucket: &str,
) -> S3Result<dto::GetBucketLocationOutput> {
    let location = match buckets.is_placed(bucket)? {
        true => match buckets.location(bucket).await {
            Ok(location) => Some(location),
            // Rights on objects do not hold the one to look at their bucket.
            Err(error) if *error.code() == S3ErrorCode::AccessDenied => None,
            Err(error) => return Err(error),
        },
        false => notes(buckets, bucket).await?.location,
    };
    let location_constraint = location.map(dto::BucketLocationConstraint::from);
    Ok(dto::GetBucketLocationOutput { location_constraint })
}

/// HeadBucket, which tells the region that clients then sign for.
pub(crate) async fn head(buckets: &Buckets, bucket: &str) -> S3Result<dto::HeadBucketOutput> {
    buckets.check(bucket).await?;
    let location = buckets.notes(bucket).await?.0.location;
    let bucket_region = Some(location.unwrap_or_else(|| "us-east-1".to_string()));
    Ok(dto::HeadBucketOutput { bucket_region, ..Default::default() })
}

/// GetBucketTagging.
pub(crate) async fn tags(buckets: &Buckets, bucket: &str) -> S3Result<dto::GetBucketTaggingOutput> {
    let Some(tags) = notes(buckets, bucket).await?.tags else {
        return Err(not_set_up("NoSuchTagSet", "The TagSet does not exist"));
    };
    let tag = |(key, value)| dto::Tag { key: Some(key), value: Some(value) };
    Ok(dto::GetBucketTaggingOutput { tag_set: tags.into_iter().map(tag).collect() })
}

/// PutBucketTagging; no tags remove those that there are.
pub(crate) async fn set_tags(
    buckets: &Buckets,
    judged: &Judged<'_>,
    tags: Vec<dto::Tag>,
) -> S3Result<()> {
    let tags = tagging::checked_of_bucket(tags)?;
    change(buckets, judged, |notes| {
        notes.tags = (!tags.is_empty()).then(|| tags.clone());
    })
    .await
}

/// DeleteBucketTagging.
pub(crate) async fn remove_tags(buckets: &Buckets, judged: &Judged<'_>) -> S3Result<()> {
    change(buckets, judged, |notes| notes.tags = None).await
}

/// GetBucketCors.
pub(crate) async fn cors(buckets: &Buckets, bucket: &str) -> S3Result<dto::GetBucketCorsOutput> {
    let rules = notes(buckets, bucket).await?.cors;
    let why = "The CORS configuration does not exist";
    let rules = rules.ok_or_else(|| not_set_up("NoSuchCORSConfiguration", why))?;
    Ok(dto::GetBucketCorsOutput { cors_rules: Some(cors::to_document(rules)) })
}

/// PutBucketCors.
pub(crate) async fn set_cors(
    buckets: &Buckets,
    judged: &Judged<'_>,
    rules: dto::CORSRules,
) -> S3Result<()> {
    let rules = cors::from_document(rules)?;
    change(buckets, judged, |notes| notes.cors = Some(rules.clone())).await
}

/// DeleteBucketCors.
pub(crate) async fn remove_cors(buckets: &Buckets, judged: &Judged<'_>) -> S3Result<()> {
    change(buckets, judged, |notes| notes.cors = None).await
}

/// The policy of a bucket.
async fn noted_policy(buckets: &Buckets, bucket: &str) -> S3Result<String> {
    let policy = notes(buckets, bucket).await?.policy;
    let why = "The bucket policy does not exist";
    policy.ok_or_else(|| not_set_up("NoSuchBucketPolicy", why))
}

/// GetBucketPolicy.
pub(crate) async fn policy(
    buckets: &Buckets,
    bucket: &str,
) -> S3Result<dto::GetBucketPolicyOutput> {
    let policy = noted_policy(buckets, bucket).await?;
    Ok(dto::GetBucketPolicyOutput { policy: Some(policy) })
}

/// PutBucketPolicy.
///
/// # Errors
/// `MalformedPolicy`; `AccessDenied` for one that the public access block forbids;
/// `NotImplemented` where policies count for nothing, or not for what this one says.
pub(crate) async fn set_policy(
    buckets: &Buckets,
    lists: Lists,
    judged: &Judged<'_>,
    text: String,
) -> S3Result<()> {
    if lists == Lists::Off {
        let why = "bucket policies (the gateway's setting `acl` is off)";
        return Err(s3_error!(NotImplemented, "{why}"));
    }
    let policy = Policy::parse(&text, buckets.names(judged.bucket))?;
    policy.check_resources()?;
    if lists == Lists::Public && !policy.only_opens() {
        let why = "bucket policies that deny, or that name somebody: under `acl = \"public\"` the \
                   configuration alone decides what keys may do";
        return Err(s3_error!(NotImplemented, "{why}"));
    }
    let is_public = policy.is_public();
    let noted = |notes: &mut Notes| {
        if is_public && notes.public_block.is_some_and(|block| block.block_policy) {
            return Err(s3_error!(AccessDenied, "Access Denied: public policies are blocked."));
        }
        notes.policy = Some(text.clone());
        Ok(())
    };
    buckets.change_notes(judged, noted).await
}

/// DeleteBucketPolicy.
pub(crate) async fn remove_policy(buckets: &Buckets, judged: &Judged<'_>) -> S3Result<()> {
    change(buckets, judged, |notes| notes.policy = None).await
}

/// GetBucketPolicyStatus: a list that opens the bucket counts too.
pub(crate) async fn policy_status(
    buckets: &Buckets,
    bucket: &str,
) -> S3Result<dto::GetBucketPolicyStatusOutput> {
    let notes = notes(buckets, bucket).await?;
    let by_policy = match &notes.policy {
        Some(text) => Policy::parse(text, buckets.names(bucket))?.is_public(),
        None => false,
    };
    let by_list = notes.list().is_some_and(|acl| acl.is_public());
    Ok(dto::GetBucketPolicyStatusOutput {
        policy_status: Some(dto::PolicyStatus { is_public: Some(by_policy || by_list) }),
    })
}

/// GetPublicAccessBlock.
pub(crate) async fn public_block(
    buckets: &Buckets,
    bucket: &str,
) -> S3Result<dto::GetPublicAccessBlockOutput> {
    let Some(block) = notes(buckets, bucket).await?.public_block else {
        let why = "The public access block configuration was not found";
        let code = S3ErrorCode::Custom("NoSuchPublicAccessBlockConfiguration".into());
        let mut error = S3Error::with_message(code, why);
        error.set_status_code(StatusCode::NOT_FOUND);
        return Err(error);
    };
    let configuration = dto::PublicAccessBlockConfiguration {
        block_public_acls: Some(block.block_acls),
        ignore_public_acls: Some(block.ignore_acls),
        block_public_policy: Some(block.block_policy),
        restrict_public_buckets: Some(block.restrict_buckets),
    };
    let public_access_block_configuration = Some(configuration);
    Ok(dto::GetPublicAccessBlockOutput { public_access_block_configuration })
}

/// PutPublicAccessBlock.
pub(crate) async fn set_public_block(
    buckets: &Buckets,
    judged: &Judged<'_>,
    asked: dto::PublicAccessBlockConfiguration,
) -> S3Result<()> {
    let block = PublicBlock {
        block_acls: asked.block_public_acls.unwrap_or(false),
        ignore_acls: asked.ignore_public_acls.unwrap_or(false),
        block_policy: asked.block_public_policy.unwrap_or(false),
        restrict_buckets: asked.restrict_public_buckets.unwrap_or(false),
    };
    change(buckets, judged, |notes| notes.public_block = Some(block)).await
}

/// DeletePublicAccessBlock.
pub(crate) async fn remove_public_block(buckets: &Buckets, judged: &Judged<'_>) -> S3Result<()> {
    change(buckets, judged, |notes| notes.public_block = None).await
}

/// GetBucketOwnershipControls.
pub(crate) async fn ownership(
    buckets: &Buckets,
    bucket: &str,
) -> S3Result<dto::GetBucketOwnershipControlsOutput> {
    let why = "The bucket ownership controls were not found";
    let ownership = notes(buckets, bucket).await?.ownership;
    let ownership = ownership.ok_or_else(|| not_set_up("OwnershipControlsNotFoundError", why))?;
    let rule = dto::OwnershipControlsRule { object_ownership: ownership.into() };
    let ownership_controls = Some(dto::OwnershipControls { rules: vec![rule] });
    Ok(dto::GetBucketOwnershipControlsOutput { ownership_controls })
}

/// PutBucketOwnershipControls.
///
/// # Errors
/// `MalformedXML`; `InvalidBucketAclWithObjectOwnership` where lists are given up while the
/// bucket's lets others in.
pub(crate) async fn set_ownership(
    buckets: &Buckets,
    judged: &Judged<'_>,
    asked: dto::OwnershipControls,
) -> S3Result<()> {
    let [rule] = asked.rules.as_slice() else {
        return Err(s3_error!(MalformedXML, "Ownership controls have one rule."));
    };
    let ownership = rule.object_ownership.as_str().to_string();
    if !OWNERSHIPS.contains(&ownership.as_str()) {
        return Err(s3_error!(MalformedXML, "There is no such ownership."));
    }
    let noted = |notes: &mut Notes| {
        let lets_in = notes.list().is_some_and(|acl| !acl.is_closed(&acl.owner));
        if ownership == ENFORCED && lets_in {
            return Err(no_lists_beside_enforced());
        }
        notes.ownership = Some(ownership.clone());
        Ok(())
    };
    buckets.change_notes(judged, noted).await
}

/// DeleteBucketOwnershipControls.
pub(crate) async fn remove_ownership(buckets: &Buckets, judged: &Judged<'_>) -> S3Result<()> {
    change(buckets, judged, |notes| notes.ownership = None).await
}

/// GetBucketEncryption.
pub(crate) async fn encryption(
    buckets: &Buckets,
    bucket: &str,
) -> S3Result<dto::GetBucketEncryptionOutput> {
    let algorithm = notes(buckets, bucket).await?.encryption;
    let why = "The server side encryption configuration was not found";
    let code = "ServerSideEncryptionConfigurationNotFoundError";
    let algorithm = algorithm.ok_or_else(|| not_set_up(code, why))?;
    let by_default = dto::ServerSideEncryptionByDefault {
        kms_master_key_id: None,
        sse_algorithm: algorithm.into(),
    };
    let rule = dto::ServerSideEncryptionRule {
        apply_server_side_encryption_by_default: Some(by_default),
        bucket_key_enabled: None,
    };
    let configuration = dto::ServerSideEncryptionConfiguration { rules: vec![rule] };
    Ok(dto::GetBucketEncryptionOutput { server_side_encryption_configuration: Some(configuration) })
}

/// PutBucketEncryption: what the back end does anyway can be asked for.
///
/// # Errors
/// `MalformedXML`; `NotImplemented` for keys of a service, and where nothing is encrypted.
pub(crate) async fn set_encryption(
    buckets: &Buckets,
    judged: &Judged<'_>,
    asked: dto::ServerSideEncryptionConfiguration,
) -> S3Result<()> {
    let [rule] = asked.rules.as_slice() else {
        return Err(s3_error!(MalformedXML, "Default encryption has one rule."));
    };
    let by_default = rule.apply_server_side_encryption_by_default.as_ref();
    let algorithm = by_default.map(|it| it.sse_algorithm.as_str().to_string());
    let algorithm = algorithm.ok_or_else(|| s3_error!(MalformedXML, "There is no algorithm."))?;
    let headers = HeaderMap::from_iter([(
        HeaderName::from_static("x-amz-server-side-encryption"),
        HeaderValue::from_str(&algorithm)
            .map_err(|_| s3_error!(MalformedXML, "There is no such algorithm."))?,
    )]);
    refuse::encryption(&headers, buckets.writable(judged.bucket).await?.is_encrypted())?;
    change(buckets, judged, |notes| notes.encryption = Some(algorithm.clone())).await
}

/// DeleteBucketEncryption.
pub(crate) async fn remove_encryption(buckets: &Buckets, judged: &Judged<'_>) -> S3Result<()> {
    change(buckets, judged, |notes| notes.encryption = None).await
}

/// GetBucketRequestPayment: nobody pays for requests, and this is how S3 says that.
pub(crate) async fn payer(
    buckets: &Buckets,
    bucket: &str,
) -> S3Result<dto::GetBucketRequestPaymentOutput> {
    buckets.check(bucket).await?;
    let payer = Some(dto::Payer::from_static(dto::Payer::BUCKET_OWNER));
    Ok(dto::GetBucketRequestPaymentOutput { payer })
}

/// What clients may ask for that can never be set up here.
pub(crate) async fn never(
    buckets: &Buckets,
    bucket: &str,
    code: &'static str,
) -> S3Result<std::convert::Infallible> {
    buckets.check(bucket).await?;
    Err(not_set_up(code, "The configuration does not exist: this gateway has no such feature."))
}
