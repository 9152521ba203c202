//! From URL and options to an endpoint and a way to sign. Pure.
//!
//! What the secret says comes before DuckDB's `azure_*` settings; an account in the URL comes
//! before both. A connection string of another account than the URL's is an error if it is the
//! secret's, and passed over if it is only a setting, as DuckDB's azure extension has it. Whether
//! credentials may go to a URL's host is decided in `hosts.rs`. Those of the environment that may
//! not go are withheld: the URL is read without them.

mod refusal;

use super::address::{Address, blob_suffix};
use super::connection_string::{ConnectionString, StringAuth};
use super::endpoint::Endpoint;
use super::hosts::{self, Foreign};
use super::{sas, shared_key};
use crate::advice;
use crate::options::StoreOptions;
use crate::unsigned::Withheld;
use penstock_base::nearest::nearest;
use penstock_base::{Error, Kind, Result, Secret};
use refusal::{not_for, not_of_string};

const DEFAULT_SUFFIX: &str = "blob.core.windows.net";
/// Where the environment's credentials come from, for error texts.
const VARIABLES: &str = "AZURE_STORAGE_CONNECTION_STRING, AZURE_STORAGE_KEY, \
                         AZURE_STORAGE_SAS_TOKEN, AZURE_CLIENT_ID, a machine's identity or `az \
                         login`; reads were tried without credentials, too";
const PROVIDERS: &[&str] =
    &["config", "credential_chain", "managed_identity", "service_principal", "access_token"];

/// How requests are signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Auth {
    /// Not at all: public containers.
    Anonymous,
    /// With the account's key.
    Key {
        /// The account that the key is of.
        account: String,
        /// The key, in base64.
        key: Secret,
    },
    /// With a shared access signature in the URL.
    Sas(Secret),
    /// With a token that somebody else fetched; it cannot be renewed here.
    Token(Secret),
    /// With tokens from these sources, tried in order until one has some.
    Sources(Vec<Source>),
}

/// A source of tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A service principal and its secret.
    ClientSecret {
        /// Tenant id; the environment's where `None`.
        tenant_id: Option<String>,
        /// Client id; the environment's where `None`.
        client_id: Option<String>,
        /// The secret; the environment's where `None`.
        secret: Option<Secret>,
    },
    /// A service principal and its certificate (a PEM file with the private key).
    ClientCertificate {
        /// Tenant id; the environment's where `None`.
        tenant_id: Option<String>,
        /// Client id; the environment's where `None`.
        client_id: Option<String>,
        /// Path of the file; the environment's where `None`.
        path: Option<String>,
    },
    /// The federated token of a Kubernetes workload.
    Workload,
    /// The machine's identity; which of several, if told.
    ManagedIdentity(Option<Identity>),
    /// The command line tool `az`.
    Cli,
}

impl Source {
    /// Its name in the `chain` option.
    pub fn name(&self) -> &'static str {
        match self {
            Source::ClientSecret { .. } | Source::ClientCertificate { .. } => "env",
            Source::Workload => "workload_identity",
            Source::ManagedIdentity(_) => "managed_identity",
            Source::Cli => "cli",
        }
    }
}

/// Which of a machine's identities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// By client id.
    Client(String),
    /// By object id.
    Object(String),
    /// By resource id.
    Resource(String),
}

/// Where and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The account's Blob service.
    pub endpoint: Endpoint,
    /// How requests are signed.
    pub auth: Auth,
    /// The credentials are what the environment offers: nobody named them for what is read.
    pub is_of_environment: bool,
    /// Why the environment's credentials do not go to the endpoint.
    pub withheld: Option<Withheld>,
}

impl Config {
    /// Decides.
    ///
    /// # Errors
    /// `Invalid` for what is malformed, missing or contradictory.
    pub fn decide(address: &Address, options: &StoreOptions) -> Result<Self> {
        let decided = Config::by_options(address, options)?;
        // A signature in the URL is meant for this URL.
        Ok(match &address.sas {
            Some(sas) => {
                Config { auth: Auth::Sas(sas.clone()), is_of_environment: false, ..decided }
            }
            None => decided,
        })
    }

