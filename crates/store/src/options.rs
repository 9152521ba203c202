//! The options of stores: the keys of DuckDB's secrets and settings, in one table.
//!
//! [`TABLE`] decides which names exist and which stores look at them; what a value means is
//! decided by the store. A name that no store knows is an error with the nearest known one; a
//! name of another store is passed over, since DuckDB's settings come all together.

use penstock_base::nearest::nearest;
use penstock_base::settings::flag;
use penstock_base::{Error, Kind, Result, Secret};

/// A family of stores that read the same options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `s3://`, `s3a://`, `s3n://`, `r2://`.
    S3,
    /// `gs://`, `gcs://`.
    Gcs,
    /// `az://`, `azure://`, `abfss://`, `abfs://`.
    Azure,
    /// `http://`, `https://`.
    Http,
    /// `hf://`.
    Hub,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// Name as DuckDB spells it; one that ends with `.` stands for all names that begin so.
    pub name: &'static str,
    /// The stores that look at it.
    pub families: &'static [Family],
    /// What it does, in one sentence.
    pub doc: &'static str,
}

impl OptionSpec {
    /// Whether the row is about an option, whose name is in lower case.
    fn is(&self, name: &str) -> bool {
        self.name == name || (self.name.ends_with('.') && name.starts_with(self.name))
    }
}

use Family::{Azure, Gcs, Http, Hub, S3};

const ALL: &[Family] = &[S3, Gcs, Azure, Http, Hub];
const AWS_LIKE: &[Family] = &[S3, Gcs];

const HEADER_PREFIX: &str = "extra_http_headers.";

macro_rules! table {
    ($($families:expr => { $($name:literal $doc:literal;)* })*) => {
        /// Every option, grouped by the stores that look at it.
        pub const TABLE: &[OptionSpec] = &[
            $($(OptionSpec { name: $name, families: $families, doc: $doc },)*)*
        ];
    };
}

table! {
    ALL => {
        "secret_type" "Type of the secret that the other keys come from: s3, gcs, r2, aws, azure, http or huggingface.";
        "secret_name" "Name of that secret, for error texts.";
        "unmatched_secrets" "Names and scopes of secrets that do not cover the path, for error texts.";
        "provider" "How the secret was made: config, credential_chain, ...; `environment` for what the environment has, without which public data are read where it is refused; `anonymous` for none (S3, GCS).";
        "scope" "Scope of the secret that covers the path: no redirect takes its headers out of it.";
        "http_proxy" "URL of the HTTP proxy for this store.";
        "http_proxy_username" "User name for the proxy.";
        "http_proxy_password" "Password for the proxy.";
        "ca_cert_file" "PEM file of certificate authorities to trust besides the system's.";
        "verify_ssl" "Whether the server's certificate is checked; true where not given.";
        "extra_http_headers." "A header sent with every request: the name stands behind the dot.";
        "extra_http_headers" "Headers sent with every request, as lines of `Name: value`.";
        "refresh" "Read by DuckDB's aws extension.";
        "refresh_info." "What a secret was made from: profile, chain and role of a credential_chain, else the options that count instead of the secret's own once those are refused.";
        "refresh_failure" "Why a secret cannot be made from its refresh_info, for error texts.";
    }
    AWS_LIKE => {
        "key_id" "Access key id (HMAC key id on GCS).";
        "secret" "Secret access key.";
        "session_token" "Token of temporary credentials.";
        "region" "Region that requests are signed for; found out where not given.";
        "url_style" "Where the bucket stands: `vhost` (in the host name) or `path`.";
        "use_ssl" "Whether to speak https; true where not given.";
        "kms_key_id" "Key for server-side encryption with KMS; written objects are encrypted with it.";
        "url_compatibility_mode" "Takes `?` in an s3 URL as part of the key, not as the start of options.";
        "requester_pays" "Agrees to pay for requests to buckets of others.";
        "account_id" "Cloudflare account, from which the R2 endpoint follows.";
        "checksum" "Checksum of uploads: `auto` (CRC-32, or what a gateway's client sent, unless the server refuses it), `crc32`, which a gateway also takes to say that the service keeps checksums of parts, `md5` or `none`; with the last two a gateway compares what its clients send and passes nothing on.";
        "profile" "Profile of the AWS configuration files.";
        "assume_role_arn" "Role to assume with the found credentials.";
        "external_id" "External id for the role.";
        "role_session_name" "Session name for the role.";
        "web_identity_token_file" "File of the token for the web identity source.";
        "s3_region" "DuckDB's setting for `region`.";
        "s3_access_key_id" "DuckDB's setting for `key_id`.";
        "s3_secret_access_key" "DuckDB's setting for `secret`.";
        "s3_session_token" "DuckDB's setting for `session_token`.";
        "s3_endpoint" "DuckDB's setting for `endpoint`.";
        "s3_url_style" "DuckDB's setting for `url_style`.";
        "s3_use_ssl" "DuckDB's setting for `use_ssl`.";
        "s3_kms_key_id" "DuckDB's setting for `kms_key_id`.";
        "s3_url_compatibility_mode" "DuckDB's setting for `url_compatibility_mode`.";
        "s3_requester_pays" "DuckDB's setting for `requester_pays`.";
        "emptied." "The setting behind the dot is empty: what the environment has in its place does not count.";
        "merge_http_secret_into_s3_request" "Whether headers and proxy of http secrets join; DuckDB's side decides by it.";
        "enable_global_s3_configuration" "Whether the environment may give credentials, region and endpoint; true where not given.";
    }
    &[S3, Gcs, Azure, Hub] => {
        "endpoint" "Host and port of the service, with or without http:// or https://.";
    }
    &[S3, Gcs, Azure] => {
        "chain" "Sources of credentials, in order: env, config, sso, sts, process, instance; of Azure env, workload_identity, managed_identity, cli, default.";
    }
    &[Gcs] => {
        "service_account_key" "JSON text of a Google service account or authorised user.";
        "service_account_path" "File with that JSON text.";
    }
    &[Gcs, Http, Hub] => {
        "bearer_token" "OAuth token sent as `Authorization: Bearer`.";
    }
    &[Hub] => {
        "token" "Token of the Hugging Face Hub.";
        "hf_max_per_page" "Most names in a page of a listing; 0 for as many as the Hub likes.";
    }
    &[Azure] => {
        "connection_string" "Azure storage connection string.";
        "account_name" "Storage account.";
        "account_key" "Shared key of the account.";
        "sas_token" "Shared access signature.";
        "tenant_id" "Tenant of the service principal.";
        "client_id" "Client of the service principal or managed identity.";
        "client_secret" "Secret of the service principal.";
        "client_certificate_path" "Certificate of the service principal.";
        "access_token" "OAuth token of the storage service.";
        "object_id" "Object id of the managed identity.";
        "resource_id" "Resource id of the managed identity.";
        "proxy_user_name" "User name for the proxy.";
        "proxy_password" "Password for the proxy.";
        "azure_storage_connection_string" "DuckDB's setting for `connection_string`.";
        "azure_account_name" "DuckDB's setting for `account_name`.";
        "azure_endpoint" "DuckDB's setting for `endpoint`.";
        "azure_credential_chain" "DuckDB's setting for `chain`.";
        "azure_http_proxy" "DuckDB's setting for `http_proxy`.";
        "azure_proxy_user_name" "DuckDB's setting for `proxy_user_name`.";
        "azure_proxy_password" "DuckDB's setting for `proxy_password`.";
    }
}

