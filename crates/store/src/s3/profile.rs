//! Profiles of the AWS configuration files.
//!
//! Decides what a profile leads to: a role assumed with another profile's or the machine's
//! credentials, a web identity, an SSO session, or keys and processes of its own. Follows the AWS
//! CLI's documentation ("Configuration and credential file settings", "Using an IAM role"). Pure
//! but for [`Files::read`]; what a plan gives is asked for in `sources`.

use ini::Ini;
use reqsign_core::{Context, Error, Result};

/// Most roles that may lead to one another.
const ROLES_MAX: usize = 8;

/// A role and how to assume it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Role {
    pub arn: String,
    pub external_id: Option<String>,
    pub session_name: Option<String>,
    pub duration_seconds: Option<u32>,
    /// Region of the token service, where the profile names one.
    pub region: Option<String>,
}

/// What a profile leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// Keys or a credential process of this profile.
    Own(String),
    /// A token that `aws sso login` left under this name in its cache.
    Sso { cache_name: String, region: String, account_id: String, role_name: String },
    /// A role, assumed with what the other plan gives.
    Role { role: Role, source: Box<Plan> },
    /// A role, assumed with a token file.
    WebIdentity { role: Role, token_file: String },
    /// `credential_source` of a role.
    Environment,
    /// `credential_source` of a role.
    Container,
    /// `credential_source` of a role.
    Instance,
}

/// The shared files: credentials, then config.
pub(super) struct Files {
    credentials: Ini,
    config: Ini,
}

impl Files {
    /// Reads both; one that is not there is empty.
    ///
    /// # Errors
    /// `ConfigInvalid` for a file that is malformed; it names the file.
    pub async fn read(context: &Context) -> Result<Self> {
        Ok(Files {
            credentials: read(context, "AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials").await?,
            config: read(context, "AWS_CONFIG_FILE", "~/.aws/config").await?,
        })
    }

    fn get(&self, profile: &str, name: &str) -> Option<&str> {
        let found = self.credentials.get_from(Some(profile), name).or_else(|| {
            let long = self.config.get_from(Some(format!("profile {profile}")), name);
            long.or_else(|| self.config.get_from(Some(profile).filter(|p| *p == "default"), name))
        });
        found.map(str::trim).filter(|value| !value.is_empty())
    }

    pub fn has(&self, profile: &str) -> bool {
        self.credentials.section(Some(profile)).is_some()
            || self.config.section(Some(format!("profile {profile}"))).is_some()
            || (profile == "default" && self.config.section(Some(profile)).is_some())
    }

    fn has_keys(&self, profile: &str) -> bool {
        self.get(profile, "aws_access_key_id").is_some()
    }

    /// What a profile leads to.
    ///
    /// # Errors
    /// `ConfigInvalid` for a profile that is not there, or cannot lead to credentials.
    pub fn plan(&self, profile: &str) -> Result<Plan> {
        self.follow(profile, &mut Vec::new())
    }

    fn follow(&self, profile: &str, path: &mut Vec<String>) -> Result<Plan> {
        if !self.has(profile) {
            return Err(wrong(profile, "is in neither the config nor the credentials file"));
        }
        path.push(profile.to_string());
        if path.len() > ROLES_MAX {
            return Err(wrong(profile, &format!("ends a row of over {ROLES_MAX} roles")));
        }
        let Some(arn) = self.get(profile, "role_arn") else { return self.without_role(profile) };
        if self.get(profile, "mfa_serial").is_some() {
            let why = "asks for an MFA code, which cannot be entered here; use a profile of `aws \
                       sso login`, or keys from `aws sts get-session-token`";
            return Err(wrong(profile, why));
        }
        let role = self.role(profile, arn)?;
        if let Some(file) = self.get(profile, "web_identity_token_file") {
            return Ok(Plan::WebIdentity { role, token_file: file.to_string() });
        }
        let source = match (
            self.get(profile, "source_profile"),
            self.get(profile, "credential_source"),
        ) {
            // A profile may name itself: its own keys assume its role.
            (Some(source), _) if source == profile && self.has_keys(profile) => {
                Plan::Own(profile.to_string())
            }
            (Some(source), _) if path.iter().any(|passed| passed == source) => {
                let why = format!("leads in a circle: {} -> {source}", path.join(" -> "));
                return Err(wrong(profile, &why));
            }
            (Some(source), _) => self.follow(source, path)?,
            (None, Some("Environment")) => Plan::Environment,
            (None, Some("EcsContainer")) => Plan::Container,
            (None, Some("Ec2InstanceMetadata")) => Plan::Instance,
            (None, Some(other)) => {
                let why = format!(
                    "has credential_source `{other}`; known are Environment, EcsContainer and \
                     Ec2InstanceMetadata"
                );
                return Err(wrong(profile, &why));
            }
            (None, None) => {
                let why = "has a role_arn, but neither source_profile nor credential_source nor \
                           web_identity_token_file";
                return Err(wrong(profile, why));
            }
        };
        Ok(Plan::Role { role, source: Box::new(source) })
    }

