//! What whoever moves from httpfs, azure, aws and cache_httpfs is told: settings and variables of
//! the environment that Penstock follows otherwise, and what to do about each.
//!
//! It looks at what somebody has set, never at defaults, and tells no value.

use super::flag;
use super::theirs::{Meaning, find, instead};

/// Where Penstock does otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// `setting` or `environment`.
    pub area: &'static str,
    /// Of the setting or the variable.
    pub name: String,
    /// What is different.
    pub finding: String,
    /// What to do.
    pub cure: String,
}

/// How the settings of cache_httpfs begin.
pub const CACHE_PREFIX: &str = "cache_httpfs_";

const MEMORY: &str = "SET penstock_cache_memory_bytes; Parquet files DuckDB keeps itself";
const METADATA: &str =
    "Nothing, or SET penstock_metadata_validity_ms and penstock_cache_validation";

/// What to set in place of a setting of cache_httpfs, by its name behind the prefix.
const CACHE: &[(&str, &str)] = &[
    (
        "type",
        "SET penstock_cache_dir for a cache on the disk, penstock_cache_memory_bytes for memory",
    ),
    ("cache_directory", "SET penstock_cache_dir"),
    ("cache_directories_config", "SET penstock_cache_dir, which is one directory or device"),
    ("min_disk_bytes_for_cache", "SET penstock_cache_disk_bytes, the most that the cache may have"),
    ("evict_policy", "Nothing: the oldest blocks that were not read again make way"),
    ("max_in_mem_cache_block_count", MEMORY),
    ("in_mem_cache_block_timeout_millisec", MEMORY),
    ("in_mem_cache_storage", MEMORY),
    ("disk_cache_reader_enable_memory_cache", MEMORY),
    ("disk_cache_reader_mem_cache_block_count", MEMORY),
    ("disk_cache_reader_mem_cache_timeout_millisec", MEMORY),
    ("max_fanout_subrequest", "Nothing, or SET penstock_parallel_read_max_fanout"),
    ("profile_type", "FROM penstock_stats() and penstock_requests(), which always count"),
    ("enable_cache_validation", "Nothing, or SET penstock_cache_validation"),
    ("enable_metadata_cache", METADATA),
    ("metadata_cache_entry_size", "Nothing, or SET penstock_metadata_cache_entries"),
    ("metadata_cache_entry_timeout_millisec", METADATA),
    ("enable_glob_cache", "SET penstock_listing_validity_ms, which is 0 by default"),
    ("glob_cache_entry_size", "SET penstock_listing_validity_ms, which is 0 by default"),
    (
        "glob_cache_entry_timeout_millisec",
        "SET penstock_listing_validity_ms, which is 0 by default",
    ),
];

/// A variable that Penstock obeys otherwise than httpfs.
struct Variable {
    name: &'static str,
    /// Settings that count before it.
    settings: &'static [&'static str],
    /// Variables that count before it.
    before: &'static [&'static str],
    finding: &'static str,
    cure: &'static str,
}

const KEY: &str = "AWS_ACCESS_KEY_ID";
const ENDPOINTS: [&str; 2] = ["DUCKDB_S3_ENDPOINT", "AWS_ENDPOINT_URL_S3"];
const NO_KEY: &str = "where no secret covers a path of S3, credentials are asked for by it; httpfs \
                      does not look at it";
const REGION: &str = "it is the region of Amazon's endpoints alone; httpfs signs for it everywhere";
const ENDPOINT: &str = "where neither secret nor setting names an endpoint, s3:// goes there; \
                        httpfs does not look at it";
const OWN_SECRET: &str = "CREATE SECRET for these paths, or take the variable away";
const OWN_REGION: &str = "For other services give REGION in the secret, or SET s3_region";
const OWN_ENDPOINT: &str = "SET s3_endpoint, or take the variable away";

