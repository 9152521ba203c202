"""SQL text that the bench sends: secrets, settings, literals. Pure."""

from __future__ import annotations

from dataclasses import dataclass

AZURITE_ACCOUNT = "devstoreaccount1"
# Published by Microsoft for the emulator; not a secret.
AZURITE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
S3_KEY = "test"
BUCKET = "bench"


@dataclass(frozen=True)
class Endpoint:
    """Where a store listens, and which protocol it speaks."""

    protocol: str
    host: str = "127.0.0.1"
    port: int = 0
    directory: str = ""

    def root(self, run: str) -> str:
        """The URL below which one run keeps its objects."""
        if self.protocol == "file":
            return f"{self.directory}/{run}"
        scheme = {"s3": "s3", "azure": "az"}[self.protocol]
        return f"{scheme}://{BUCKET}/{run}"

    def connection_string(self) -> str:
        """How Azure's tools name the emulator at this endpoint."""
        return (
            f"DefaultEndpointsProtocol=http;AccountName={AZURITE_ACCOUNT};"
            f"AccountKey={AZURITE_KEY};"
            f"BlobEndpoint=http://{self.host}:{self.port}/{AZURITE_ACCOUNT};"
        )


def literal(value: str | bool | int) -> str:
    """A SQL literal."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return "'" + value.replace("'", "''") + "'"


def create_secret(endpoint: Endpoint) -> str | None:
    """The statement that gives DuckDB the credentials of a store; None for local files."""
    if endpoint.protocol == "s3":
        return (
            f"CREATE SECRET bench (TYPE s3, KEY_ID '{S3_KEY}', SECRET '{S3_KEY}', "
            f"ENDPOINT '{endpoint.host}:{endpoint.port}', URL_STYLE 'path', USE_SSL false, "
            "REGION 'us-east-1')"
        )
    if endpoint.protocol == "azure":
        text = literal(endpoint.connection_string())
        return f"CREATE SECRET bench (TYPE azure, CONNECTION_STRING {text})"
    return None


def settings(values: dict[str, str | bool | int]) -> list[str]:
    """One SET GLOBAL per setting."""
    return [f"SET GLOBAL {name} = {literal(value)}" for name, value in values.items()]


def fill(text: str, rows: int, root: str, shared: str = "") -> str:
    """Puts size, place of this run and place of all runs into a statement; other braces stay."""
    filled = text.replace("{rows}", str(rows)).replace("{root}", root)
    return filled.replace("{shared}", shared)