    fn role(&self, profile: &str, arn: &str) -> Result<Role> {
        let text = |name: &str| self.get(profile, name).map(str::to_string);
        let duration = text("duration_seconds").map(|text| text.parse());
        Ok(Role {
            arn: arn.to_string(),
            external_id: text("external_id"),
            session_name: text("role_session_name"),
            duration_seconds: duration
                .transpose()
                .map_err(|_| wrong(profile, "has a duration_seconds that is no number"))?,
            region: text("region"),
        })
    }

    fn without_role(&self, profile: &str) -> Result<Plan> {
        let session = self.get(profile, "sso_session");
        let Some(cache_name) = session.or_else(|| self.get(profile, "sso_start_url")) else {
            return Ok(Plan::Own(profile.to_string()));
        };
        let from_session = |name: &str| {
            session.and_then(|session| {
                self.config.get_from(Some(format!("sso-session {session}")), name)
            })
        };
        let needed = |name: &str| {
            let found = from_session(name).or_else(|| self.get(profile, name));
            found
                .map(str::to_string)
                .ok_or_else(|| wrong(profile, &format!("lacks {name} for SSO")))
        };
        Ok(Plan::Sso {
            cache_name: cache_name.to_string(),
            region: needed("sso_region")?,
            account_id: needed("sso_account_id")?,
            role_name: needed("sso_role_name")?,
        })
    }
}

fn wrong(profile: &str, why: &str) -> Error {
    Error::config_invalid(format!("the AWS profile `{profile}` {why}"))
}

async fn read(context: &Context, variable: &str, usual: &str) -> Result<Ini> {
    let path = context.env_var(variable).unwrap_or_else(|| usual.to_string());
    let Some(path) = context.expand_home_dir(&path) else { return Ok(Ini::new()) };
    // Not being there is usual; what a missing file lacks is told where it is looked for.
    let Ok(text) = context.file_read_as_string(&path).await else { return Ok(Ini::new()) };
    Ini::load_from_str_noescape(&text).map_err(|error| {
        Error::config_invalid(format!("{path} is malformed, line {}: {}", error.line, error.msg))
    })
}