    fn by_options(address: &Address, options: &StoreOptions) -> Result<Self> {
        let of_secret = options.get("connection_string");
        let setting = options.get("azure_storage_connection_string");
        let setting = setting.filter(|_| options.get("secret_name").is_none());
        let text = of_secret.or(setting);
        let bare = text.filter(|text| sas::is_bare(text));
        let mut withheld = None;
        if let Some(text) = text.filter(|_| bare.is_none()) {
            let parsed = ConnectionString::parse(text)?;
            match at_url(address, &parsed) {
                Ok(endpoint) => return Ok(from_string(endpoint, parsed, options)),
                // What the URL itself carries is meant for the URL's host.
                Err(_) if address.sas.is_some() => {}
                Err(_) if of_secret.is_none() && !refusal::is_named_as(address, &parsed) => {}
                Err(foreign) => {
                    let refused = not_of_string(address, &parsed, &foreign, options);
                    if !is_of_environment(options) {
                        return Err(refused.into_error());
                    }
                    withheld = Some(refused);
                }
            }
        }
        let (endpoint, account) = endpoint(address, options)?;
        let mut auth = match bare {
            _ if address.sas.is_some() || withheld.is_some() => Auth::Anonymous,
            Some(text) => Auth::Sas(sas::parse(text)?),
            None => auth(options, account)?,
        };
        let has_headers = !options.extra_headers()?.is_empty();
        if (auth != Auth::Anonymous || has_headers)
            && let Err(refused) = check_host(address, options)
        {
            if has_headers || !is_of_environment(options) {
                return Err(refused.into_error());
            }
            (auth, withheld) = (Auth::Anonymous, Some(refused));
        }
        let is_of_environment = is_of_environment(options) && withheld.is_none();
        Ok(Config { endpoint, auth, is_of_environment, withheld })
    }

    /// What to do when the service refuses: the secret to try, ready to be pasted.
    pub fn denied_hint(&self, address: &Address, options: &StoreOptions) -> String {
        let account = self.endpoint.account().unwrap_or("ACCOUNT");
        let create = secret_hint(account, &address.root);
        let label = match options.get("secret_name") {
            Some(_) => options.secret_label(),
            None if self.is_of_environment => format!("the environment ({VARIABLES})"),
            None => "the settings".to_string(),
        };
        if let Some(withheld) = &self.withheld {
            return format!("The request carried no credentials, since {withheld}");
        }
        match &self.auth {
            Auth::Anonymous => {
                let label = options.secret_label();
                format!("The request carried no credentials ({label}). {create}")
            }
            Auth::Key { .. } => format!(
                "Check that the AccountKey of {label} is a current key of account `{account}` and \
                 that the account allows shared keys. {create}"
            ),
            Auth::Sas(_) => format!(
                "Check the shared access signature of {label}: its expiry (se=), its rights \
                 (sp= needs r and l to read, w, c and d to write) and its scope. {create}"
            ),
            Auth::Token(_) => format!(
                "The access token of {label} may have expired (it cannot be renewed here), or its \
                 audience is not https://storage.azure.com. {create}"
            ),
            Auth::Sources(_) => format!(
                "Give the identity of {label} the role Storage Blob Data Reader (or Contributor, \
                 to write) on account `{account}`; roles take some minutes to work. {create}"
            ),
        }
    }
}

fn secret_hint(account: &str, root: &str) -> String {
    let chain = [("provider", "credential_chain"), ("account_name", account), ("scope", root)];
    let text = format!("AccountName={account};AccountKey=...");
    let string = [("connection_string", text.as_str()), ("scope", root)];
    let [chain, string] = [&chain[..], &string].map(|it| advice::options("azure", it));
    let which = advice::which(root, "azure").map(|it| format!("; {it} tells which is used"));
    format!("Try {chain}; or {string}{}", which.unwrap_or_default())
}

/// The provider of whoever takes what the environment offers, variables of Azure's tools included.
fn is_of_environment(options: &StoreOptions) -> bool {
    options.get("provider").is_some_and(|name| name.eq_ignore_ascii_case("environment"))
}

fn from_string(endpoint: Endpoint, parsed: ConnectionString, options: &StoreOptions) -> Config {
    let auth = match (parsed.auth, parsed.account) {
        (StringAuth::Key(key), Some(account)) => Auth::Key { account, key },
        (StringAuth::Sas(sas), _) => Auth::Sas(sas),
        _ => Auth::Anonymous,
    };
    Config { endpoint, auth, is_of_environment: is_of_environment(options), withheld: None }
}

/// Where the URL is read with a connection string.
fn at_url(address: &Address, string: &ConnectionString) -> Result<Endpoint, Foreign> {
    match &address.account {
        Some(host) => {
            hosts::read_at(host, &string.endpoint, &string.others, string.account.as_deref())
        }
        None => Ok(string.endpoint.clone()),
    }
}

