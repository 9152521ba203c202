//! Why credentials do not go to the host of a URL, and what lets them. Pure.

use super::super::address::Address;
use super::super::connection_string::ConnectionString;
use super::super::hosts::{self, Foreign};
use super::secret_hint;
use crate::advice;
use crate::options::StoreOptions;
use crate::unsigned::Withheld;
use penstock_base::Kind;

/// Whether the URL's host begins with the account of a connection string.
pub(super) fn is_named_as(address: &Address, string: &ConnectionString) -> bool {
    address.account.as_ref().map(|host| host.name.as_str()) == string.account.as_deref()
}

/// Why a connection string does not go to the URL's host.
pub(super) fn not_of_string(
    address: &Address,
    string: &ConnectionString,
    foreign: &Foreign,
    options: &StoreOptions,
) -> Withheld {
    let host = address.account.as_ref().expect("only the host of a URL is foreign");
    let label = label_of(options);
    let own = string.account.as_deref().unwrap_or("ACCOUNT");
    match foreign {
        Foreign::Account => {
            let url = hosts::account_of(host);
            let why = format!(
                "the URL is of account `{url}`, but the connection string of {label} is of `{own}`"
            );
            Withheld::new(Kind::Invalid, why, secret_hint(url, &address.root))
        }
        Foreign::Host => {
            let endpoint = &string.endpoint;
            let why = format!(
                "`{host}` is no host of account `{own}` at `{endpoint}`, which the connection \
                 string of {label} names"
            );
            let option = match options.get("connection_string") {
                Some(_) => advice::values(options.get("secret_name"), &["connection_string"]),
                None => "azure_storage_connection_string".to_string(),
            };
            let hint = format!(
                "If the account does answer there, put BlobEndpoint=https://{host} into {option}; \
                 else mend the URL"
            );
            Withheld::new(Kind::Denied, why, hint)
        }
    }
}

/// Why the credentials of the options do not go to the URL's host.
pub(super) fn not_for(
    address: &Address,
    foreign: &Foreign,
    told: Option<&str>,
    options: &StoreOptions,
) -> Withheld {
    let host = address.account.as_ref().expect("only the host of a URL is foreign");
    let label = label_of(options);
    let (why, hint) = match foreign {
        Foreign::Host => {
            let set = advice::set("endpoint", &format!("https://{host}"));
            let which = match told {
                Some(told) => format!("is no host of the endpoint `{told}`"),
                None => "is no host of an Azure storage account".to_string(),
            };
            let why = format!("`{host}` {which}: the credentials of {label} do not go there");
            (why, format!("If the account does answer there, {set}"))
        }
        Foreign::Account => {
            let url = hosts::account_of(host);
            let why = format!(
                "the URL is of account `{url}`, but the credentials of {label} are of `{}`",
                options.get("account_name").unwrap_or_default()
            );
            (why, secret_hint(url, &address.root))
        }
    };
    Withheld::new(Kind::Denied, why, hint)
}

fn label_of(options: &StoreOptions) -> String {
    match options.get("secret_name") {
        Some(_) => options.secret_label(),
        None => "the settings or the environment".to_string(),
    }
}
