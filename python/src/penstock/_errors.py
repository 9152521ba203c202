"""The errors of this package: each says what failed, why, and what to do."""


class PenstockError(Exception):
    """Base of every error of this package (DuckDB's own errors pass through unchanged)."""


class NotShippedError(PenstockError):
    """A file that was asked for is not part of this installation."""


class LoadError(PenstockError):
    """The extension could not be loaded into a connection."""


class SecretError(PenstockError):
    """A secret was refused; the message never holds a secret's value."""