/// Refuses to send credentials to a host that only the URL names, unless it is their account's.
fn check_host(address: &Address, options: &StoreOptions) -> Result<(), Withheld> {
    let told = told_endpoint(options);
    let Some(host) = address.account.as_ref().filter(|_| !is_url(told)) else { return Ok(()) };
    // The setting is the account of URLs that name none; it says nothing about credentials.
    let account = options.get("account_name");
    match hosts::check(host, hosts::MadeFor { account, suffix: told }) {
        Ok(()) => Ok(()),
        Err(foreign) => Err(not_for(address, &foreign, told, options)),
    }
}

fn told_endpoint(options: &StoreOptions) -> Option<&str> {
    options.first_of(&["endpoint", "azure_endpoint"])
}

fn is_url(endpoint: Option<&str>) -> bool {
    endpoint.is_some_and(|told| told.contains("://"))
}

fn endpoint(address: &Address, options: &StoreOptions) -> Result<(Endpoint, Option<String>)> {
    let told = told_endpoint(options);
    let account = options.first_of(&["account_name", "azure_account_name"]);
    if let Some(url) = told.filter(|_| is_url(told)) {
        return at_endpoint(address, Endpoint::parse(url)?, account, options);
    }
    if let Some(host) = &address.account {
        return Ok((host.endpoint(), Some(hosts::account_of(host).to_string())));
    }
    let Some(account) = account else {
        let why = format!("no storage account is known for `{}`", address.root);
        return Err(Error::new(Kind::Invalid, why).with_hint(format!(
            "Name it in the URL (az://ACCOUNT.blob.core.windows.net/{}/...), or: {}",
            address.container,
            secret_hint("ACCOUNT", &address.root)
        )));
    };
    let suffix = blob_suffix(told.unwrap_or(DEFAULT_SUFFIX));
    let endpoint = Endpoint::parse(&format!("https://{account}.{suffix}"))?;
    Ok((endpoint, Some(account.to_string())))
}

/// The same where `endpoint` is a whole URL: hosts of other accounts are not read there.
fn at_endpoint(
    address: &Address,
    endpoint: Endpoint,
    account: Option<&str>,
    options: &StoreOptions,
) -> Result<(Endpoint, Option<String>)> {
    let told = endpoint.to_string();
    let own = options.get("account_name").or(endpoint.account_of_path());
    let endpoint = match &address.account {
        Some(host) => hosts::read_at(host, &endpoint, &[], own)
            .map_err(|foreign| not_for(address, &foreign, Some(&told), options).into_error())?,
        None => endpoint,
    };
    let name = address.account.as_ref().map(hosts::account_of);
    let name = name.or(account).or(endpoint.account()).map(str::to_string);
    // An emulator's URL may leave the account to be appended.
    match (endpoint.account().is_none(), name) {
        (true, Some(name)) => {
            let base_path = format!("/{name}");
            Ok((Endpoint { base_path, ..endpoint }, Some(name)))
        }
        (_, name) => Ok((endpoint, name)),
    }
}

fn auth(options: &StoreOptions, account: Option<String>) -> Result<Auth> {
    let provider = options.get("provider").map(str::to_ascii_lowercase);
    match provider.as_deref() {
        None | Some("config") => static_auth(options, account),
        Some("access_token") => {
            let token = options.get("access_token").ok_or_else(|| missing("access_token"))?;
            Ok(Auth::Token(Secret::new(token)))
        }
        Some("service_principal") => service_principal(options).map(|one| Auth::Sources(vec![one])),
        Some("managed_identity") => {
            Ok(Auth::Sources(vec![Source::ManagedIdentity(identity(options)?)]))
        }
        Some("credential_chain") => chain(options.get("chain").unwrap_or("default"), options),
        Some("environment") => match static_auth(options, account)? {
            Auth::Anonymous => chain("default", options),
            given => Ok(given),
        },
        Some(other) => {
            let error = Error::new(Kind::Invalid, format!("unknown provider `{other}` for azure"));
            Err(match nearest(other, PROVIDERS.iter().copied()) {
                Some(near) => error.with_hint(format!("Did you mean `{near}`?")),
                None => error.with_hint(format!("The providers are {}", PROVIDERS.join(", "))),
            })
        }
    }
}