/// Body for a fuzzer: both files, config first, with a line `=` between them. Every profile that
/// they name leads somewhere, within bounds, or says why not.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn fuzz(text: &str) {
    let (config, credentials) = text.split_once("\n=\n").unwrap_or((text, ""));
    let load = |text: &str| Ini::load_from_str_noescape(text).unwrap_or_else(|_| Ini::new());
    let files = Files { config: load(config), credentials: load(credentials) };
    let of_config =
        files.config.sections().flatten().map(|name| name.strip_prefix("profile ").unwrap_or(name));
    for profile in files.credentials.sections().flatten().chain(of_config) {
        let Ok(plan) = files.plan(profile) else { continue };
        let (mut end, mut roles) = (&plan, 0);
        while let Plan::Role { role, source } = end {
            assert!(!role.arn.is_empty(), "a role without a name: {plan:?}");
            (end, roles) = (&**source, roles + 1);
        }
        assert!(roles <= ROLES_MAX, "{roles} roles: {plan:?}");
        if let Plan::Own(name) = end {
            assert!(files.has(name), "a profile that is not there: {plan:?}");
            // A circle ends in keys, not in a role whose own keys there are none of.
            let is_role = files.get(name, "role_arn").is_some();
            assert!(!is_role || files.has_keys(name), "keys that there are none of: {plan:?}");
        }
        assert_eq!(files.plan(profile).ok().as_ref(), Some(&plan), "two answers to one question");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(config: &str, credentials: &str, profile: &str) -> Result<Plan> {
        let files = Files {
            credentials: Ini::load_from_str_noescape(credentials).unwrap(),
            config: Ini::load_from_str_noescape(config).unwrap(),
        };
        files.plan(profile)
    }

    fn role(name: &str) -> Role {
        Role { arn: format!("arn:aws:iam::1:role/{name}"), ..Role::default() }
    }

    const CONFIG: &str = "
        [default]
        region = eu-west-1
        [profile base]
        aws_access_key_id = B
        [profile one]
        role_arn = arn:aws:iam::1:role/one
        source_profile = base
        [profile two]
        role_arn = arn:aws:iam::1:role/two
        source_profile = one
        external_id = e
        role_session_name = n
        duration_seconds = 900
        region = eu-west-1
        s3 =
          max_concurrent_requests = 20
        [profile itself]
        role_arn = arn:aws:iam::1:role/itself
        source_profile = itself
        [profile pod]
        role_arn = arn:aws:iam::1:role/pod
        web_identity_token_file = /token
        [profile box]
        role_arn = arn:aws:iam::1:role/box
        credential_source = Ec2InstanceMetadata
        [profile new-sso]
        sso_session = corp
        sso_account_id = 1
        sso_role_name = reader
        [sso-session corp]
        sso_region = us-east-2
        sso_start_url = https://corp.example/start
        [profile old-sso]
        sso_start_url = https://corp.example/start
        sso_region = us-east-2
        sso_account_id = 1
        sso_role_name = reader
    ";

    #[test]
    fn profiles_lead_to_their_sources() {
        let own = |name: &str| Box::new(Plan::Own(name.to_string()));
        let one = Plan::Role { role: role("one"), source: own("base") };
        let two = Role {
            external_id: Some("e".into()),
            session_name: Some("n".into()),
            duration_seconds: Some(900),
            region: Some("eu-west-1".into()),
            ..role("two")
        };
        let sso = |cache_name: &str| Plan::Sso {
            cache_name: cache_name.into(),
            region: "us-east-2".into(),
            account_id: "1".into(),
            role_name: "reader".into(),
        };
        let keys = "[itself]\naws_access_key_id = I\n[only-here]\naws_access_key_id = O\n";
        for (profile, expected) in [
            ("default", *own("default")),
            ("only-here", *own("only-here")),
            ("two", Plan::Role { role: two, source: Box::new(one) }),
            ("itself", Plan::Role { role: role("itself"), source: own("itself") }),
            ("pod", Plan::WebIdentity { role: role("pod"), token_file: "/token".into() }),
            ("box", Plan::Role { role: role("box"), source: Box::new(Plan::Instance) }),
            ("new-sso", sso("corp")),
            ("old-sso", sso("https://corp.example/start")),
        ] {
            assert_eq!(plan(CONFIG, keys, profile).unwrap(), expected, "{profile}");
        }
    }

    #[test]
    fn dead_ends_are_named() {
        let role = "role_arn = arn:aws:iam::1:role/r\n";
        for (config, text) in [
            (String::new(), "`p` is in neither"),
            (format!("[profile p]\n{role}"), "neither source_profile"),
            (format!("[profile p]\n{role}source_profile = q\n"), "`q` is in neither"),
            (format!("[profile p]\n{role}source_profile = p\n"), "circle: p -> p"),
            (
                format!(
                    "[profile p]\n{role}source_profile = q\n[profile q]\n{role}source_profile = p\n"
                ),
                "circle: p -> q -> p",
            ),
            (format!("[profile p]\n{role}credential_source = Magic\n"), "known are Environment"),
            (format!("[profile p]\n{role}source_profile = q\nmfa_serial = m\n"), "MFA"),
            (format!("[profile p]\n{role}source_profile = q\nduration_seconds = x\n"), "no number"),
            ("[profile p]\nsso_session = s\n".to_string(), "lacks sso_region"),
        ] {
            let error = plan(&config, "", "p").unwrap_err();
            assert!(error.to_string().contains(text), "{config}: {error}");
        }
    }
}
