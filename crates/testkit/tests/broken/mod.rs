//! Stores with one planted defect each, over the reference model.

use async_trait::async_trait;
use penstock_base::{Error, Kind, Result};
use penstock_store::{
    Body, Capabilities, ETag, GetRange, GetRequest, GetResponse, ListPage, ListRequest, ObjectMeta,
    Part, Payload, Profile, PutOptions, PutResult, Store, UploadId, WriteCondition,
};
use penstock_testkit::model::ModelStore;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    MisplacedByte,
    RangeOffByOne,
    PastEndIsAnError,
    IfMatchIgnored,
    IfNoneMatchIgnored,
    IfModifiedSinceIgnored,
    NotModifiedIsAnyConflict,
    IfAbsentIgnored,
    DeleteConditionIgnored,
    KeysTidiedUp,
    PlusIsSpace,
    ListLosesTheNameAtAPageEdge,
    ListUnordered,
    ListTagDiffers,
    PartsInOrderOfSending,
    PartVisibleEarly,
    CompletedTwiceFails,
    ErrorShowsSecret,
    ErrorNamesNoObject,
    ClaimsTooLittle,
}

/// Each defect with the cases that must notice it.
pub const DEFECTS: &[(Defect, &[&str])] = &[
    (Defect::MisplacedByte, &["get_whole_object", "put_round_trip", "upload_many_parts"]),
    (Defect::RangeOffByOne, &["get_bounded_ranges", "get_many_at_once"]),
    (Defect::PastEndIsAnError, &["get_bounded_ranges", "get_from_an_offset"]),
    (Defect::IfMatchIgnored, &["get_if_match", "get_if_match_after_overwrite"]),
    (Defect::IfNoneMatchIgnored, &["get_if_none_match", "get_conditions_of_empty_ranges"]),
    (Defect::IfModifiedSinceIgnored, &["get_if_modified_since"]),
    (Defect::NotModifiedIsAnyConflict, &["get_if_none_match", "get_if_modified_since"]),
    (Defect::IfAbsentIgnored, &["put_if_absent", "upload_conditional_complete"]),
    (Defect::DeleteConditionIgnored, &["delete_if_match"]),
    (Defect::KeysTidiedUp, &["raw_keys", "similar_keys_stay_apart"]),
    (Defect::PlusIsSpace, &["raw_keys", "similar_keys_stay_apart"]),
    (Defect::ListLosesTheNameAtAPageEdge, &["list_pages", "list_pages_with_delimiter"]),
    (Defect::ListUnordered, &["list_order"]),
    (Defect::ListTagDiffers, &["etags_agree", "list_metadata"]),
    (Defect::PartsInOrderOfSending, &["upload_part_sent_again"]),
    (Defect::PartVisibleEarly, &["upload_invisible_until_complete"]),
    (Defect::CompletedTwiceFails, &["upload_completed_twice"]),
    (Defect::ErrorShowsSecret, &["debug_shows_no_secret"]),
    (Defect::ErrorNamesNoObject, &["missing_object"]),
    (Defect::ClaimsTooLittle, &["get_suffix_ranges", "put_if_match", "copy_object"]),
];

/// The model with one defect.
#[derive(Debug)]
pub struct Broken {
    model: ModelStore,
    defect: Defect,
}

impl Broken {
    /// Plants a defect.
    pub fn new(defect: Defect) -> Self {
        Broken { model: ModelStore::default(), defect }
    }

    fn has(&self, defect: Defect) -> bool {
        self.defect == defect
    }

    fn key(&self, key: &str) -> String {
        match self.defect {
            Defect::KeysTidiedUp => {
                key.split('/').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
            }
            Defect::PlusIsSpace => key.replace('+', " "),
            _ => key.to_string(),
        }
    }
}

#[async_trait]
impl Store for Broken {
    fn root(&self) -> &str {
        if self.has(Defect::ErrorShowsSecret) {
            "model://user:hunter2@bucket/"
        } else {
            self.model.root()
        }
    }

    fn origin(&self) -> Option<String> {
        self.model.origin()
    }

    fn profile(&self) -> Profile {
        self.model.profile()
    }

    fn capabilities(&self) -> Capabilities {
        let mut claimed = self.model.capabilities();
        if self.has(Defect::ClaimsTooLittle) {
            claimed.suffix_range = false;
            claimed.conditional_put = false;
            claimed.copy = false;
        }
        claimed
    }