/// Without a provider the given keys speak for themselves.
fn static_auth(options: &StoreOptions, account: Option<String>) -> Result<Auth> {
    if let Some(key) = options.get("account_key") {
        let account = account.ok_or_else(|| missing("account_name"))?;
        if sas::is_bare(key) {
            let why = "the account_key is a shared access signature";
            return Err(Error::new(Kind::Invalid, why).with_hint(
                "Give it as sas_token, or as SharedAccessSignature=... in a connection_string",
            ));
        }
        shared_key::decoded(key)?;
        return Ok(Auth::Key { account, key: Secret::new(key) });
    }
    if let Some(text) = options.get("sas_token") {
        check_account(text, account.as_deref())?;
        return Ok(Auth::Sas(sas::parse(text)?));
    }
    if let Some(token) = options.get("access_token") {
        return Ok(Auth::Token(Secret::new(token)));
    }
    if options.get("client_secret").or(options.get("client_certificate_path")).is_some() {
        return service_principal(options).map(|one| Auth::Sources(vec![one]));
    }
    let is_secret = options.get("secret_name").is_some();
    match options.get("azure_credential_chain").filter(|_| !is_secret) {
        Some(text) => chain(text, options),
        None => Ok(Auth::Anonymous),
    }
}

/// A URL with a signature says whose it is.
fn check_account(text: &str, account: Option<&str>) -> Result<()> {
    let told = ConnectionString::parse(text).ok().and_then(|parsed| parsed.account);
    match (told, account) {
        (Some(told), Some(account)) if told != account => Err(Error::new(
            Kind::Invalid,
            format!("the sas_token is of account `{told}`, the request of account `{account}`"),
        )
        .with_hint(format!("Give a signature of account `{account}`"))),
        _ => Ok(()),
    }
}

fn service_principal(options: &StoreOptions) -> Result<Source> {
    let required =
        |name: &'static str| options.get(name).map(str::to_string).ok_or_else(|| missing(name));
    let tenant_id = Some(required("tenant_id")?);
    let client_id = Some(required("client_id")?);
    match (options.get("client_secret"), options.get("client_certificate_path")) {
        (Some(secret), _) => {
            Ok(Source::ClientSecret { tenant_id, client_id, secret: Some(Secret::new(secret)) })
        }
        (None, Some(path)) => {
            Ok(Source::ClientCertificate { tenant_id, client_id, path: Some(path.to_string()) })
        }
        (None, None) => Err(missing("client_secret (or client_certificate_path)")),
    }
}

fn identity(options: &StoreOptions) -> Result<Option<Identity>> {
    let given = |name: &str| options.get(name).map(str::to_string);
    match (given("client_id"), given("object_id"), given("resource_id")) {
        (None, None, None) => Ok(None),
        (Some(id), None, None) => Ok(Some(Identity::Client(id))),
        (None, Some(id), None) => Ok(Some(Identity::Object(id))),
        (None, None, Some(id)) => Ok(Some(Identity::Resource(id))),
        _ => Err(Error::new(
            Kind::Invalid,
            "a managed identity is named by one of client_id, object_id and resource_id",
        )),
    }
}

/// `cli;env;...` as DuckDB writes it; commas are taken too.
fn chain(text: &str, options: &StoreOptions) -> Result<Auth> {
    let names = ["cli", "workload_identity", "managed_identity", "env", "default"];
    let mut sources = Vec::new();
    for name in text.split([';', ',']).map(str::trim).filter(|name| !name.is_empty()) {
        match name.to_ascii_lowercase().as_str() {
            "cli" => sources.push(Source::Cli),
            "workload_identity" => sources.push(Source::Workload),
            "managed_identity" => sources.push(Source::ManagedIdentity(identity(options)?)),
            "env" => sources.extend(environment()),
            "default" => {
                sources.extend(environment());
                // The machine's identity comes last: off Azure, asking for it takes a while.
                sources.extend([Source::Workload, Source::Cli]);
                sources.push(Source::ManagedIdentity(identity(options)?));
            }
            other => {
                let why = format!("unknown source `{other}` in the Azure credential chain");
                let error = Error::new(Kind::Invalid, why);
                return Err(match nearest(other, names) {
                    Some(near) => error.with_hint(format!("Did you mean `{near}`?")),
                    None => error.with_hint(format!("The sources are {}", names.join(", "))),
                });
            }
        }
    }
    if sources.is_empty() {
        return Err(Error::new(Kind::Invalid, "the Azure credential chain is empty"));
    }
    Ok(Auth::Sources(sources))
}

fn environment() -> [Source; 2] {
    [
        Source::ClientSecret { tenant_id: None, client_id: None, secret: None },
        Source::ClientCertificate { tenant_id: None, client_id: None, path: None },
    ]
}

fn missing(name: &str) -> Error {
    Error::new(Kind::Invalid, format!("the azure secret has no {}", name.to_ascii_uppercase()))
        .with_hint("FROM duckdb_secrets() lists the secrets and what is in them")
}

#[cfg(test)]
mod tests;
