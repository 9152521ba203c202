//! The S3 operations that exist: a table, each row handing its operation to its room. Those that
//! are missing here answer `NotImplemented` with their name.

use crate::auth::bucket_owner;
use crate::buckets::Buckets;
use crate::hosts::Hosts;
use crate::judged::Judged;
use crate::sharing::Lists;
use crate::words::Status;
use crate::{
    acls, attributes, copy, delete, get, late, list, locks, put, subresources, tagging, uploads,
    versions,
};
use http::StatusCode;
use s3s::dto::*;
use s3s::{S3, S3Request, S3Response, S3Result};
use std::sync::Arc;
use std::time::Duration;

/// S3 over the back ends.
#[derive(Clone)]
pub(crate) struct Gateway {
    pub buckets: Arc<Buckets>,
    pub lists: Lists,
    pub hosts: Arc<Hosts>,
    /// How long a completion or a copy may take before its answer begins.
    pub quiet: Duration,
}

fn answer<T>(output: T) -> S3Result<S3Response<T>> {
    Ok(S3Response::new(output))
}

/// Implements [`S3`] from rows of `method: Input => Output { what answers }`; the words for the
/// gateway and the request are told first.
macro_rules! operations {
    (|$gateway:ident, $request:ident|
     $($method:ident: $input:ident => $output:ident $body:block)*) => {
        #[async_trait::async_trait]
        impl S3 for Gateway {
            $(async fn $method(
                &self,
                $request: S3Request<$input>,
            ) -> S3Result<S3Response<$output>> {
                let $gateway = self;
                $body
            })*
        }
    };
}