const VARIABLES: &[Variable] = &[
    Variable {
        name: KEY,
        settings: &["s3_access_key_id"],
        before: &[],
        finding: "its key is used where no secret covers a path of S3, as by httpfs; but \
                  s3_access_key_id does not show it, an endpoint that only a URL names does not \
                  get it, and what is public is read without it where it is refused",
        cure: "Nothing, or CREATE SECRET (TYPE s3, PROVIDER credential_chain, CHAIN 'env')",
    },
    Variable {
        name: "AWS_WEB_IDENTITY_TOKEN_FILE",
        settings: &["s3_access_key_id"],
        before: &[KEY],
        finding: NO_KEY,
        cure: OWN_SECRET,
    },
    Variable {
        name: "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        settings: &["s3_access_key_id"],
        before: &[KEY],
        finding: NO_KEY,
        cure: OWN_SECRET,
    },
    Variable {
        name: "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        settings: &["s3_access_key_id"],
        before: &[KEY],
        finding: NO_KEY,
        cure: OWN_SECRET,
    },
    Variable {
        name: "GOOGLE_APPLICATION_CREDENTIALS",
        settings: &["s3_access_key_id"],
        before: &[],
        finding: "where no secret covers a path of gs://, its account is used; httpfs does not \
                  look at it",
        cure: OWN_SECRET,
    },
    Variable {
        name: "AWS_REGION",
        settings: &["s3_region"],
        before: &[],
        finding: REGION,
        cure: OWN_REGION,
    },
    Variable {
        name: "AWS_DEFAULT_REGION",
        settings: &["s3_region"],
        before: &["AWS_REGION"],
        finding: REGION,
        cure: OWN_REGION,
    },
    Variable {
        name: "AWS_ENDPOINT_URL_S3",
        settings: &["s3_endpoint"],
        before: &[ENDPOINTS[0]],
        finding: ENDPOINT,
        cure: OWN_ENDPOINT,
    },
    Variable {
        name: "AWS_ENDPOINT_URL",
        settings: &["s3_endpoint"],
        before: &ENDPOINTS,
        finding: ENDPOINT,
        cure: OWN_ENDPOINT,
    },
];

/// Variables that hold a flag, and the settings that count before them.
const FLAGS: &[(&str, &str)] =
    &[("DUCKDB_S3_USE_SSL", "s3_use_ssl"), ("DUCKDB_S3_REQUESTER_PAYS", "s3_requester_pays")];

/// What Penstock does otherwise of a setting to which somebody gave this value.
pub fn of_setting(name: &str, value: &str) -> Option<Difference> {
    let told = |finding: String, cure: &str| {
        let (name, cure) = (name.to_string(), cure.to_string());
        Some(Difference { area: "setting", name, finding, cure })
    };
    if let Some(rest) = name.strip_prefix(CACHE_PREFIX) {
        let cure = CACHE.iter().find(|row| row.0 == rest).map_or("Nothing", |row| row.1);
        return told("Penstock has caches of its own, and does not look at it".to_string(), cure);
    }
    let row = find(name)?;
    if let Meaning::Ours(_) = row.meaning {
        let sets = row.doc.trim_end_matches('.').rsplit(": ").next().unwrap_or_default();
        return told(format!("it {sets}"), "Nothing, or SET those in its place");
    }
    let styles = ["", "path", "vhost", "virtual"];
    if name == "s3_url_style" && !styles.contains(&value.to_ascii_lowercase().as_str()) {
        let finding = "requests are refused; httpfs leaves the bucket out of them";
        return told(finding.to_string(), "SET s3_url_style = 'path', or 'vhost'");
    }
    let instead = instead(name, value)?;
    told(format!("it changes nothing: {instead}"), "Leave it out, or RESET it")
}