/// Whether some store looks at an option, whose name is in lower case.
pub fn is_known(name: &str) -> bool {
    TABLE.iter().any(|spec| spec.is(name))
}

/// Options of one store, in the order given; where a name stands twice the earlier one counts.
/// Values may be credentials, so `Debug` shows names only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct StoreOptions(Vec<(String, Secret)>);

impl StoreOptions {
    /// Takes name and value pairs. Names are made lower case; empty values count as not given.
    ///
    /// # Errors
    /// `Invalid` for a name that no store knows, with the nearest known one.
    pub fn new<K: AsRef<str>, V: AsRef<str>>(
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Self> {
        let mut options = StoreOptions::default();
        for (name, value) in pairs {
            options.push(name.as_ref(), value.as_ref())?;
        }
        Ok(options)
    }

    /// Adds one option behind the others.
    ///
    /// # Errors
    /// As [`StoreOptions::new`].
    pub fn push(&mut self, name: &str, value: &str) -> Result<()> {
        let lower = name.trim().to_ascii_lowercase();
        if !is_known(&lower) {
            let error = Error::new(Kind::Invalid, format!("unknown store option `{name}`"));
            return Err(match nearest(&lower, TABLE.iter().map(|spec| spec.name)) {
                Some(near) => error.with_hint(format!("Did you mean `{near}`?")),
                None => error.with_hint("The reference lists the options of every store"),
            });
        }
        // Header names keep their case, so that they arrive as written.
        let kept = if lower.starts_with(HEADER_PREFIX) { name.trim() } else { &lower };
        if !value.is_empty() {
            self.0.push((kept.to_string(), Secret::new(value)));
        }
        Ok(())
    }

    /// These options, then others where these say nothing.
    #[must_use]
    pub fn joined(mut self, others: &StoreOptions) -> Self {
        self.0.extend(others.0.iter().cloned());
        self
    }

    /// The value of an option, if it is given.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.reveal())
    }

    /// The value of the first given of several names: the secret's, then the setting's.
    pub fn first_of(&self, names: &[&str]) -> Option<&str> {
        names.iter().find_map(|name| self.get(name))
    }

    /// Names of the given ones that stores of a family pass over, or all stores but those of any
    /// family (a directory, memory): mistakes, where they were given for one store alone.
    pub fn passed_over(&self, family: Option<Family>) -> Vec<&str> {
        let is_read = |name: &str| {
            let read = |spec: &OptionSpec| {
                family.is_some_and(|family| spec.families.contains(&family)) && spec.is(name)
            };
            TABLE.iter().any(read)
        };
        let names = self.0.iter().map(|(name, _)| name.as_str());
        names.filter(|name| !is_read(&name.to_ascii_lowercase())).collect()
    }