operations! { |gateway, request|
    list_buckets: ListBucketsInput => ListBucketsOutput {
        answer(list::list_buckets(&gateway.buckets, request).await?)
    }
    create_bucket: CreateBucketInput => CreateBucketOutput {
        answer(acls::create_bucket(&gateway.buckets, request).await?)
    }
    head_bucket: HeadBucketInput => HeadBucketOutput {
        answer(subresources::head(&gateway.buckets, &request.input.bucket).await?)
    }
    get_bucket_location: GetBucketLocationInput => GetBucketLocationOutput {
        answer(subresources::location(&gateway.buckets, &request.input.bucket).await?)
    }
    delete_bucket: DeleteBucketInput => DeleteBucketOutput {
        let judged = Judged::of(&request.extensions, &request.input.bucket);
        gateway.buckets.delete(&judged).await?;
        answer(DeleteBucketOutput::default())
    }
    get_object: GetObjectInput => GetObjectOutput {
        get::get(&gateway.buckets, request).await
    }
    head_object: HeadObjectInput => HeadObjectOutput {
        get::head(&gateway.buckets, request).await
    }
    put_object: PutObjectInput => PutObjectOutput {
        put::put(&gateway.buckets, request).await
    }
    copy_object: CopyObjectInput => CopyObjectOutput {
        let (buckets, told) = (gateway.buckets.clone(), request.extensions.clone());
        let copying = async move { copy::copy(&buckets, request).await };
        late::within(gateway.quiet, &told, copying).await
    }
    delete_object: DeleteObjectInput => DeleteObjectOutput {
        answer(delete::delete(&gateway.buckets, request).await?)
    }
    delete_objects: DeleteObjectsInput => DeleteObjectsOutput {
        answer(delete::delete_batch(&gateway.buckets, request).await?)
    }
    get_object_attributes: GetObjectAttributesInput => GetObjectAttributesOutput {
        answer(attributes::attributes(&gateway.buckets, request).await?)
    }
    get_object_tagging: GetObjectTaggingInput => GetObjectTaggingOutput {
        answer(tagging::get(&gateway.buckets, request).await?)
    }
    put_object_tagging: PutObjectTaggingInput => PutObjectTaggingOutput {
        answer(tagging::put(&gateway.buckets, request).await?)
    }
    delete_object_tagging: DeleteObjectTaggingInput => DeleteObjectTaggingOutput {
        answer(tagging::delete(&gateway.buckets, request.input).await?)
    }
    list_objects: ListObjectsInput => ListObjectsOutput {
        list::check_unordered(request.uri.query(), request.input.delimiter.as_deref())?;
        let bucket = gateway.buckets.get(&request.input.bucket).await?;
        let owner = bucket_owner(&request.extensions);
        answer(list::list_v1(&bucket, owner, request.input).await?)
    }
    list_objects_v2: ListObjectsV2Input => ListObjectsV2Output {
        list::check_unordered(request.uri.query(), request.input.delimiter.as_deref())?;
        let bucket = gateway.buckets.get(&request.input.bucket).await?;
        let owner = bucket_owner(&request.extensions);
        answer(list::list_v2(&bucket, owner, request.input).await?)
    }
    list_object_versions: ListObjectVersionsInput => ListObjectVersionsOutput {
        let bucket = gateway.buckets.get(&request.input.bucket).await?;
        let owner = bucket_owner(&request.extensions);
        answer(versions::list(&bucket, owner, request.input).await?)
    }
    get_bucket_versioning: GetBucketVersioningInput => GetBucketVersioningOutput {
        answer(versions::get(&gateway.buckets, request.input).await?)
    }
    put_bucket_versioning: PutBucketVersioningInput => PutBucketVersioningOutput {
        answer(versions::put(&gateway.buckets, request.input, &request.extensions).await?)
    }
    create_multipart_upload: CreateMultipartUploadInput => CreateMultipartUploadOutput {
        answer(uploads::create(&gateway.buckets, request).await?)
    }
    upload_part: UploadPartInput => UploadPartOutput {
        uploads::part(&gateway.buckets, request).await
    }
    upload_part_copy: UploadPartCopyInput => UploadPartCopyOutput {
        let (buckets, told) = (gateway.buckets.clone(), request.extensions.clone());
        let copying = async move { uploads::part_copy(&buckets, request).await };
        late::within(gateway.quiet, &told, copying).await
    }
    list_parts: ListPartsInput => ListPartsOutput {
        answer(uploads::list_parts(&gateway.buckets, request).await?)
    }
    list_multipart_uploads: ListMultipartUploadsInput => ListMultipartUploadsOutput {
        answer(uploads::list_uploads(&gateway.buckets, request).await?)
    }
    complete_multipart_upload: CompleteMultipartUploadInput => CompleteMultipartUploadOutput {
        let (buckets, hosts) = (gateway.buckets.clone(), gateway.hosts.clone());
        let told = request.extensions.clone();
        let completing = async move { uploads::complete(&buckets, &hosts, request).await };
        late::within(gateway.quiet, &told, completing).await
    }
    abort_multipart_upload: AbortMultipartUploadInput => AbortMultipartUploadOutput {
        answer(uploads::abort(&gateway.buckets, request.input).await?)
    }
    get_bucket_acl: GetBucketAclInput => GetBucketAclOutput {
        answer(acls::get_bucket(&gateway.buckets, request).await?)
    }
    put_bucket_acl: PutBucketAclInput => PutBucketAclOutput {
        answer(acls::put_bucket(&gateway.buckets, request).await?)
    }
    get_object_acl: GetObjectAclInput => GetObjectAclOutput {
        answer(acls::get_object(&gateway.buckets, request).await?)
    }
    put_object_acl: PutObjectAclInput => PutObjectAclOutput {
        answer(acls::put_object(&gateway.buckets, request).await?)
    }
    get_bucket_tagging: GetBucketTaggingInput => GetBucketTaggingOutput {
        answer(subresources::tags(&gateway.buckets, &request.input.bucket).await?)
    }
    put_bucket_tagging: PutBucketTaggingInput => PutBucketTaggingOutput {
        let input = request.input;
        let judged = Judged::of(&request.extensions, &input.bucket);
        subresources::set_tags(&gateway.buckets, &judged, input.tagging.tag_set).await?;
        let mut answer = S3Response::new(PutBucketTaggingOutput::default());
        answer.extensions.insert(Status(StatusCode::NO_CONTENT));
        Ok(answer)
    }
    delete_bucket_tagging: DeleteBucketTaggingInput => DeleteBucketTaggingOutput {
        let judged = Judged::of(&request.extensions, &request.input.bucket);
        subresources::remove_tags(&gateway.buckets, &judged).await?;
        answer(DeleteBucketTaggingOutput::default())
    }
    get_bucket_cors: GetBucketCorsInput => GetBucketCorsOutput {
        answer(subresources::cors(&gateway.buckets, &request.input.bucket).await?)
    }
    put_bucket_cors: PutBucketCorsInput => PutBucketCorsOutput {
        let input = request.input;
        let rules = input.cors_configuration.cors_rules;
        let judged = Judged::of(&request.extensions, &input.bucket);
        subresources::set_cors(&gateway.buckets, &judged, rules).await?;
        answer(PutBucketCorsOutput::default())
    }
    delete_bucket_cors: DeleteBucketCorsInput => DeleteBucketCorsOutput {
        let judged = Judged::of(&request.extensions, &request.input.bucket);
        subresources::remove_cors(&gateway.buckets, &judged).await?;
        answer(DeleteBucketCorsOutput::default())
    }
    get_bucket_policy: GetBucketPolicyInput => GetBucketPolicyOutput {
        answer(subresources::policy(&gateway.buckets, &request.input.bucket).await?)
    }
    put_bucket_policy: PutBucketPolicyInput => PutBucketPolicyOutput {
        let PutBucketPolicyInput { bucket, policy, .. } = request.input;
        let judged = Judged::of(&request.extensions, &bucket);
        subresources::set_policy(&gateway.buckets, gateway.lists, &judged, policy).await?;
        answer(PutBucketPolicyOutput::default())
    }
    delete_bucket_policy: DeleteBucketPolicyInput => DeleteBucketPolicyOutput {
        let judged = Judged::of(&request.extensions, &request.input.bucket);
        subresources::remove_policy(&gateway.buckets, &judged).await?;
        answer(DeleteBucketPolicyOutput::default())
    }
    get_bucket_policy_status: GetBucketPolicyStatusInput => GetBucketPolicyStatusOutput {
        answer(subresources::policy_status(&gateway.buckets, &request.input.bucket).await?)
    }
    get_public_access_block: GetPublicAccessBlockInput => GetPublicAccessBlockOutput {
        answer(subresources::public_block(&gateway.buckets, &request.input.bucket).await?)
    }
    put_public_access_block: PutPublicAccessBlockInput => PutPublicAccessBlockOutput {
        let input = request.input;
        let asked = input.public_access_block_configuration;
        let judged = Judged::of(&request.extensions, &input.bucket);
        subresources::set_public_block(&gateway.buckets, &judged, asked).await?;
        answer(PutPublicAccessBlockOutput::default())
    }
    delete_public_access_block: DeletePublicAccessBlockInput => DeletePublicAccessBlockOutput {
        let judged = Judged::of(&request.extensions, &request.input.bucket);
        subresources::remove_public_block(&gateway.buckets, &judged).await?;
        answer(DeletePublicAccessBlockOutput::default())
    }
    get_bucket_ownership_controls: GetBucketOwnershipControlsInput
        => GetBucketOwnershipControlsOutput {
        answer(subresources::ownership(&gateway.buckets, &request.input.bucket).await?)
    }
    put_bucket_ownership_controls: PutBucketOwnershipControlsInput
        => PutBucketOwnershipControlsOutput {
        let input = request.input;
        let asked = input.ownership_controls;
        let judged = Judged::of(&request.extensions, &input.bucket);
        subresources::set_ownership(&gateway.buckets, &judged, asked).await?;
        answer(PutBucketOwnershipControlsOutput::default())
    }
    delete_bucket_ownership_controls: DeleteBucketOwnershipControlsInput
        => DeleteBucketOwnershipControlsOutput {
        let judged = Judged::of(&request.extensions, &request.input.bucket);
        subresources::remove_ownership(&gateway.buckets, &judged).await?;
        answer(DeleteBucketOwnershipControlsOutput::default())
    }
    get_bucket_lifecycle_configuration: GetBucketLifecycleConfigurationInput
        => GetBucketLifecycleConfigurationOutput {
        let missing = "NoSuchLifecycleConfiguration";
        match subresources::never(&gateway.buckets, &request.input.bucket, missing).await? {}
    }
    get_bucket_website: GetBucketWebsiteInput => GetBucketWebsiteOutput {
        let missing = "NoSuchWebsiteConfiguration";
        match subresources::never(&gateway.buckets, &request.input.bucket, missing).await? {}
    }
    get_bucket_replication: GetBucketReplicationInput => GetBucketReplicationOutput {
        let missing = "ReplicationConfigurationNotFoundError";
        match subresources::never(&gateway.buckets, &request.input.bucket, missing).await? {}
    }
    get_bucket_logging: GetBucketLoggingInput => GetBucketLoggingOutput {
        gateway.buckets.check(&request.input.bucket).await?;
        answer(GetBucketLoggingOutput::default())
    }
    get_bucket_notification_configuration: GetBucketNotificationConfigurationInput
        => GetBucketNotificationConfigurationOutput {
        gateway.buckets.check(&request.input.bucket).await?;
        answer(GetBucketNotificationConfigurationOutput::default())
    }
    get_bucket_accelerate_configuration: GetBucketAccelerateConfigurationInput
        => GetBucketAccelerateConfigurationOutput {
        gateway.buckets.check(&request.input.bucket).await?;
        answer(GetBucketAccelerateConfigurationOutput::default())
    }
    get_bucket_request_payment: GetBucketRequestPaymentInput => GetBucketRequestPaymentOutput {
        answer(subresources::payer(&gateway.buckets, &request.input.bucket).await?)
    }
    get_object_lock_configuration: GetObjectLockConfigurationInput
        => GetObjectLockConfigurationOutput {
        answer(locks::configuration(&gateway.buckets, &request.input.bucket).await?)
    }
    put_object_lock_configuration: PutObjectLockConfigurationInput
        => PutObjectLockConfigurationOutput {
        locks::configure(&gateway.buckets, request.input, &request.extensions).await?;
        answer(PutObjectLockConfigurationOutput::default())
    }
    get_object_retention: GetObjectRetentionInput => GetObjectRetentionOutput {
        answer(locks::retention(&gateway.buckets, request).await?)
    }
    put_object_retention: PutObjectRetentionInput => PutObjectRetentionOutput {
        locks::retain(&gateway.buckets, request).await?;
        answer(PutObjectRetentionOutput::default())
    }
    get_object_legal_hold: GetObjectLegalHoldInput => GetObjectLegalHoldOutput {
        answer(locks::hold(&gateway.buckets, request).await?)
    }
    put_object_legal_hold: PutObjectLegalHoldInput => PutObjectLegalHoldOutput {
        locks::set_hold(&gateway.buckets, request).await?;
        answer(PutObjectLegalHoldOutput::default())
    }
    get_bucket_encryption: GetBucketEncryptionInput => GetBucketEncryptionOutput {
        answer(subresources::encryption(&gateway.buckets, &request.input.bucket).await?)
    }
    put_bucket_encryption: PutBucketEncryptionInput => PutBucketEncryptionOutput {
        let input = request.input;
        let asked = input.server_side_encryption_configuration;
        let judged = Judged::of(&request.extensions, &input.bucket);
        subresources::set_encryption(&gateway.buckets, &judged, asked).await?;
        answer(PutBucketEncryptionOutput::default())
    }
    delete_bucket_encryption: DeleteBucketEncryptionInput => DeleteBucketEncryptionOutput {
        let judged = Judged::of(&request.extensions, &request.input.bucket);
        subresources::remove_encryption(&gateway.buckets, &judged).await?;
        answer(DeleteBucketEncryptionOutput::default())
    }
}
