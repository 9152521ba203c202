//! Store options of the object verbs: `--option NAME=VALUE` with the names of DuckDB's secrets, and
//! what the environment says in the words of each cloud's own tools.

use clap::Args;
use penstock_base::{Error, Kind, Result};
use penstock_engine::StoreOption;
use penstock_engine::store_options::{StoreOptions, TABLE};

/// Options of the store that a URL lies in.
#[derive(Clone, Debug, Default, Args)]
pub struct StoreFlags {
    /// Store option, such as endpoint=127.0.0.1:9000 or account_name=lake; names as in DuckDB's
    /// secrets, listed by `penstock reference`
    #[arg(short = 'o', long = "option", value_name = "NAME=VALUE")]
    option: Vec<String>,
    /// Send requests unsigned instead of looking for credentials
    #[arg(long)]
    anonymous: bool,
}

/// Variables of Azure's own tools that the store does not read itself.
const AZURE_VARIABLES: &[(&str, &str)] = &[
    ("AZURE_STORAGE_CONNECTION_STRING", "connection_string"),
    ("AZURE_STORAGE_ACCOUNT", "account_name"),
    ("AZURE_STORAGE_KEY", "account_key"),
    ("AZURE_STORAGE_SAS_TOKEN", "sas_token"),
];
/// Options that are credentials, or say where to find them.
const CREDENTIALS: &[&str] = &[
    "provider",
    "key_id",
    "secret",
    "account_key",
    "connection_string",
    "sas_token",
    "access_token",
    "client_secret",
    "bearer_token",
    "token",
    "service_account_key",
    "service_account_path",
    "chain",
];

impl StoreFlags {
    /// The options for a URL: flags first, then the environment; without credentials in either, the
    /// chain that the cloud's own tools walk.
    ///
    /// # Errors
    /// `Invalid` for a flag without `=`, or a name that no store knows.
    pub fn resolve(
        &self,
        url: &str,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Vec<StoreOption>> {
        let mut options = Vec::new();
        for flag in &self.option {
            let Some((name, value)) = flag.split_once('=') else {
                return Err(Error::new(Kind::Invalid, "--option takes NAME=VALUE")
                    .with_hint("For example --option endpoint=127.0.0.1:9000"));
            };
            options.push((name.to_string(), value.to_string()));
        }
        let is_given = options.iter().any(|row| CREDENTIALS.contains(&row.0.as_str()));
        let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme).to_ascii_lowercase();
        let scheme = scheme.as_str();
        let azure = matches!(scheme, "az" | "azure" | "abfs" | "abfss");
        if azure && !self.anonymous {
            let flags: Vec<String> = options.iter().map(|row| row.0.clone()).collect();
            for (variable, name) in AZURE_VARIABLES.iter().filter(|row| !is_settled(row.1, &flags))
            {
                let value = environment(variable).filter(|value| !value.is_empty());
                options.extend(value.map(|value| (name.to_string(), value)));
            }
        }
        let is_chained = azure || matches!(scheme, "s3" | "s3a" | "s3n" | "gs" | "gcs");
        if self.anonymous && (scheme == "r2" || is_chained && !azure) {
            // The store finds AWS's variables itself.
            options.retain(|row| row.0 != "provider");
            options.push(("provider".to_string(), "anonymous".to_string()));
        } else if is_chained && !is_given && !self.anonymous {
            options.push(("provider".to_string(), "environment".to_string()));
        }
        // Names are checked here, so that the error speaks of the flag.
        StoreOptions::new(options.iter().map(|row| (&row.0, &row.1)))?;
        debug_assert!(CREDENTIALS.iter().all(|name| TABLE.iter().any(|row| row.name == *name)));
        Ok(options)
    }
}

/// Whether flags of these names settle what a variable of Azure's for this option would:
/// credentials of one kind win over those of another, and an account over that of a connection
/// string.
fn is_settled(option: &str, flags: &[String]) -> bool {
    let is_given = |name: &str| flags.iter().any(|flag| flag == name);
    let has_credentials = || CREDENTIALS.iter().any(|name| is_given(name));
    match option {
        "account_name" => is_given("account_name") || is_given("connection_string"),
        "connection_string" => is_given("account_name") || has_credentials(),
        _ => has_credentials(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(option: &[&str], anonymous: bool) -> StoreFlags {
        StoreFlags { option: option.iter().map(|text| text.to_string()).collect(), anonymous }
    }

    fn pair(name: &str, value: &str) -> StoreOption {
        (name.to_string(), value.to_string())
    }

    #[test]
    fn without_credentials_the_clouds_own_chain_is_walked() {
        let nothing = |_: &str| None;
        let chain = pair("provider", "environment");
        assert_eq!(flags(&[], false).resolve("s3://b/k", nothing).unwrap(), [chain]);
        let unsigned = pair("provider", "anonymous");
        for option in [&[][..], &["provider=credential_chain"]] {
            let options = flags(option, true).resolve("s3://b/k", nothing).unwrap();
            assert_eq!(options, std::slice::from_ref(&unsigned));
        }
        assert_eq!(flags(&[], false).resolve("https://h/k", nothing).unwrap(), []);
        let keyed = flags(&["key_id=a", "secret=b=c"], false).resolve("s3://b/k", nothing).unwrap();
        assert_eq!(keyed, [pair("key_id", "a"), pair("secret", "b=c")]);
    }

    #[test]
    fn flags_win_over_azures_variables() {
        let environment = |name: &str| match name {
            "AZURE_STORAGE_ACCOUNT" => Some("theirs".to_string()),
            "AZURE_STORAGE_KEY" => Some("k".to_string()),
            _ => None,
        };
        let options =
            flags(&["account_name=mine"], false).resolve("az://c/k", environment).unwrap();
        let environment = pair("provider", "environment");
        assert_eq!(options, [pair("account_name", "mine"), pair("account_key", "k"), environment]);
    }

    #[test]
    fn flags_win_over_azures_variables_of_another_form() {
        let environment = |name: &str| match name {
            "AZURE_STORAGE_CONNECTION_STRING" => Some("AccountName=theirs;AccountKey=k".into()),
            "AZURE_STORAGE_KEY" => Some("k".to_string()),
            _ => None,
        };
        let given =
            |option: &[&str]| flags(option, false).resolve("az://c/k", environment).unwrap();
        let (mine, key) = (pair("account_name", "mine"), pair("account_key", "k"));
        let environment = pair("provider", "environment");
        assert_eq!(given(&["account_name=mine"]), [mine.clone(), key, environment]);
        let sas = pair("sas_token", "s");
        assert_eq!(given(&["account_name=mine", "sas_token=s"]), [mine, sas]);
        assert_eq!(given(&[]).len(), 3, "what stands in both is the store's to judge");
        let text = "connection_string=AccountName=mine;AccountKey=q";
        assert_eq!(given(&[text]).len(), 1);
    }

    #[test]
    fn slips_are_told() {
        let nothing = |_: &str| None;
        let error = flags(&["endpont=x"], false).resolve("s3://b/k", nothing).unwrap_err();
        assert_eq!(error.hint(), Some("Did you mean `endpoint`?"));
        assert!(flags(&["endpoint"], false).resolve("s3://b/k", nothing).is_err());
    }
}
