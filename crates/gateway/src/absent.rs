//! The operations of S3 that this gateway has not: one table, from which requests are refused by
//! name and the reference is printed. Pure.

use crate::query::pairs;
use http::Method;
use s3s::{S3Error, s3_error};

/// What the path of a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// This path, of no bucket.
    Service(&'static str),
    /// A bucket.
    Bucket,
    /// An object.
    Object,
}

/// An operation that is not here.
#[derive(Clone, Copy, Debug)]
pub struct Absent {
    /// Its name in S3.
    pub name: &'static str,
    /// The method of its request.
    pub method: &'static str,
    /// What its path names.
    pub place: Place,
    /// What its query has, each a name or a name and its value.
    pub query: &'static [&'static str],
    /// Why it is not here, and what there is instead.
    pub why: &'static str,
}

impl Absent {
    /// The request, as the reference shows it.
    pub fn request(&self) -> String {
        let path = match self.place {
            Place::Service(path) => path,
            Place::Bucket => "/BUCKET",
            Place::Object => "/BUCKET/KEY",
        };
        let mark = if self.query.is_empty() { "" } else { "?" };
        format!("{} {path}{mark}{}", self.method, self.query.join("&"))
    }

    fn refusal(&self) -> S3Error {
        s3_error!(NotImplemented, "{} is not implemented: {}", self.name, self.why)
    }

    pub(crate) fn is_asked_by(&self, method: &Method, place: Place, query: &str) -> bool {
        let has = |wanted: &&str| {
            let (name, value) = wanted.split_once('=').unwrap_or((wanted, ""));
            pairs(query).any(|pair| pair.0 == name && (value.is_empty() || pair.1 == value))
        };
        method == self.method && place == self.place && self.query.iter().all(has)
    }
}

const REPORTS: &str = "reports on a bucket are its back end's";
const TIERS: &str = "which objects move to which tier is set up at the back end";
const TABLES: &str = "tables of metadata are Amazon's own";
const RULES: &str = "rules for old objects are set up at the back end";
const COPIES: &str = "copies elsewhere are made by the back end";
const PAGES: &str = "no websites are served from buckets";
const NOTES: &str = "annotations of objects are Amazon's own";
const TAGS_GRANT: &str = "tags of a bucket grant nothing here";

/// One row per line: name, method, place, query, why.
macro_rules! absent {
    ($($name:ident $method:ident $place:expr, [$($query:literal),*], $why:expr;)*) => {
        /// Every operation that is refused by name. Of two that one request could mean the one with
        /// the longer query comes first.
        pub const ABSENT: &[Absent] = &[$(Absent {
            name: stringify!($name),
            method: stringify!($method),
            place: $place,
            query: &[$($query),*],
            why: $why,
        }),*];
    };
}

use Place::{Bucket, Object, Service};

