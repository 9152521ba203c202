//! The S3 operations that exist, each handed to its room. Those that are missing here answer
//! `NotImplemented` with their name.

use crate::auth::Caller;
use crate::buckets::Buckets;
use crate::{attributes, copy, delete, get, list, put, refuse, tagging, uploads, versions};
use s3s::dto::*;
use s3s::{S3, S3Request, S3Response, S3Result, s3_error};
use std::sync::Arc;

/// S3 over the back ends.
pub(crate) struct Gateway {
    pub buckets: Arc<Buckets>,
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
        let prefix = request.input.prefix.unwrap_or_default();
        let caller = request.extensions.get::<Caller>();
        let may_see = |name: &str| caller.is_some_and(|caller| caller.may_see(name));
        let entries = self.buckets.list().await?;
        let shown = entries.into_iter().filter(|entry| entry.name.starts_with(&prefix));
        let shown = shown.filter(|entry| may_see(&entry.name));
        let bucket = |entry: crate::buckets::BucketEntry| Bucket {
            name: Some(entry.name),
            creation_date: entry.created.map(Timestamp::from),
            ..Default::default()
        };
        answer(ListBucketsOutput {
            buckets: Some(shown.map(bucket).collect()),
            owner: Some(list::owner()),
            ..Default::default()
        })
    }

    async fn create_bucket(
        &self,
        request: S3Request<CreateBucketInput>,
    ) -> S3Result<S3Response<CreateBucketOutput>> {
        let input = request.input;
        refuse::acl(input.acl.as_ref().map(|acl| acl.as_str()))?;
        if input.object_lock_enabled_for_bucket.unwrap_or(false) {
            return Err(s3_error!(NotImplemented, "buckets with object lock"));
        }
        self.buckets.create(&input.bucket).await?;
        answer(CreateBucketOutput { location: Some(format!("/{}", input.bucket)) })
    }

    async fn head_bucket(
        &self,
        request: S3Request<HeadBucketInput>,
    ) -> S3Result<S3Response<HeadBucketOutput>> {
        self.buckets.check(&request.input.bucket).await?;
        answer(HeadBucketOutput::default())
    }

    async fn get_bucket_location(
        &self,
        request: S3Request<GetBucketLocationInput>,
    ) -> S3Result<S3Response<GetBucketLocationOutput>> {
        self.buckets.check(&request.input.bucket).await?;
        // None is how S3 spells us-east-1, and every region is accepted in signatures.
        answer(GetBucketLocationOutput::default())
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
        answer(put::put(&self.buckets, request).await?)
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
        answer(delete::delete(&self.buckets, request.input).await?)
    }

    async fn delete_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        answer(delete::delete_batch(&self.buckets, request.input).await?)
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
        answer(list::list_v1(&bucket, request.input).await?)
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        list::check_unordered(request.uri.query(), request.input.delimiter.as_deref())?;
        let bucket = self.buckets.get(&request.input.bucket).await?;
        answer(list::list_v2(&bucket, request.input).await?)
    }

    async fn list_object_versions(
        &self,
        request: S3Request<ListObjectVersionsInput>,
    ) -> S3Result<S3Response<ListObjectVersionsOutput>> {
        let bucket = self.buckets.get(&request.input.bucket).await?;
        answer(versions::list(&bucket, request.input).await?)
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
        answer(uploads::part(&self.buckets, request).await?)
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
        answer(uploads::list_parts(&self.buckets, request.input).await?)
    }

    async fn list_multipart_uploads(
        &self,
        request: S3Request<ListMultipartUploadsInput>,
    ) -> S3Result<S3Response<ListMultipartUploadsOutput>> {
        answer(uploads::list_uploads(&self.buckets, request.input).await?)
    }

    async fn complete_multipart_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        answer(uploads::complete(&self.buckets, request).await?)
    }

    async fn abort_multipart_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        answer(uploads::abort(&self.buckets, request.input).await?)
    }
}
