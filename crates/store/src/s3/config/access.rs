//! Which credentials the options and the environment give, and whether they may go to the endpoint.
//! Pure.

use super::endpoint::{Endpoint, is_google_host};
use super::{Access, ChainSource, ChainSpec};
use crate::advice;
use crate::options::StoreOptions;
use crate::unsigned::Withheld;
use penstock_base::{Error, Kind, Result, Secret};

/// Variables by which the environment says that it has AWS credentials.
pub(super) const AWS_VARIABLES: &[&str] = &[
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
];
pub(super) const SECRET: &str = "AWS_SECRET_ACCESS_KEY";
const GOOGLE_VARIABLE: &str = "GOOGLE_APPLICATION_CREDENTIALS";

/// Credentials, and who gave them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub access: Access,
    /// The environment gave them, by this variable: nobody named them for this bucket. `None` where
    /// a secret, a setting or a flag did.
    pub environment: Option<&'static str>,
    /// Why the environment's credentials do not go to the endpoint.
    pub withheld: Option<Withheld>,
}

impl Found {
    fn given(access: Access) -> Self {
        Found { access, environment: None, withheld: None }
    }

    /// These credentials, if they may go to the endpoint.
    ///
    /// # Errors
    /// `Denied`, with the option that lets them.
    pub fn at(
        self,
        endpoint: &Endpoint,
        options: &StoreOptions,
        url: &StoreOptions,
    ) -> Result<Self> {
        let is_of_url = matches!(self.access, Access::Key { .. }) && url.get("key_id").is_some();
        let has_headers = !options.extra_headers()?.is_empty();
        if endpoint.is_of_url && !is_of_url {
            let refused = not_for(endpoint, options, "which only the URL names");
            return match (&self.access, self.environment) {
                (Access::Anonymous, _) if !has_headers => Ok(self),
                (_, Some(_)) if !has_headers => {
                    let withheld = Some(refused);
                    Ok(Found { withheld, ..Found::given(Access::Anonymous) })
                }
                _ => Err(refused.into_error()),
            };
        }
        let is_token = matches!(self.access, Access::Bearer(_) | Access::Google { .. });
        let is_googles = endpoint.https && endpoint.host.as_deref().is_some_and(is_google_host);
        if is_token && !is_googles && !endpoint.is_of_secret {
            let why = "since an OAuth token is for Google's hosts";
            return Err(not_for(endpoint, options, why).into_error());
        }
        Ok(self)
    }
}

fn not_for(endpoint: &Endpoint, options: &StoreOptions, why: &str) -> Withheld {
    let host = endpoint.host.as_deref().unwrap_or("s3.amazonaws.com");
    let of = match options.get("secret_name") {
        Some(_) => options.secret_label(),
        None => "the settings or the environment".to_string(),
    };
    let message = format!("the credentials of {of} do not go to `{host}`, {why}");
    let scheme = if endpoint.https { "https" } else { "http" };
    let set = advice::set("endpoint", &format!("{scheme}://{host}"));
    Withheld::new(Kind::Denied, message, format!("If they are meant for it, {set}"))
}

