//! The S3 operations that exist, each handed to its room. Those that are missing here answer
//! `NotImplemented` with their name.

use crate::auth::bucket_owner;
use crate::buckets::Buckets;
use crate::hosts::Hosts;
use crate::sharing::Lists;
use crate::{
    acls, attributes, copy, delete, get, list, locks, put, subresources, tagging, uploads, versions,
};
use s3s::dto::*;
use s3s::{S3, S3Request, S3Response, S3Result};
use std::sync::Arc;

/// S3 over the back ends.
#[derive(Clone)]
pub(crate) struct Gateway {
    pub buckets: Arc<Buckets>,
    pub lists: Lists,
    pub hosts: Arc<Hosts>,
}

fn answer<T>(output: T) -> S3Result<S3Response<T>> {
    Ok(S3Response::new(output))
}

#[async_trait::async_trait]
impl S3 for Gateway {
    async fn list_buckets(
        &self,
        request: S3Request<ListBucketsInput>,
    ) -> S3Result<S3Response<ListBucketsOutput>> {
        answer(list::list_buckets(&self.buckets, request).await?)
    }

    async fn create_bucket(
        &self,
        request: S3Request<CreateBucketInput>,
    ) -> S3Result<S3Response<CreateBucketOutput>> {
        answer(acls::create_bucket(&self.buckets, request).await?)
    }

    async fn head_bucket(
        &self,
        request: S3Request<HeadBucketInput>,
    ) -> S3Result<S3Response<HeadBucketOutput>> {
        answer(subresources::head(&self.buckets, &request.input.bucket).await?)
    }

    async fn get_bucket_location(
        &self,
        request: S3Request<GetBucketLocationInput>,
    ) -> S3Result<S3Response<GetBucketLocationOutput>> {
        answer(subresources::location(&self.buckets, &request.input.bucket).await?)
    }

    async fn delete_bucket(
        &self,
        request: S3Request<DeleteBucketInput>,
    ) -> S3Result<S3Response<DeleteBucketOutput>> {
        self.buckets.delete(&request.input.bucket).await?;
        answer(DeleteBucketOutput::default())
    }

    async fn get_object(
        &self,
        request: S3Request<GetObjectInput>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        get::get(&self.buckets, request).await
    }

    async fn head_object(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        get::head(&self.buckets, request).await
    }

    async fn put_object(
        &self,
        request: S3Request<PutObjectInput>,
    ) -> S3Result<S3Response<PutObjectOutput>> {
        put::put(&self.buckets, request).await
    }

    async fn copy_object(
        &self,
        request: S3Request<CopyObjectInput>,
    ) -> S3Result<S3Response<CopyObjectOutput>> {
        answer(copy::copy(&self.buckets, request).await?)
    }

    async fn delete_object(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        answer(delete::delete(&self.buckets, request).await?)
    }

