"""Marked secrets through the package and every trouble: no text of it holds a mark."""

from __future__ import annotations

import traceback
from typing import Any

import penstock
import pytest

MARK = "U0VDUkVU"
"""Stands in each secret. It is base64, as the key of an account is."""

REFUSED: list[object] = [
    {"key_id": MARK, "secret": MARK},
    {"type": "s3", "key_id": MARK, "secrt": MARK},
    {"type": "s3", "key_id": MARK, "secret": MARK, "session_token": None},
    {"type": "s3", "key_id": MARK, "use_ssl": [MARK]},
    {"type": "s3", "key_id": MARK, "secret": {"value": MARK}},
    {"type": "s3", "key_id": MARK, "use_ssl": MARK},
    {"type": "s3", "provider": "nobody", "secret": MARK},
    {"type": "azure", "connection_string": f"AcountKey={MARK}", "provider": "x y"},
    {"type": "azure", "connection_strng": f"AccountName=a;AccountKey={MARK}"},
    {"type": "azure", "provider": "access_token", "access_tokn": MARK},
    {"type": "http", "bearer_token": MARK, "extra_http_headers": MARK},
    {"type": "http", "http_proxy": f"http://u:{MARK}@proxy", "proxy": MARK},
    {"type": "nobody", "secret": MARK},
    MARK,
    [MARK],
]
SETTINGS: list[dict[str, Any]] = [
    {"penstock_nothing": MARK},
    {"penstock_proxy": f"http://u:{MARK}@h:x"},
    {"s3_secret_acces_key": MARK},
    {"penstock_http_proxy": f"ftp://u:{MARK}@h"},
]


def judged(error: BaseException) -> None:
    """Neither the error nor any that it came from shows a mark; the lines of source are ours."""
    seen = "".join(traceback.format_exception(error))
    seen += "".join(map(repr, (error, error.args, error.__cause__, error.__context__)))
    assert MARK not in seen, seen


@pytest.mark.parametrize("secret", REFUSED, ids=range(len(REFUSED)))
def test_a_refused_secret_is_not_shown(secret: penstock.Secret) -> None:
    with pytest.raises(Exception) as caught:
        penstock.connect(secrets={"lake": secret}).close()
    judged(caught.value)


@pytest.mark.parametrize("settings", SETTINGS, ids=range(len(SETTINGS)))
def test_a_refused_setting_is_not_shown(settings: dict[str, Any]) -> None:
    with pytest.raises(Exception) as caught:
        penstock.connect(settings=settings).close()
    judged(caught.value)


def test_what_a_connection_is_shown_as_holds_no_secret() -> None:
    secret: penstock.Secret = {"type": "s3", "key_id": f"AK{MARK}", "secret": MARK}
    with penstock.connect(secrets={"lake": secret}) as con:
        found = str(con.execute("SELECT secret_string FROM duckdb_secrets()").fetchall())
        assert "lake" in found
        # The id of a key is no secret to DuckDB.
        assert MARK not in found.replace(f"AK{MARK}", "") + repr(con)
