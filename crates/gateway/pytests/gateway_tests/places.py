"""Where ClickHouse keeps things in these tests: a local directory, or a bucket behind an endpoint.

Decides how a place is written in SQL and in the configuration; runs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

POLICY = "tiered"
DISK_TYPES = ("s3", "s3_plain_rewritable")
"""Kinds of disk that tables live on and move to."""


@dataclass(frozen=True)
class LocalPlace:
    """Below a directory: what all other places are compared with."""

    directory: str
    policy: str = POLICY

    def disk(self, name: str = "") -> str:
        """The default disk."""
        return "disk = 'default'"

    def cached(self) -> str:
        """A local disk needs no cache."""
        return self.disk()

    def object(self, key: str, form: str) -> str:
        """A file."""
        return f"file('{self.directory}/files/{key}', '{form}')"

    def backup(self, name: str) -> str:
        """A directory below the allowed path."""
        return f"File('{self.directory}/backups/{name}/')"

    def plain(self, name: str) -> str:
        """A local disk over the backup."""
        return f"disk = disk(type = local, path = '{self.directory}/db/plain/{name}/')"

    def plain_object(self, key: str, form: str) -> str:
        """A file of the plain disk."""
        return f"file('{self.directory}/db/plain/{key}', '{form}')"

    def disks(self) -> str:
        """The second disk of the policy, and the plain one."""
        plain = f"<plain><path>{self.directory}/db/plain/</path></plain>"
        return f"<cold>{self._cold()}</cold>{plain}"

    def _cold(self) -> str:
        return f"<path>{self.directory}/cold/</path>"


@dataclass(frozen=True)
class S3Place:
    """In two buckets of an S3 endpoint: data and backups."""

    url: str
    access_key: str
    secret_key: str
    bucket: str
    directory: str
    """For caches; below the session's own directory."""
    disk_type: str = "s3"
    policy: str = POLICY

    def _settings(self, prefix: str, disk_type: str = "") -> dict[str, str]:
        return {
            "type": disk_type or self.disk_type,
            "endpoint": f"{self.url}/{self.bucket}/{prefix}/",
            "access_key_id": self.access_key,
            "secret_access_key": self.secret_key,
            "region": "us-east-1",
        }

    def disk(self, name: str = "") -> str:
        """A disk that is made with the table."""
        return f"disk = disk({_sql(self._settings(f'tables{name}'))})"

    def cached(self) -> str:
        """The same below a cache."""
        cache = f"type = cache, path = '{self.directory}/db/cache/', max_size = '256Mi'"
        return f"disk = disk({cache}, disk = disk({_sql(self._settings('cached'))}))"

    def object(self, key: str, form: str) -> str:
        """An object."""
        return self._object(f"objects/{key}", form)

    def _object(self, key: str, form: str) -> str:
        keys = f"'{self.access_key}', '{self.secret_key}'"
        return f"s3('{self.url}/{self.bucket}/{key}', {keys}, '{form}')"

    @property
    def backups(self) -> str:
        """The bucket for backups."""
        return f"{self.bucket}-backups"

    def backup(self, name: str) -> str:
        """Below a prefix of the bucket for backups."""
        keys = f"'{self.access_key}', '{self.secret_key}'"
        return f"S3('{self.url}/{self.backups}/{self.disk_type}/{name}', {keys})"

    def plain(self, name: str) -> str:
        """A disk over the backup."""
        settings = self._settings(f"plain/{name}", "s3_plain")
        return f"disk = disk({_sql(settings)})"

    def plain_object(self, key: str, form: str) -> str:
        """An object of the plain disk."""
        return self._object(f"plain/{key}", form)

    def disks(self) -> str:
        """The second disk of the policy, of the kind that is told of, and the plain one.

        What is told of no disk for tables has a policy too, which none of its features uses.
        """
        kind = self.disk_type if self.disk_type in DISK_TYPES else DISK_TYPES[0]
        cold, plain = self._settings("cold", kind), self._settings("plain", "s3_plain")
        return f"<cold>{_xml(cold)}</cold><plain>{_xml(plain)}</plain>"


def _sql(settings: dict[str, str]) -> str:
    return ", ".join(f"{name} = '{value}'" for name, value in settings.items())


def _xml(settings: dict[str, str]) -> str:
    return "".join(f"<{name}>{value}</{name}>" for name, value in settings.items())


def configuration(place: LocalPlace | S3Place, directory: str) -> str:
    """ClickHouse's configuration file: what tables cannot say themselves.

    ``move_factor`` is 0: by default ClickHouse moves parts in the background as soon as a tenth
    of the disk is left, and a statement that moves the same part fails then.
    """
    return f"""<clickhouse>
<storage_configuration>
  <disks><hot><path>{directory}/hot/</path></hot>{place.disks()}</disks>
  <policies><{POLICY}><volumes>
    <hot><disk>hot</disk></hot><cold><disk>cold</disk></cold>
  </volumes><move_factor>0</move_factor></{POLICY}></policies>
</storage_configuration>
<custom_local_disks_base_directory>{directory}/db/</custom_local_disks_base_directory>
<enable_system_unfreeze>true</enable_system_unfreeze>
<backups>
  <allowed_path>{directory}/backups/</allowed_path>
  <allowed_disk>plain</allowed_disk>
  <allow_concurrent_backups>false</allow_concurrent_backups>
</backups>
</clickhouse>
"""