    /// Whether an option of this family is given.
    pub fn has_prefix(&self, prefix: &str) -> bool {
        self.0.iter().any(|(key, _)| key.starts_with(prefix))
    }

    /// A flag, as DuckDB prints and people write it.
    ///
    /// # Errors
    /// `Invalid` for a value that is no flag.
    pub fn flag(&self, names: &[&str]) -> Result<Option<bool>> {
        let Some(text) = self.first_of(names) else { return Ok(None) };
        flag(text).map(Some).ok_or_else(|| {
            let what = format!("store option `{}` takes true or false, not `{text}`", names[0]);
            Error::new(Kind::Invalid, what)
        })
    }

    /// Headers to send with every request; of two with one name the first.
    ///
    /// # Errors
    /// `Invalid` for a line without a colon.
    pub fn extra_headers(&self) -> Result<Vec<(String, Secret)>> {
        let mut headers: Vec<(String, Secret)> = Vec::new();
        let mut add = |name: &str, value: Secret| {
            if headers.iter().all(|(known, _)| !known.eq_ignore_ascii_case(name)) {
                headers.push((name.to_string(), value));
            }
        };
        for (name, value) in &self.0 {
            if let Some(header) = header_name(name) {
                add(header, value.clone());
            } else if name == "extra_http_headers" {
                for line in value.reveal().lines().filter(|line| !line.trim().is_empty()) {
                    let (header, text) = line.split_once(':').ok_or_else(|| {
                        Error::new(Kind::Invalid, "a line of `extra_http_headers` has no colon")
                            .with_hint("Write one `Name: value` on each line")
                    })?;
                    add(header.trim(), Secret::new(text.trim()));
                }
            }
        }
        Ok(headers)
    }

    /// How error texts call the secret: `secret 'name'`, or `no secret`.
    pub fn secret_label(&self) -> String {
        match self.get("secret_name") {
            Some(name) => format!("secret '{name}'"),
            None => "no secret".to_string(),
        }
    }
}

/// The header that an option of the form `extra_http_headers.<name>` stands for.
fn header_name(option: &str) -> Option<&str> {
    let front = option.get(..HEADER_PREFIX.len())?;
    front.eq_ignore_ascii_case(HEADER_PREFIX).then(|| &option[HEADER_PREFIX.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_sentence_and_its_own_name() {
        for (index, spec) in TABLE.iter().enumerate() {
            assert!(spec.doc.ends_with('.'), "{} needs a sentence", spec.name);
            assert!(TABLE[..index].iter().all(|other| other.name != spec.name), "{}", spec.name);
        }
    }

    #[test]
    fn unknown_name_suggests_the_nearest() {
        let error = StoreOptions::new([("session_tokn", "x")]).unwrap_err();
        assert_eq!(error.hint(), Some("Did you mean `session_token`?"));
    }

    #[test]
    fn what_a_store_passes_over_is_named() {
        let pairs = [("key_id", "k"), ("endpoint", "e"), ("extra_http_headers.X-Api", "1")];
        let options = StoreOptions::new(pairs).unwrap();
        assert_eq!(options.passed_over(Some(S3)), Vec::<&str>::new());
        assert_eq!(options.passed_over(Some(Azure)), ["key_id"]);
        assert_eq!(options.passed_over(None), ["key_id", "endpoint", "extra_http_headers.X-Api"]);
    }

    #[test]
    fn earlier_pair_counts_and_nothing_is_shown() {
        let pairs =
            [("REGION", "eu-west-1"), ("region", "b"), ("secret", "hunter2"), ("key_id", "")];
        let options = StoreOptions::new(pairs).unwrap();
        assert_eq!(options.get("region"), Some("eu-west-1"));
        assert_eq!(options.get("key_id"), None);
        assert!(!format!("{options:?}").contains("hunter2"));
    }

    #[test]
    fn headers_keep_their_case() {
        let lines = "A: b\nC:d: e\nx-api: of two with one name the first counts\n";
        let pairs = [("extra_http_headers.X-Api", "1"), ("extra_http_headers", lines)];
        let headers = StoreOptions::new(pairs).unwrap().extra_headers().unwrap();
        let shown: Vec<_> = headers.iter().map(|(n, v)| (n.as_str(), v.reveal())).collect();
        assert_eq!(shown, [("X-Api", "1"), ("A", "b"), ("C", "d: e")]);
    }

    #[test]
    fn flags_take_duckdbs_and_peoples_words() {
        let options = StoreOptions::new([("use_ssl", "False"), ("verify_ssl", "maybe")]).unwrap();
        assert_eq!(options.flag(&["use_ssl", "s3_use_ssl"]).unwrap(), Some(false));
        assert_eq!(options.flag(&["requester_pays"]).unwrap(), None);
        assert_eq!(options.flag(&["verify_ssl"]).unwrap_err().kind(), Kind::Invalid);
    }
}