/// The credentials of these options, else of the environment.
///
/// # Errors
/// `Invalid` for half a key, or a source of a chain that is none.
pub(super) fn access(
    google: bool,
    options: &StoreOptions,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Found> {
    let provider = options.get("provider");
    if provider == Some("anonymous") {
        return Ok(Found::given(Access::Anonymous));
    }
    // The command line names no provider of its own.
    let is_implied = provider == Some("environment");
    let chain_wanted = is_implied || provider == Some("credential_chain");
    let implied = |variable| (is_implied || !chain_wanted).then_some(variable);
    if let Some(token) = options.get("bearer_token") {
        return Ok(Found::given(Access::Bearer(Secret::new(token))));
    }
    let json = options.get("service_account_key").map(Secret::new);
    let path = options.get("service_account_path").map(str::to_string);
    if json.is_some() || path.is_some() {
        return Ok(Found::given(Access::Google { json, path }));
    }
    let key = key_of(options, environment)?;
    let renewable = options.has_prefix("refresh_info.");
    let chained = (chain_wanted && renewable) || options.get("assume_role_arn").is_some();
    if let Some(key) = key.clone().filter(|_| !chained) {
        return Ok(Found::given(key));
    }
    if google && key.is_none() {
        let wanted = chain_wanted || environment(GOOGLE_VARIABLE).is_some();
        return Ok(match wanted {
            true => Found {
                access: Access::Google { json: None, path: None },
                environment: implied(GOOGLE_VARIABLE),
                withheld: None,
            },
            false => Found::given(Access::Anonymous),
        });
    }
    let fallback = key.map(Box::new);
    let chain = chain_spec(options)?;
    if chain.assume_role_arn.is_some() || fallback.is_some() {
        return Ok(Found::given(Access::AwsChain { chain, fallback }));
    }
    let told = AWS_VARIABLES.iter().find(|name| environment(name).is_some());
    if chain_wanted || told.is_some() {
        let variable = told.copied().unwrap_or(AWS_VARIABLES[0]);
        let access = Access::AwsChain { chain, fallback };
        return Ok(Found { access, environment: implied(variable), withheld: None });
    }
    Ok(Found::given(Access::Anonymous))
}

/// Whether a chain finds its key in the environment's variables, which it asks first.
pub(super) fn is_key_of_environment(
    found: &Found,
    environment: &dyn Fn(&str) -> Option<String>,
) -> bool {
    let Access::AwsChain { chain, fallback: None } = &found.access else { return false };
    let asks_it_first = match chain.sources.first() {
        Some(first) => *first == ChainSource::Environment,
        None => chain.profile.is_none(),
    };
    let is_set = |name: &&str| environment(name).is_some();
    // Where nobody asked for the chain, errors speak of the environment anyway.
    found.environment.is_none()
        && asks_it_first
        && chain.assume_role_arn.is_none()
        && [AWS_VARIABLES[0], SECRET].iter().all(is_set)
}

fn key_of(
    options: &StoreOptions,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<Access>> {
    if let Some(key) = key(options, ["key_id", "secret", "session_token"])? {
        return Ok(Some(key));
    }
    // As httpfs has it: half a key in DuckDB's settings goes with the environment's other half.
    let halves = [("s3_access_key_id", AWS_VARIABLES[0]), ("s3_secret_access_key", SECRET)];
    let mut whole = options.clone();
    if halves.iter().any(|(setting, _)| options.get(setting).is_some()) {
        for (setting, variable) in halves {
            if let (None, Some(value)) = (options.get(setting), environment(variable)) {
                whole.push(setting, &value)?;
            }
        }
    }
    key(&whole, ["s3_access_key_id", "s3_secret_access_key", "s3_session_token"])
}

/// A key from one place; a token of another place never joins it.
fn key(options: &StoreOptions, [id, secret, token]: [&str; 3]) -> Result<Option<Access>> {
    let (Some(key_id), secret_key) = (options.get(id), options.get(secret)) else {
        return Ok(None);
    };
    let secret_key = secret_key.ok_or_else(|| {
        let of = options.get("secret_name").map(|name| format!("secret '{name}': "));
        let what = format!("{}a key id is given without its secret key", of.unwrap_or_default());
        let both = [("key_id", "..."), ("secret", "...")];
        Error::new(Kind::Invalid, what).with_hint(advice::give("s3", &both))
    })?;
    Ok(Some(Access::Key {
        key_id: Secret::new(key_id),
        secret: Secret::new(secret_key),
        token: options.get(token).map(Secret::new),
    }))
}

fn chain_spec(options: &StoreOptions) -> Result<ChainSpec> {
    let get = |name: &str| {
        let refreshed = format!("refresh_info.{name}");
        options.get(name).or_else(|| options.get(&refreshed)).map(str::to_string)
    };
    let words = get("chain").unwrap_or_default().to_ascii_lowercase();
    let sources = words.split([';', ',']).map(str::trim).filter(|word| !word.is_empty());
    Ok(ChainSpec {
        sources: sources.map(chain_source).collect::<Result<_>>()?,
        profile: get("profile"),
        assume_role_arn: get("assume_role_arn"),
        external_id: get("external_id"),
        role_session_name: get("role_session_name"),
        web_identity_token_file: get("web_identity_token_file"),
    })
}

fn chain_source(word: &str) -> Result<ChainSource> {
    Ok(match word {
        "env" => ChainSource::Environment,
        "config" | "profile" => ChainSource::Profile,
        "sso" => ChainSource::Sso,
        "sts" | "web_identity" => ChainSource::WebIdentity,
        "process" => ChainSource::Process,
        "instance" | "container" => ChainSource::Metadata,
        _ => {
            return Err(Error::new(
                Kind::Invalid,
                format!("`{word}` is no source of a credential chain"),
            )
            .with_hint("Known are env, config, sso, sts, process, instance"));
        }
    })
}