absent! {
    CreateBucketMetadataConfiguration POST Bucket, ["metadataConfiguration"], TABLES;
    CreateBucketMetadataTableConfiguration POST Bucket, ["metadataTable"], TABLES;
    CreateSession GET Bucket, ["session"], "requests are signed with keys of the gateway";
    DeleteBucketAnalyticsConfiguration DELETE Bucket, ["analytics", "id"], REPORTS;
    DeleteBucketIntelligentTieringConfiguration DELETE Bucket, ["intelligent-tiering", "id"], TIERS;
    DeleteBucketInventoryConfiguration DELETE Bucket, ["inventory", "id"], REPORTS;
    DeleteBucketLifecycle DELETE Bucket, ["lifecycle"], RULES;
    DeleteBucketMetadataConfiguration DELETE Bucket, ["metadataConfiguration"], TABLES;
    DeleteBucketMetadataTableConfiguration DELETE Bucket, ["metadataTable"], TABLES;
    DeleteBucketMetricsConfiguration DELETE Bucket, ["metrics", "id"], REPORTS;
    DeleteBucketReplication DELETE Bucket, ["replication"], COPIES;
    DeleteBucketWebsite DELETE Bucket, ["website"], PAGES;
    DeleteObjectAnnotation DELETE Object, ["annotation"], NOTES;
    GetBucketAbac GET Bucket, ["abac"], TAGS_GRANT;
    GetBucketAnalyticsConfiguration GET Bucket, ["analytics", "id"], REPORTS;
    GetBucketIntelligentTieringConfiguration GET Bucket, ["intelligent-tiering", "id"], TIERS;
    GetBucketInventoryConfiguration GET Bucket, ["inventory", "id"], REPORTS;
    GetBucketMetadataConfiguration GET Bucket, ["metadataConfiguration"], TABLES;
    GetBucketMetadataTableConfiguration GET Bucket, ["metadataTable"], TABLES;
    GetBucketMetricsConfiguration GET Bucket, ["metrics", "id"], REPORTS;
    GetObjectAnnotation GET Object, ["annotation", "annotationName"], NOTES;
    GetObjectTorrent GET Object, ["torrent"], "no objects are given out by BitTorrent";
    ListBucketAnalyticsConfigurations GET Bucket, ["analytics"], REPORTS;
    ListBucketIntelligentTieringConfigurations GET Bucket, ["intelligent-tiering"], TIERS;
    ListBucketInventoryConfigurations GET Bucket, ["inventory"], REPORTS;
    ListBucketMetricsConfigurations GET Bucket, ["metrics"], REPORTS;
    ListDirectoryBuckets GET Service("/"), ["x-id=ListDirectoryBuckets"],
        "ListBuckets lists every bucket";
    ListObjectAnnotations GET Object, ["annotation"], NOTES;
    PutBucketAbac PUT Bucket, ["abac"], TAGS_GRANT;
    PutBucketAccelerateConfiguration PUT Bucket, ["accelerate"], "transfers go by the gateway";
    PutBucketAnalyticsConfiguration PUT Bucket, ["analytics", "id"], REPORTS;
    PutBucketIntelligentTieringConfiguration PUT Bucket, ["intelligent-tiering", "id"], TIERS;
    PutBucketInventoryConfiguration PUT Bucket, ["inventory", "id"], REPORTS;
    PutBucketLifecycleConfiguration PUT Bucket, ["lifecycle"], RULES;
    PutBucketLogging PUT Bucket, ["logging"], "the gateway's own access log has every request";
    PutBucketMetricsConfiguration PUT Bucket, ["metrics", "id"], REPORTS;
    PutBucketNotificationConfiguration PUT Bucket, ["notification"],
        "what happens to objects is told by the back end";
    PutBucketReplication PUT Bucket, ["replication"], COPIES;
    PutBucketRequestPayment PUT Bucket, ["requestPayment"], "the owner pays the back end";
    PutBucketWebsite PUT Bucket, ["website"], PAGES;
    PutObjectAnnotation PUT Object, ["annotation"], NOTES;
    RenameObject PUT Object, ["renameObject"], "copy the object, then delete it";
    RestoreObject POST Object, ["restore"], "restore it at the back end";
    SelectObjectContent POST Object, ["select", "select-type=2"],
        "read the object, or a range of it";
    UpdateBucketMetadataAnnotationTableConfiguration PUT Bucket, ["metadataAnnotationTable"],
        TABLES;
    UpdateBucketMetadataInventoryTableConfiguration PUT Bucket, ["metadataInventoryTable"], TABLES;
    UpdateBucketMetadataJournalTableConfiguration PUT Bucket, ["metadataJournalTable"], TABLES;
    UpdateObjectEncryption PUT Object, ["encryption"], "what is encrypted how is the back end's";
    WriteGetObjectResponse POST Service("/WriteGetObjectResponse"), [],
        "no function changes objects on their way";
}

/// The refusal of an operation, if it is one of these.
pub(crate) fn by_name(operation: &str) -> Option<S3Error> {
    ABSENT.iter().find(|row| row.name == operation).map(Absent::refusal)
}

/// The refusal of a request that s3s takes for none or for another one.
pub(crate) fn by_request(method: &Method, place: Place, query: &str) -> Option<S3Error> {
    let row = ABSENT.iter().find(|row| row.is_asked_by(method, place, query));
    row.map(Absent::refusal)
}

/// What a path names that has the bucket in front.
pub(crate) fn place_of(path: &str) -> Place {
    let own = ABSENT.iter().find_map(|row| match row.place {
        Place::Service(own) if own == path => Some(row.place),
        _ => None,
    });
    own.unwrap_or_else(|| match path.trim_start_matches('/').split_once('/') {
        Some((_, key)) if !key.is_empty() => Place::Object,
        _ => Place::Bucket,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_is_the_one_of_its_row() {
        for row in ABSENT {
            let path = row.request();
            let path = path.split(' ').nth(1).unwrap();
            let (path, query) = path.split_once('?').unwrap_or((path, ""));
            let method: Method = row.method.parse().unwrap();
            let refused = by_request(&method, place_of(path), query).unwrap();
            let message = refused.message().unwrap();
            assert!(message.starts_with(&format!("{} is not", row.name)), "{message}");
        }
        for (method, path, query) in [
            (Method::POST, "/b/k", "select"),
            (Method::POST, "/b", "delete"),
            (Method::GET, "/b", "uploads"),
            (Method::GET, "/b/k", ""),
            (Method::PUT, "/b/", ""),
            (Method::GET, "/", ""),
        ] {
            let refused = by_request(&method, place_of(path), query);
            assert!(refused.is_none(), "{method} {path}?{query}");
        }
    }
}