    async fn get(&self, key: &str, mut request: GetRequest) -> Result<GetResponse> {
        if self.has(Defect::IfMatchIgnored) {
            request.if_match = None;
        }
        if self.has(Defect::IfNoneMatchIgnored) {
            request.if_none_match = None;
        }
        if self.has(Defect::IfModifiedSinceIgnored) {
            request.if_modified_since = None;
        }
        let asked = request.range;
        if let (Defect::RangeOffByOne, GetRange::Bounded(range)) = (self.defect, &mut request.range)
        {
            range.end += 1;
        }
        let mut answer = match self.model.get(&self.key(key), request).await {
            Err(error) if self.has(Defect::NotModifiedIsAnyConflict) && error.is_not_modified() => {
                return Err(error.with_http_status(412));
            }
            answer => answer?,
        };
        if self.has(Defect::PastEndIsAnError) && answer.range.is_empty() && asked != GetRange::All {
            return Err(Error::new(Kind::Invalid, "416 range not satisfiable"));
        }
        let Body::Memory(bytes) = &mut answer.body else { return Ok(answer) };
        if self.has(Defect::MisplacedByte) && bytes.len() > 5000 {
            let mut wrong = bytes.to_vec();
            wrong.swap(4095, 4096);
            wrong[4097] ^= 0x40;
            *bytes = wrong.into();
        }
        Ok(answer)
    }

    async fn stat(&self, key: &str) -> Result<ObjectMeta> {
        let meta = self.model.stat(&self.key(key)).await;
        if self.has(Defect::ErrorNamesNoObject) {
            return meta.map_err(|error| Error::new(error.kind(), "it is not there"));
        }
        meta
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage> {
        let mut page = self.model.list(request).await?;
        match self.defect {
            Defect::ListLosesTheNameAtAPageEdge if page.next.is_some() => {
                page.objects.pop();
            }
            Defect::ListUnordered => page.objects.reverse(),
            Defect::ListTagDiffers => {
                for entry in &mut page.objects {
                    entry.meta.etag = Some(ETag("\"quoted\"".to_string()));
                }
            }
            _ => {}
        }
        Ok(page)
    }

    async fn put(&self, key: &str, payload: Payload, options: &PutOptions) -> Result<PutResult> {
        let mut options = options.clone();
        if self.has(Defect::IfAbsentIgnored) {
            options.condition = WriteCondition::None;
        }
        self.model.put(&self.key(key), payload, &options).await
    }

    async fn create_upload(&self, key: &str, options: &PutOptions) -> Result<UploadId> {
        self.model.create_upload(&self.key(key), options).await
    }

    async fn upload_part(
        &self,
        key: &str,
        upload: &UploadId,
        number: u32,
        payload: Payload,
    ) -> Result<Part> {
        if self.has(Defect::PartVisibleEarly) {
            self.model.put(key, payload.clone(), &PutOptions::default()).await?;
        }
        let part = self.model.upload_part(key, upload, number, payload).await?;
        if self.has(Defect::PartsInOrderOfSending) && number == 1 {
            return Ok(Part { size_bytes: part.size_bytes + 1, ..part });
        }
        Ok(part)
    }

    async fn complete_upload(
        &self,
        key: &str,
        upload: &UploadId,
        parts: &[Part],
        options: &PutOptions,
    ) -> Result<PutResult> {
        let mut options = options.clone();
        if self.has(Defect::IfAbsentIgnored) {
            options.condition = WriteCondition::None;
        }
        let done = self.model.complete_upload(key, upload, parts, &options).await?;
        if self.has(Defect::CompletedTwiceFails) {
            // Forgets which upload made the object.
            self.model.copy(key, key, &PutOptions::default()).await?;
            return Ok(PutResult { etag: self.model.stat(key).await?.etag, ..done });
        }
        Ok(done)
    }

    async fn abort_upload(&self, key: &str, upload: &UploadId) -> Result<()> {
        self.model.abort_upload(key, upload).await
    }

    async fn delete(&self, key: &str, if_match: Option<&ETag>) -> Result<()> {
        let if_match = if_match.filter(|_| !self.has(Defect::DeleteConditionIgnored));
        self.model.delete(&self.key(key), if_match).await
    }

    async fn delete_batch(&self, keys: &[String]) -> Result<Vec<Result<()>>> {
        self.model.delete_batch(keys).await
    }

    async fn copy(&self, from: &str, to: &str, options: &PutOptions) -> Result<PutResult> {
        self.model.copy(from, to, options).await
    }
}