/// What Penstock does otherwise of variables that are in force, given what somebody has set.
pub fn of_environment(
    settings: &[(String, String)],
    environment: &dyn Fn(&str) -> Option<String>,
) -> Vec<Difference> {
    let setting = |name: &str| settings.iter().find(|(known, _)| known == name);
    let variable = |name: &str| environment(name).filter(|text| !text.trim().is_empty());
    let is_off = setting("enable_global_s3_configuration")
        .is_some_and(|(_, value)| flag(value) == Some(false));
    if is_off {
        return Vec::new();
    }
    let told = |name: &str, finding: &str, cure: &str| Difference {
        area: "environment",
        name: name.to_string(),
        finding: finding.to_string(),
        cure: cure.to_string(),
    };
    let is_in_force = |row: &&Variable| {
        variable(row.name).is_some()
            && !row.settings.iter().any(|name| setting(name).is_some())
            && !row.before.iter().any(|name| variable(name).is_some())
    };
    let mut found: Vec<Difference> = VARIABLES
        .iter()
        .filter(is_in_force)
        .map(|row| told(row.name, row.finding, row.cure))
        .collect();
    for (name, instead) in FLAGS {
        let is_wrong = variable(name).is_some_and(|text| flag(&text).is_none());
        if is_wrong && setting(instead).is_none() {
            let finding = "it is neither true nor false: what asks S3 fails";
            found.push(told(name, finding, "Set it to true or false, or take it away"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(name: &str, value: &str) -> Option<String> {
        of_setting(name, value).map(|told| told.finding)
    }

    #[test]
    fn what_is_followed_is_no_difference() {
        for (name, value) in [
            ("s3_region", "eu-west-1"),
            ("s3_secret_access_key", "hunter2"),
            ("s3_url_style", "PATH"),
            ("force_download", "false"),
            ("allow_asterisks_in_http_paths", "true"),
            ("threads", "4"),
        ] {
            assert_eq!(of_setting(name, value), None, "{name}");
        }
    }

    #[test]
    fn settings_that_mean_ours_name_them() {
        assert_eq!(
            finding("s3_uploader_thread_limit", "50").unwrap(),
            "it sets penstock_upload_concurrency"
        );
        let timeout = finding("http_timeout", "5").unwrap();
        assert!(timeout.contains("penstock_connect_timeout_ms"), "{timeout}");
        assert!(finding("http_retries", "3").unwrap().contains("penstock_request_deadline_ms"));
        assert!(finding("s3_url_style", "handwritten").unwrap().contains("refused"));
    }

    #[test]
    fn settings_of_the_cache_have_their_own_cure() {
        let known = of_setting("cache_httpfs_cache_directory", "/x").unwrap();
        assert_eq!(known.cure, "SET penstock_cache_dir");
        assert_eq!(of_setting("cache_httpfs_ignore_sigpipe", "true").unwrap().cure, "Nothing");
    }

    #[test]
    fn cures_name_settings_that_there_are() {
        let cures = CACHE.iter().map(|row| row.1);
        for word in cures.flat_map(|cure| cure.split([' ', ',', ';'])) {
            let Some(name) = word.strip_prefix("penstock_").filter(|name| !name.ends_with(')'))
            else {
                continue;
            };
            assert!(crate::settings::spec(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn variables_are_told_where_they_are_in_force() {
        let names = |settings: &[(&str, &str)], environment: &[(&str, &str)]| {
            let of = |name: &str| {
                let found = environment.iter().find(|(known, _)| *known == name);
                found.map(|(_, text)| text.to_string())
            };
            let set = settings.iter().map(|(name, value)| (name.to_string(), value.to_string()));
            let told = of_environment(&set.collect::<Vec<_>>(), &of);
            told.into_iter().map(|it| it.name).collect::<Vec<_>>()
        };
        let all = [
            ("AWS_ACCESS_KEY_ID", "hunter2"),
            ("AWS_WEB_IDENTITY_TOKEN_FILE", "/x"),
            ("AWS_REGION", "eu"),
            ("AWS_DEFAULT_REGION", "us"),
            ("AWS_ENDPOINT_URL", "http://h"),
            ("DUCKDB_S3_USE_SSL", "maybe"),
        ];
        let told = ["AWS_ACCESS_KEY_ID", "AWS_REGION", "AWS_ENDPOINT_URL", "DUCKDB_S3_USE_SSL"];
        assert_eq!(names(&[], &all), told);
        assert_eq!(names(&[("enable_global_s3_configuration", "false")], &all), [""; 0]);
        let set = [("s3_region", "x"), ("s3_endpoint", "h"), ("s3_access_key_id", "k")];
        assert_eq!(names(&set, &all), ["DUCKDB_S3_USE_SSL"]);
        let right =
            [("DUCKDB_S3_ENDPOINT", "h:1"), ("DUCKDB_S3_USE_SSL", "on"), ("AWS_REGION", " ")];
        assert_eq!(names(&[], &right), [""; 0]);
    }
}
