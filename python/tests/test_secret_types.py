"""The typed options of secrets are those that DuckDB takes."""

import typing

import duckdb
import penstock
import pytest
from penstock import AzureSecret, HttpSecret, S3Secret, Secret

PROVIDERS = {
    "s3": ("config", "credential_chain"),
    "gcs": ("config",),
    "r2": ("config",),
    "azure": (
        "config",
        "credential_chain",
        "managed_identity",
        "service_principal",
        "access_token",
    ),
    "http": ("config",),
}


def is_known(con: duckdb.DuckDBPyConnection, kind: str, provider: str, option: str) -> bool:
    value = "MAP {'a': 'b'}" if option == "extra_http_headers" else "'true'"
    try:
        con.execute(
            f"CREATE OR REPLACE SECRET t (TYPE {kind}, PROVIDER {provider}, {option} {value})"
        )
    except duckdb.Error as error:
        return "Unknown parameter" not in str(error)
    return True


@pytest.mark.parametrize(
    ("typed", "kinds"),
    [(S3Secret, ("s3", "gcs", "r2")), (AzureSecret, ("azure",)), (HttpSecret, ("http",))],
)
def test_duckdb_takes_each_typed_option(typed: type, kinds: tuple[str, ...]) -> None:
    with penstock.connect() as con:
        assert not is_known(con, kinds[0], "config", "no_such_option")
        unknown = [
            option
            for option in typing.get_type_hints(typed)
            if option not in ("type", "provider")
            and not any(is_known(con, kind, p, option) for kind in kinds for p in PROVIDERS[kind])
        ]
    assert unknown == []


def test_secrets_held_in_variables_have_types() -> None:
    # mypy --strict reads this file.
    lake: S3Secret = {"type": "s3", "key_id": "k", "secret": "s", "use_ssl": False}
    blobs: AzureSecret = {"type": "azure", "account_name": "a", "scope": ["az://x", "az://y"]}
    plain = {"type": "http", "bearer_token": "t"}
    secrets: dict[str, Secret] = {"lake": lake, "blobs": blobs, "plain": plain}
    with penstock.connect(secrets=secrets) as con:
        rows = con.execute("SELECT name FROM duckdb_secrets() ORDER BY name").fetchall()
    assert rows == [("blobs",), ("lake",), ("plain",)]


def test_headers_are_a_mapping_whose_values_do_not_show() -> None:
    secret: HttpSecret = {"type": "http", "extra_http_headers": {"Authorization": "hunter2"}}
    with penstock.connect(secrets={"web": secret}) as con:
        shown = str(con.execute("SELECT secret_string FROM duckdb_secrets()").fetchall())
    assert "extra_http_headers" in shown
    assert "hunter2" not in shown
