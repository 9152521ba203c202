//! Where AWS credentials come from: the sources of a chain, in the order of the AWS tools.
//!
//! The signing crate asks environment, files, processes and services; this file puts its sources in
//! order, follows profiles, and assumes roles.

use crate::http::{Chain, OnFailure, told};
use crate::s3::config::{ChainSource, ChainSpec};
use crate::s3::profile::{Files, Plan, Role};
use reqsign_aws_v4::{
    AssumeRoleCredentialProvider, AssumeRoleWithWebIdentityCredentialProvider, Credential,
    ECSCredentialProvider, EnvCredentialProvider, IMDSv2CredentialProvider,
    ProcessCredentialProvider, ProfileCredentialProvider, RequestSigner, SSOCredentialProvider,
    StaticCredentialProvider,
};
use reqsign_core::{Context, Error, ProvideCredential, ProvideCredentialDyn, Result, Signer};
use std::fmt;

/// Session name where nobody gives one; it stands in the audit logs of the account.
const SESSION_NAME: &str = "penstock";

/// The sources that `spec` names, and the role to assume with what they give. `key` is the one that
/// the secret itself holds.
pub(super) fn aws_chain(
    spec: &ChainSpec,
    key: Option<StaticCredentialProvider>,
    region: &str,
) -> Chain<Credential> {
    let Some(arn) = &spec.assume_role_arn else {
        // The chain is newer than the key, which was found when the secret was made.
        let found = sources(Chain::new(OnFailure::End), spec, region);
        return match key {
            Some(key) => Chain::new(OnFailure::GoOn)
                .then("credential chain", found)
                .then("key of the secret", key),
            None => found,
        };
    };
    let mut source = Chain::new(OnFailure::End);
    if let Some(key) = key {
        source = source.then("key of the secret", key);
    }
    let role = Role {
        arn: arn.clone(),
        external_id: spec.external_id.clone(),
        session_name: spec.role_session_name.clone(),
        ..Role::default()
    };
    let source = Box::new(sources(source, spec, region));
    let assumed = AssumedRole { role, source, region: region.to_string() };
    Chain::new(OnFailure::End).then("role", assumed)
}

fn sources(chain: Chain<Credential>, spec: &ChainSpec, region: &str) -> Chain<Credential> {
    use ChainSource::{Environment, Metadata, Profile, WebIdentity};
    let default: &[ChainSource] = match &spec.profile {
        // A named profile stands for itself: the environment does not override it.
        Some(_) => &[Profile],
        None => &[Environment, Profile, WebIdentity, Metadata],
    };
    let named = if spec.sources.is_empty() { default } else { &spec.sources };
    named.iter().fold(chain, |chain, source| then_source(chain, *source, spec, region))
}

fn then_source(
    chain: Chain<Credential>,
    source: ChainSource,
    spec: &ChainSpec,
    region: &str,
) -> Chain<Credential> {
    let profiles = |is_sso_only| Profiles {
        name: spec.profile.clone(),
        region: region.to_string(),
        is_sso_only,
    };
    match source {
        ChainSource::Environment => chain.then("environment", Environment),
        ChainSource::Profile => chain.then("profile", profiles(false)),
        ChainSource::Sso => chain.then("SSO", profiles(true)),
        ChainSource::Process => {
            let process = ProcessCredentialProvider::new();
            chain.then(
                "process",
                match &spec.profile {
                    Some(name) => process.with_profile(name),
                    None => process,
                },
            )
        }
        ChainSource::WebIdentity => {
            let mut provider = AssumeRoleWithWebIdentityCredentialProvider::new();
            if let Some(file) = &spec.web_identity_token_file {
                provider = provider.with_web_identity_token_file(file);
            }
            chain.then("web identity", provider)
        }
        ChainSource::Metadata => chain
            .then("container", ECSCredentialProvider::new())
            .then_guess("instance", IMDSv2CredentialProvider::new()),
    }
}

/// AWS_ACCESS_KEY_ID and its kin. Half a key is a mistake, and not the absence of one: another
/// identity in its place would be a surprise.
#[derive(Debug)]
struct Environment;

impl ProvideCredential for Environment {
    type Credential = Credential;

    async fn provide_credential(&self, context: &Context) -> Result<Option<Credential>> {
        let [id, secret] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];
        let is_set = |name| context.env_var(name).is_some_and(|value| !value.is_empty());
        let half = |set: &str, missing: &str| {
            Err(Error::credential_invalid(format!("{set} is set, and {missing} is not")))
        };
        match (is_set(id), is_set(secret)) {
            (true, false) => half(id, secret),
            (false, true) => half(secret, id),
            _ => EnvCredentialProvider::new().provide_credential(context).await,
        }
    }
}

