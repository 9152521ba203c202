"""The types of secrets: the options of DuckDB's `CREATE SECRET`, by type of store.

A type checker reports a misspelt option of a dictionary of one of these types. A plain dictionary
works too; DuckDB then reports what it does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Required, TypedDict


class _AnySecret(TypedDict, total=False):
    provider: str
    scope: str | list[str]
    http_proxy: str


class S3Secret(_AnySecret, total=False):
    """A secret for S3 and services that speak its protocol: `s3`, `aws`, `gcs`, `r2`."""

    type: Required[Literal["s3", "aws", "gcs", "r2"]]
    key_id: str
    secret: str
    session_token: str
    region: str
    endpoint: str
    url_style: Literal["vhost", "path"]
    use_ssl: bool
    verify_ssl: bool
    url_compatibility_mode: bool
    requester_pays: bool
    kms_key_id: str
    bearer_token: str
    account_id: str
    extra_http_headers: dict[str, str]
    refresh: str
    chain: str
    profile: str
    assume_role_arn: str
    external_id: str
    web_identity_token_file: str
    session_name: str
    http_proxy_username: str
    http_proxy_password: str


class AzureSecret(_AnySecret, total=False):
    """A secret for Azure Blob Storage and OneLake."""

    type: Required[Literal["azure"]]
    connection_string: str
    account_name: str
    endpoint: str
    chain: str
    tenant_id: str
    client_id: str
    client_secret: str
    client_certificate_path: str
    object_id: str
    resource_id: str
    access_token: str
    proxy_user_name: str
    proxy_password: str


class HttpSecret(_AnySecret, total=False):
    """A secret for plain HTTP and HTTPS."""

    type: Required[Literal["http"]]
    bearer_token: str
    extra_http_headers: dict[str, str]
    http_proxy_username: str
    http_proxy_password: str


Option = str | bool | int | list[str] | dict[str, str]
"""A value of one option."""

Secret = S3Secret | AzureSecret | HttpSecret | Mapping[str, Option]
"""Options of one ``CREATE SECRET``: ``type`` is required, the rest are that type's own options."""
