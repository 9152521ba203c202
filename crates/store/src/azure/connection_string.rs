//! Azure connection strings: `Name=value;Name=value`. Pure.
//!
//! Errors say which part is wrong and show the expected form. They never repeat a value, and no
//! name that is not nearly a known one: a part that went astray may be a piece of the key.

use super::address::blob_suffix;
use super::endpoint::Endpoint;
use super::sas;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use penstock_base::nearest::nearest;
use penstock_base::{Error, Kind, Result, Secret};

/// Account and key of the storage emulators; public knowledge.
const DEVELOPMENT_ACCOUNT: &str = "devstoreaccount1";
const DEVELOPMENT_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
const DEVELOPMENT_HOST: &str = "http://127.0.0.1";
const DEVELOPMENT_PORT: u16 = 10000;

const FORM: &str = "The form is DefaultEndpointsProtocol=https;AccountName=NAME;AccountKey=...;\
                    EndpointSuffix=core.windows.net, or BlobEndpoint=URL;\
                    SharedAccessSignature=..., or UseDevelopmentStorage=true, or a URL with its \
                    signature";

const NAMES: &[&str] = &[
    "DefaultEndpointsProtocol",
    "AccountName",
    "AccountKey",
    "BlobEndpoint",
    "DfsEndpoint",
    "EndpointSuffix",
    "SharedAccessSignature",
    "UseDevelopmentStorage",
    "DevelopmentStorageProxyUri",
];
/// Known names that say nothing about the Blob service.
const OTHER_NAMES: &[&str] = &[
    "BlobSecondaryEndpoint",
    "DfsSecondaryEndpoint",
    "FileEndpoint",
    "FileSecondaryEndpoint",
    "QueueEndpoint",
    "QueueSecondaryEndpoint",
    "TableEndpoint",
    "TableSecondaryEndpoint",
];

/// What a connection string says about the Blob service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionString {
    /// Where the service answers.
    pub endpoint: Endpoint,
    /// The account, if it is told or follows from the endpoint.
    pub account: Option<String>,
    /// Other hosts that the string names for it, and the endpoint by which each is read.
    pub others: Vec<(Endpoint, Endpoint)>,
    /// How to sign.
    pub auth: StringAuth,
}

/// The credential in a connection string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StringAuth {
    /// The account's key, in base64.
    Key(Secret),
    /// A shared access signature without a leading `?`.
    Sas(Secret),
    /// None: public containers only.
    Anonymous,
}

impl ConnectionString {
    /// Parses a connection string. Names are compared without case.
    ///
    /// # Errors
    /// `Invalid`, naming the part and the expected form.
    pub fn parse(text: &str) -> Result<Self> {
        if let Some((url, query)) = sas::split(text.trim()).filter(|_| is_web_url(text)) {
            return of_url(url, query);
        }
        let parts = Parts::split(text)?;
        let key = parts.get("AccountKey").map(check_key).transpose()?;
        let sas = parts.get("SharedAccessSignature").map(check_sas).transpose()?;
        if let Some(development) = parts.get("UseDevelopmentStorage") {
            if !development.eq_ignore_ascii_case("true") {
                return Err(wrong("UseDevelopmentStorage takes only `true`"));
            }
            return development_storage(&parts);
        }
        let endpoint = parts.endpoint()?;
        let account = parts.get("AccountName").or(endpoint.account()).map(str::to_string);
        let auth = match (key, sas) {
            (Some(_), None) if account.is_none() => {
                return Err(wrong("there is an AccountKey but no AccountName"));
            }
            (_, Some(sas)) => StringAuth::Sas(sas),
            (Some(key), None) => StringAuth::Key(key),
            (None, None) => StringAuth::Anonymous,
        };
        let others = parts.others(&endpoint);
        Ok(ConnectionString { endpoint, account, others, auth })
    }
}

struct Parts<'a>(Vec<(&'static str, &'a str)>);