    async fn delete_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        answer(delete::delete_batch(&self.buckets, request).await?)
    }

    async fn get_object_attributes(
        &self,
        request: S3Request<GetObjectAttributesInput>,
    ) -> S3Result<S3Response<GetObjectAttributesOutput>> {
        answer(attributes::attributes(&self.buckets, request.input).await?)
    }

    async fn get_object_tagging(
        &self,
        request: S3Request<GetObjectTaggingInput>,
    ) -> S3Result<S3Response<GetObjectTaggingOutput>> {
        answer(tagging::get(&self.buckets, request.input).await?)
    }

    async fn put_object_tagging(
        &self,
        request: S3Request<PutObjectTaggingInput>,
    ) -> S3Result<S3Response<PutObjectTaggingOutput>> {
        answer(tagging::put(&self.buckets, request.input).await?)
    }

    async fn delete_object_tagging(
        &self,
        request: S3Request<DeleteObjectTaggingInput>,
    ) -> S3Result<S3Response<DeleteObjectTaggingOutput>> {
        answer(tagging::delete(&self.buckets, request.input).await?)
    }

    async fn list_objects(
        &self,
        request: S3Request<ListObjectsInput>,
    ) -> S3Result<S3Response<ListObjectsOutput>> {
        list::check_unordered(request.uri.query(), request.input.delimiter.as_deref())?;
        let bucket = self.buckets.get(&request.input.bucket).await?;
        let owner = bucket_owner(&request.extensions);
        answer(list::list_v1(&bucket, owner, request.input).await?)
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        list::check_unordered(request.uri.query(), request.input.delimiter.as_deref())?;
        let bucket = self.buckets.get(&request.input.bucket).await?;
        let owner = bucket_owner(&request.extensions);
        answer(list::list_v2(&bucket, owner, request.input).await?)
    }

    async fn list_object_versions(
        &self,
        request: S3Request<ListObjectVersionsInput>,
    ) -> S3Result<S3Response<ListObjectVersionsOutput>> {
        let bucket = self.buckets.get(&request.input.bucket).await?;
        let owner = bucket_owner(&request.extensions);
        answer(versions::list(&bucket, owner, request.input).await?)
    }

    async fn get_bucket_versioning(
        &self,
        request: S3Request<GetBucketVersioningInput>,
    ) -> S3Result<S3Response<GetBucketVersioningOutput>> {
        answer(versions::get(&self.buckets, request.input).await?)
    }

    async fn put_bucket_versioning(
        &self,
        request: S3Request<PutBucketVersioningInput>,
    ) -> S3Result<S3Response<PutBucketVersioningOutput>> {
        answer(versions::put(&self.buckets, request.input).await?)
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        answer(uploads::create(&self.buckets, request).await?)
    }

    async fn upload_part(
        &self,
        request: S3Request<UploadPartInput>,
    ) -> S3Result<S3Response<UploadPartOutput>> {
        uploads::part(&self.buckets, request).await
    }

    async fn upload_part_copy(
        &self,
        request: S3Request<UploadPartCopyInput>,
    ) -> S3Result<S3Response<UploadPartCopyOutput>> {
        answer(uploads::part_copy(&self.buckets, request).await?)
    }

    async fn list_parts(
        &self,
        request: S3Request<ListPartsInput>,
    ) -> S3Result<S3Response<ListPartsOutput>> {
        answer(uploads::list_parts(&self.buckets, request).await?)
    }

    async fn list_multipart_uploads(
        &self,
        request: S3Request<ListMultipartUploadsInput>,
    ) -> S3Result<S3Response<ListMultipartUploadsOutput>> {
        answer(uploads::list_uploads(&self.buckets, request).await?)
    }

    async fn complete_multipart_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        answer(uploads::complete(&self.buckets, &self.hosts, request).await?)
    }

    async fn abort_multipart_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        answer(uploads::abort(&self.buckets, request.input).await?)
    }

    async fn get_bucket_acl(
        &self,
        request: S3Request<GetBucketAclInput>,
    ) -> S3Result<S3Response<GetBucketAclOutput>> {
        answer(acls::get_bucket(&self.buckets, request).await?)
    }

    async fn put_bucket_acl(
        &self,
        request: S3Request<PutBucketAclInput>,
    ) -> S3Result<S3Response<PutBucketAclOutput>> {
        answer(acls::put_bucket(&self.buckets, request).await?)
    }

    async fn get_object_acl(
        &self,
        request: S3Request<GetObjectAclInput>,
    ) -> S3Result<S3Response<GetObjectAclOutput>> {
        answer(acls::get_object(&self.buckets, request).await?)
    }

    async fn put_object_acl(
        &self,
        request: S3Request<PutObjectAclInput>,
    ) -> S3Result<S3Response<PutObjectAclOutput>> {
        answer(acls::put_object(&self.buckets, request).await?)
    }

    async fn get_bucket_tagging(
        &self,
        request: S3Request<GetBucketTaggingInput>,
    ) -> S3Result<S3Response<GetBucketTaggingOutput>> {
        answer(subresources::tags(&self.buckets, &request.input.bucket).await?)
    }

    async fn put_bucket_tagging(
        &self,
        request: S3Request<PutBucketTaggingInput>,
    ) -> S3Result<S3Response<PutBucketTaggingOutput>> {
        let input = request.input;
        subresources::set_tags(&self.buckets, &input.bucket, input.tagging.tag_set).await?;
        answer(PutBucketTaggingOutput::default())
    }

    async fn delete_bucket_tagging(
        &self,
        request: S3Request<DeleteBucketTaggingInput>,
    ) -> S3Result<S3Response<DeleteBucketTaggingOutput>> {
        subresources::remove_tags(&self.buckets, &request.input.bucket).await?;
        answer(DeleteBucketTaggingOutput::default())
    }

    async fn get_bucket_cors(
        &self,
        request: S3Request<GetBucketCorsInput>,
    ) -> S3Result<S3Response<GetBucketCorsOutput>> {
        answer(subresources::cors(&self.buckets, &request.input.bucket).await?)
    }

    async fn put_bucket_cors(
        &self,
        request: S3Request<PutBucketCorsInput>,
    ) -> S3Result<S3Response<PutBucketCorsOutput>> {
        let input = request.input;
        subresources::set_cors(&self.buckets, &input.bucket, input.cors_configuration.cors_rules)
            .await?;
        answer(PutBucketCorsOutput::default())
    }

    async fn delete_bucket_cors(
        &self,
        request: S3Request<DeleteBucketCorsInput>,
    ) -> S3Result<S3Response<DeleteBucketCorsOutput>> {
        subresources::remove_cors(&self.buckets, &request.input.bucket).await?;
        answer(DeleteBucketCorsOutput::default())
    }

    async fn get_bucket_policy(
        &self,
        request: S3Request<GetBucketPolicyInput>,
    ) -> S3Result<S3Response<GetBucketPolicyOutput>> {
        answer(subresources::policy(&self.buckets, &request.input.bucket).await?)
    }

    async fn put_bucket_policy(
        &self,
        request: S3Request<PutBucketPolicyInput>,
    ) -> S3Result<S3Response<PutBucketPolicyOutput>> {
        let PutBucketPolicyInput { bucket, policy, .. } = request.input;
        subresources::set_policy(&self.buckets, self.lists, &bucket, policy).await?;
        answer(PutBucketPolicyOutput::default())
    }

    async fn delete_bucket_policy(
        &self,
        request: S3Request<DeleteBucketPolicyInput>,
    ) -> S3Result<S3Response<DeleteBucketPolicyOutput>> {
        subresources::remove_policy(&self.buckets, &request.input.bucket).await?;
        answer(DeleteBucketPolicyOutput::default())
    }

    async fn get_bucket_policy_status(
        &self,
        request: S3Request<GetBucketPolicyStatusInput>,
    ) -> S3Result<S3Response<GetBucketPolicyStatusOutput>> {
        answer(subresources::policy_status(&self.buckets, &request.input.bucket).await?)
    }

    async fn get_public_access_block(
        &self,
        request: S3Request<GetPublicAccessBlockInput>,
    ) -> S3Result<S3Response<GetPublicAccessBlockOutput>> {
        answer(subresources::public_block(&self.buckets, &request.input.bucket).await?)
    }

    async fn put_public_access_block(
        &self,
        request: S3Request<PutPublicAccessBlockInput>,
    ) -> S3Result<S3Response<PutPublicAccessBlockOutput>> {
        let input = request.input;
        subresources::set_public_block(
            &self.buckets,
            &input.bucket,
            input.public_access_block_configuration,
        )
        .await?;
        answer(PutPublicAccessBlockOutput::default())
    }

    async fn delete_public_access_block(
        &self,
        request: S3Request<DeletePublicAccessBlockInput>,
    ) -> S3Result<S3Response<DeletePublicAccessBlockOutput>> {
        subresources::remove_public_block(&self.buckets, &request.input.bucket).await?;
        answer(DeletePublicAccessBlockOutput::default())
    }

    async fn get_bucket_ownership_controls(
        &self,
        request: S3Request<GetBucketOwnershipControlsInput>,
    ) -> S3Result<S3Response<GetBucketOwnershipControlsOutput>> {
        answer(subresources::ownership(&self.buckets, &request.input.bucket).await?)
    }

    async fn put_bucket_ownership_controls(
        &self,
        request: S3Request<PutBucketOwnershipControlsInput>,
    ) -> S3Result<S3Response<PutBucketOwnershipControlsOutput>> {
        let input = request.input;
        subresources::set_ownership(&self.buckets, &input.bucket, input.ownership_controls).await?;
        answer(PutBucketOwnershipControlsOutput::default())
    }

    async fn delete_bucket_ownership_controls(
        &self,
        request: S3Request<DeleteBucketOwnershipControlsInput>,
    ) -> S3Result<S3Response<DeleteBucketOwnershipControlsOutput>> {
        subresources::remove_ownership(&self.buckets, &request.input.bucket).await?;
        answer(DeleteBucketOwnershipControlsOutput::default())
    }

    async fn get_bucket_lifecycle_configuration(
        &self,
        request: S3Request<GetBucketLifecycleConfigurationInput>,
    ) -> S3Result<S3Response<GetBucketLifecycleConfigurationOutput>> {
        match subresources::never(
            &self.buckets,
            &request.input.bucket,
            "NoSuchLifecycleConfiguration",
        )
        .await? {}
    }

    async fn get_bucket_website(
        &self,
        request: S3Request<GetBucketWebsiteInput>,
    ) -> S3Result<S3Response<GetBucketWebsiteOutput>> {
        match subresources::never(
            &self.buckets,
            &request.input.bucket,
            "NoSuchWebsiteConfiguration",
        )
        .await? {}
    }

    async fn get_bucket_replication(
        &self,
        request: S3Request<GetBucketReplicationInput>,
    ) -> S3Result<S3Response<GetBucketReplicationOutput>> {
        match subresources::never(
            &self.buckets,
            &request.input.bucket,
            "ReplicationConfigurationNotFoundError",
        )
        .await? {}
    }

    async fn get_object_lock_configuration(
        &self,
        request: S3Request<GetObjectLockConfigurationInput>,
    ) -> S3Result<S3Response<GetObjectLockConfigurationOutput>> {
        answer(locks::configuration(&self.buckets, &request.input.bucket).await?)
    }

    async fn put_object_lock_configuration(
        &self,
        request: S3Request<PutObjectLockConfigurationInput>,
    ) -> S3Result<S3Response<PutObjectLockConfigurationOutput>> {
        locks::configure(&self.buckets, request.input).await?;
        answer(PutObjectLockConfigurationOutput::default())
    }

    async fn get_object_retention(
        &self,
        request: S3Request<GetObjectRetentionInput>,
    ) -> S3Result<S3Response<GetObjectRetentionOutput>> {
        answer(locks::retention(&self.buckets, request.input).await?)
    }

    async fn put_object_retention(
        &self,
        request: S3Request<PutObjectRetentionInput>,
    ) -> S3Result<S3Response<PutObjectRetentionOutput>> {
        locks::retain(&self.buckets, request.input, &request.extensions).await?;
        answer(PutObjectRetentionOutput::default())
    }

    async fn get_object_legal_hold(
        &self,
        request: S3Request<GetObjectLegalHoldInput>,
    ) -> S3Result<S3Response<GetObjectLegalHoldOutput>> {
        answer(locks::hold(&self.buckets, request.input).await?)
    }

    async fn put_object_legal_hold(
        &self,
        request: S3Request<PutObjectLegalHoldInput>,
    ) -> S3Result<S3Response<PutObjectLegalHoldOutput>> {
        locks::set_hold(&self.buckets, request.input).await?;
        answer(PutObjectLegalHoldOutput::default())
    }

    async fn get_bucket_encryption(
        &self,
        request: S3Request<GetBucketEncryptionInput>,
    ) -> S3Result<S3Response<GetBucketEncryptionOutput>> {
        answer(subresources::encryption(&self.buckets, &request.input.bucket).await?)
    }

    async fn put_bucket_encryption(
        &self,
        request: S3Request<PutBucketEncryptionInput>,
    ) -> S3Result<S3Response<PutBucketEncryptionOutput>> {
        let input = request.input;
        let asked = input.server_side_encryption_configuration;
        subresources::set_encryption(&self.buckets, &input.bucket, asked).await?;
        answer(PutBucketEncryptionOutput::default())
    }

    async fn delete_bucket_encryption(
        &self,
        request: S3Request<DeleteBucketEncryptionInput>,
    ) -> S3Result<S3Response<DeleteBucketEncryptionOutput>> {
        subresources::remove_encryption(&self.buckets, &request.input.bucket).await?;
        answer(DeleteBucketEncryptionOutput::default())
    }
}