/// What a profile leads to.
#[derive(Debug)]
struct Profiles {
    /// The profile that the secret names; else AWS_PROFILE's, else `default`.
    name: Option<String>,
    region: String,
    is_sso_only: bool,
}

impl ProvideCredential for Profiles {
    type Credential = Credential;

    async fn provide_credential(&self, context: &Context) -> Result<Option<Credential>> {
        let named = self.name.clone().or_else(|| context.env_var("AWS_PROFILE"));
        let files = Files::read(context).await?;
        let name = match named.filter(|name| !name.is_empty()) {
            Some(name) => name,
            None if files.has("default") => "default".to_string(),
            None => return Ok(None),
        };
        let plan = files.plan(&name)?;
        if self.is_sso_only && !matches!(plan, Plan::Sso { .. }) {
            return Ok(None);
        }
        provider(&plan, &self.region).provide_credential_dyn(context).await
    }
}

type Provider = Box<dyn ProvideCredentialDyn<Credential = Credential>>;

fn provider(plan: &Plan, region: &str) -> Provider {
    match plan {
        Plan::Own(name) => Box::new(OwnProfile(name.clone())),
        Plan::Sso { cache_name, region, account_id, role_name } => Box::new(
            SSOCredentialProvider::new()
                .with_account_id(account_id)
                .with_region(region)
                .with_role_name(role_name)
                // The crate needs it only for the name of the cached token.
                .with_start_url(cache_name),
        ),
        Plan::Role { role, source } => Box::new(AssumedRole {
            role: role.clone(),
            source: provider(source, region),
            region: region.to_string(),
        }),
        Plan::WebIdentity { role, token_file } => {
            let mut provider = AssumeRoleWithWebIdentityCredentialProvider::with_config(
                role.arn.clone(),
                token_file.into(),
            );
            if let Some(region) = &role.region {
                provider = provider.with_region(region.clone()).with_regional_sts_endpoint();
            }
            if let Some(name) = &role.session_name {
                provider = provider.with_role_session_name(name.clone());
            }
            Box::new(provider)
        }
        Plan::Environment => Box::new(Environment),
        Plan::Container => Box::new(ECSCredentialProvider::new()),
        Plan::Instance => Box::new(IMDSv2CredentialProvider::new()),
    }
}

/// Keys or the credential process of a profile. It may have neither: often it just names a region.
#[derive(Debug)]
struct OwnProfile(String);

impl ProvideCredential for OwnProfile {
    type Credential = Credential;

    async fn provide_credential(&self, context: &Context) -> Result<Option<Credential>> {
        let keys = ProfileCredentialProvider::new().with_profile(&self.0);
        if let Some(found) = keys.provide_credential(context).await? {
            return Ok(Some(found));
        }
        ProcessCredentialProvider::new().with_profile(&self.0).provide_credential(context).await
    }
}

/// A role, assumed with the credentials of another source, which are asked for each time.
struct AssumedRole {
    role: Role,
    source: Provider,
    region: String,
}

impl fmt::Debug for AssumedRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AssumedRole").field(&self.role.arn).finish()
    }
}

impl ProvideCredential for AssumedRole {
    type Credential = Credential;

    async fn provide_credential(&self, context: &Context) -> Result<Option<Credential>> {
        let arn = &self.role.arn;
        // The signing crate would pass over why there are none.
        let named = |error: Error| {
            Error::new(error.kind(), format!("cannot assume {arn}: {}", told(&error)))
                .set_retryable(error.is_retryable())
        };
        let found = self.source.provide_credential_dyn(context).await.map_err(named)?;
        let found = found.ok_or_else(|| {
            named(Error::credential_invalid("the source that its profile names has no credentials"))
        })?;
        let mut key = StaticCredentialProvider::new(&found.access_key_id, &found.secret_access_key);
        if let Some(token) = &found.session_token {
            key = key.with_session_token(token);
        }
        let region = self.role.region.as_ref().unwrap_or(&self.region);
        let sts = Signer::new(context.clone(), key, RequestSigner::new("sts", region));
        let name = self.role.session_name.as_deref().unwrap_or(SESSION_NAME);
        let mut provider = AssumeRoleCredentialProvider::new(arn.clone(), sts)
            .with_region(region.clone())
            .with_regional_sts_endpoint()
            .with_role_session_name(name.to_string());
        if let Some(id) = &self.role.external_id {
            provider = provider.with_external_id(id.clone());
        }
        if let Some(seconds) = self.role.duration_seconds {
            provider = provider.with_duration_seconds(seconds);
        }
        provider.provide_credential(context).await.map_err(named)
    }
}

#[cfg(test)]
mod tests;
