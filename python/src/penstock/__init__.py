"""DuckDB on object storage through Penstock.

`connect` opens DuckDB with the extension loaded, `load` loads it into a connection that exists,
`extension_path` and `binary_path` tell where the shipped files are.
"""

from importlib import metadata

from penstock._connect import connect, load
from penstock._errors import LoadError, NotShippedError, PenstockError, SecretError
from penstock._files import binary_path, extension_path, shipped_versions
from penstock._secrets import AzureSecret, HttpSecret, S3Secret, Secret

__version__ = metadata.version("penstock")

__all__ = [
    "AzureSecret",
    "HttpSecret",
    "LoadError",
    "NotShippedError",
    "PenstockError",
    "S3Secret",
    "Secret",
    "SecretError",
    "__version__",
    "binary_path",
    "connect",
    "extension_path",
    "load",
    "shipped_versions",
]
