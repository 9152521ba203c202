"""DuckDB on object storage through Penstock.

`connect` opens DuckDB with the extension loaded, `load` loads it into a connection that exists,
`extension_path` and `binary_path` tell where the shipped files are.
"""

from penstock._connect import Secret, connect, load
from penstock._errors import LoadError, NotShippedError, PenstockError, SecretError
from penstock._files import binary_path, extension_path, shipped_versions

__all__ = [
    "LoadError",
    "NotShippedError",
    "PenstockError",
    "Secret",
    "SecretError",
    "binary_path",
    "connect",
    "extension_path",
    "load",
    "shipped_versions",
]