impl<'a> Parts<'a> {
    fn split(text: &'a str) -> Result<Self> {
        let mut parts: Vec<(&'static str, &str)> = Vec::new();
        for (at, part) in text.split(';').enumerate() {
            let part = part.trim();
            if part.is_empty() {
                continue;
            }
            let place = match parts.last() {
                Some((before, _)) => format!("part {} (after {before})", at + 1),
                None => format!("part {}", at + 1),
            };
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| wrong(&format!("{place} has no `=` between name and value")))?;
            let name = known_name(name.trim(), &place)?;
            if parts.iter().any(|(earlier, _)| *earlier == name) {
                return Err(wrong(&format!("{name} stands there twice")));
            }
            let value = value.trim();
            if value.is_empty() {
                return Err(wrong(&format!("{name} has no value")));
            }
            parts.push((name, value));
        }
        if parts.is_empty() {
            return Err(wrong("it is empty"));
        }
        Ok(Parts(parts))
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    fn endpoint(&self) -> Result<Endpoint> {
        for name in ["BlobEndpoint", "DfsEndpoint"] {
            if let Some(url) = self.get(name) {
                // Users paste SAS URLs here; what follows the `?` must not be lost silently.
                if url.contains('?') {
                    return Err(wrong(&format!(
                        "{name} has a query; put it in SharedAccessSignature"
                    )));
                }
                return Endpoint::parse(url)
                    .map_err(|_| wrong(&format!("{name} is no http or https URL")));
            }
        }
        let Some(account) = self.get("AccountName") else {
            return Err(wrong("it has neither AccountName nor BlobEndpoint"));
        };
        if account.contains(|c: char| !c.is_ascii_alphanumeric() && c != '-') {
            return Err(wrong("AccountName may hold only letters, digits and hyphens"));
        }
        let is_https = match self.get("DefaultEndpointsProtocol") {
            None => true,
            Some(protocol) if protocol.eq_ignore_ascii_case("https") => true,
            Some(protocol) if protocol.eq_ignore_ascii_case("http") => false,
            Some(_) => return Err(wrong("DefaultEndpointsProtocol takes `https` or `http`")),
        };
        let suffix = self.get("EndpointSuffix").unwrap_or("core.windows.net");
        let suffix = blob_suffix(suffix);
        let suffix = suffix.strip_prefix("blob.").unwrap_or(&suffix);
        let scheme = if is_https { "https" } else { "http" };
        Endpoint::parse(&format!("{scheme}://{account}.blob.{suffix}"))
            .map_err(|_| wrong("EndpointSuffix is no host name"))
    }

    /// The Data Lake host, which is read at the Blob service, and those of the second region. One
    /// that is no URL names no host.
    fn others(&self, endpoint: &Endpoint) -> Vec<(Endpoint, Endpoint)> {
        let named = |name| self.get(name).and_then(|url| Endpoint::parse(url).ok());
        let second = named("BlobSecondaryEndpoint");
        let twins = [
            (named("DfsEndpoint"), Some(endpoint.clone())),
            (second.clone(), second.clone()),
            (named("DfsSecondaryEndpoint"), second),
        ];
        twins.into_iter().filter_map(|(host, read_at)| host.zip(read_at)).collect()
    }
}

fn known_name(name: &str, place: &str) -> Result<&'static str> {
    let known = || NAMES.iter().chain(OTHER_NAMES);
    if let Some(found) = known().find(|known| known.eq_ignore_ascii_case(name)) {
        return Ok(found);
    }
    let lower = name.to_ascii_lowercase();
    let lowered: Vec<String> = known().map(|known| known.to_ascii_lowercase()).collect();
    let near = nearest(&lower, lowered.iter().map(String::as_str));
    let near = near.and_then(|near| known().find(|known| known.eq_ignore_ascii_case(near)));
    Err(match near {
        Some(near) => wrong(&format!("{place} has an unknown name; did you mean {near}?")),
        None => wrong(&format!("{place} has an unknown name")),
    })
}

fn check_key(key: &str) -> Result<Secret> {
    match STANDARD.decode(key) {
        Ok(_) => Ok(Secret::new(key)),
        Err(_) => Err(wrong("AccountKey is not base64; were characters lost when it was copied?")),
    }
}

fn check_sas(text: &str) -> Result<Secret> {
    sas::parse(text).map_err(|error| wrong(&format!("SharedAccessSignature: {}", error.message())))
}

fn is_web_url(text: &str) -> bool {
    let scheme = text.trim().split_once("://").map_or("", |(scheme, _)| scheme);
    ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known))
}

/// What the URL of a blob, container or account says that ends with a signature.
fn of_url(url: &str, query: &str) -> Result<ConnectionString> {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let mut names = rest.split('/');
    let host = names.next().unwrap_or_default();
    let parse = |base: &str| {
        Endpoint::parse(base).map_err(|_| wrong("it is a URL, but none of a Blob service"))
    };
    let endpoint = match parse(&format!("{scheme}://{host}"))? {
        // The path of an emulator's URL begins with the account.
        endpoint if endpoint.account().is_none() => {
            parse(&format!("{scheme}://{host}/{}", names.next().unwrap_or_default()))?
        }
        endpoint => endpoint,
    };
    let account = endpoint.account().map(str::to_string);
    let auth = StringAuth::Sas(sas::parse(query)?);
    Ok(ConnectionString { endpoint, account, others: Vec::new(), auth })
}

fn development_storage(parts: &Parts<'_>) -> Result<ConnectionString> {
    let host = parts.get("DevelopmentStorageProxyUri").unwrap_or(DEVELOPMENT_HOST);
    let host = host.trim_end_matches('/');
    let endpoint = Endpoint::parse(&format!("{host}:{DEVELOPMENT_PORT}/{DEVELOPMENT_ACCOUNT}"))
        .map_err(|_| wrong("DevelopmentStorageProxyUri is no http or https URL without port"))?;
    Ok(ConnectionString {
        endpoint,
        account: Some(DEVELOPMENT_ACCOUNT.into()),
        others: Vec::new(),
        auth: StringAuth::Key(Secret::new(DEVELOPMENT_KEY)),
    })
}

fn wrong(why: &str) -> Error {
    Error::new(Kind::Invalid, format!("the Azure connection string is malformed: {why}"))
        .with_hint(FORM)
}

#[cfg(test)]
mod tests;
