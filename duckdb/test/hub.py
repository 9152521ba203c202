"""A Hugging Face Hub for tests: repositories, listings in pages, redirects to a second host."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from client_web import make_certificate
from odd_server import Answer, Ask, Server, good, serving

READER = "hf_hunter2"
"""The token of whoever may read private repositories, and gated ones that let them in."""

Files = dict[str, bytes]

_PLACE = re.compile(
    r"/(?P<api>api/)?(?:(?P<kind>datasets|spaces|models)/)?(?P<name>[^/]+/[^/]+)"
    r"/(?P<verb>tree|resolve)/(?P<revision>[^/]+)(?:/(?P<path>.*))?"
)


@dataclass
class Repository:
    """What a name stands for."""

    files: Files = field(default_factory=dict)
    """Of `main`, by their paths."""
    revisions: dict[str, Files] = field(default_factory=dict)
    """Of other branches and references."""
    is_private: bool = False
    is_gated: bool = False
    lets_in: bool = False
    """Whether the owner of the token was given access."""
    moved_to: str = ""
    """The kind and the name that it has now."""

    def of(self, revision: str) -> Files | None:
        """The files of a revision; none where there is no such revision."""
        if revision == "~parquet":
            revision = "refs/convert/parquet"
        return self.files if revision == "main" else self.revisions.get(revision)


@dataclass
class Hub:
    """What is there, and what has been asked."""

    repositories: dict[str, Repository]
    """By kind and name: `datasets/me/lake`."""
    page_max: int = 1000
    large_from: float = 1000
    """Files of so many bytes come from the second host."""
    signed: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    """Each redirect has a signature of its own, so that none ends before it was used."""
    ends_after: int = 0
    """A signature counts for so many answers of the second host, unless it is 0."""
    refuses: int = 0
    """So many requests more are too many."""
    wait_s: int = 0
    """What it says then."""
    front: Server = field(init=False)
    back: Server = field(init=False)

    def asked(self) -> list[str]:
        """What the Hub was asked since the last call: methods and paths, in order."""
        asked = [f"{ask.method} {ask.path}" for ask, _ in self.front.seen]
        self.front.seen.clear()
        return asked

    def respond(self, ask: Ask) -> Answer:
        """As the Hub itself."""
        if self.refuses:
            self.refuses -= 1
            return Answer(429, headers={"RateLimit": f'"api";r=0;t={self.wait_s}'})
        url = urlsplit(ask.path)
        place = _PLACE.fullmatch(url.path)
        if not place:
            return Answer(404)
        name = f"{place['kind'] or 'models'}/{place['name']}"
        found = self.repositories.get(name, Repository(is_private=True))
        if found.moved_to:
            return Answer(307, headers={"Location": ask.path.replace(name, found.moved_to)})
        if refused := _refusal(name, found, ask, exists=name in self.repositories):
            return refused
        files = found.of(unquote(place["revision"]))
        if files is None:
            return _failure(404, "RevisionNotFound", "Invalid rev id")
        path = unquote(place["path"] or "")
        if place["verb"] == "tree":
            return self._tree(files, path, ask.path)
        return self._file(files, path, ask)

    def _tree(self, files: Files, directory: str, target: str) -> Answer:
        asked = {name: values[0] for name, values in parse_qs(urlsplit(target).query).items()}
        below = f"{directory}/" if directory else ""
        recursive = asked.get("recursive", "false")
        rows = [self._row(files, *it) for it in _names(files, below, recursive == "true")]
        if below and not rows:
            return _failure(404, "EntryNotFound", f"{directory} does not exist")
        begin = int(asked.get("cursor", 0))
        count = min(int(asked.get("limit", self.page_max)), self.page_max)
        headers = {}
        if begin + count < len(rows):
            query = f"recursive={recursive}&limit={count}&cursor={begin + count}"
            where = f"{target.split('?')[0]}?{query}"
            headers["Link"] = f'<https://huggingface.co{where}>; rel="next"'
        page = rows[begin : begin + count]
        return Answer(200, json.dumps(page, separators=(",", ":")).encode(), headers)

    def _row(self, files: Files, kind: str, path: str) -> dict[str, object]:
        if kind == "directory":
            return {"type": kind, "oid": "0", "size": 0, "path": path}
        body = files[path]
        row: dict[str, object] = {"type": kind, "oid": _tag(body), "size": len(body), "path": path}
        if len(body) >= self.large_from:
            sha = hashlib.sha256(body).hexdigest()
            row |= {"lfs": {"oid": sha, "size": len(body), "pointerSize": 130}}
        return row

    def _file(self, files: Files, path: str, ask: Ask) -> Answer:
        body = files.get(path)
        if body is None:
            return _failure(404, "EntryNotFound", "Entry not found")
        if len(body) < self.large_from:
            return good(ask, body, f'"{_tag(body)}"')
        tag = hashlib.sha256(body).hexdigest()
        where = f"{self.back.url}/blobs/{tag}?Signature={next(self.signed)}"
        told = {"X-Linked-Size": str(len(body)), "X-Linked-ETag": f'"{tag}"'}
        return Answer(302, headers={"Location": where, **told})

    def send(self, ask: Ask) -> Answer:
        """As the second host, which knows contents, and nothing of their names."""
        place = re.fullmatch(r"/blobs/(\w+)\?Signature=(\d+)", ask.path)
        uses = sum(other.path == ask.path for other, status in self.back.seen if status != 403)
        if not place or (self.ends_after and uses >= self.ends_after):
            return Answer(403, b"<Error><Code>AccessDenied</Code></Error>")
        bodies = {
            hashlib.sha256(body).hexdigest(): body
            for repository in self.repositories.values()
            for files in (repository.files, *repository.revisions.values())
            for body in files.values()
        }
        return good(ask, bodies[place[1]], f'"of-{place[1]}"')


def _tag(body: bytes) -> str:
    """As Git names a file."""
    return hashlib.sha1(b"blob %d\0" % len(body) + body, usedforsecurity=False).hexdigest()


def _names(files: Files, below: str, recursive: bool) -> Iterator[tuple[str, str]]:
    """Directories and files, each once."""
    directories = set()
    for path in sorted(files):
        if not path.startswith(below):
            continue
        names = path.removeprefix(below).split("/")
        for depth in range(1, len(names) if recursive else min(len(names), 2)):
            directory = below + "/".join(names[:depth])
            if directory not in directories:
                directories.add(directory)
                yield "directory", directory
        if recursive or len(names) == 1:
            yield "file", path


def _failure(status: int, code: str, message: str) -> Answer:
    headers = {"X-Error-Code": code, "X-Error-Message": message}
    return Answer(status, json.dumps({"error": message}).encode(), headers)


def _refusal(name: str, found: Repository, ask: Ask, *, exists: bool) -> Answer | None:
    if ask.authorization not in (None, f"Bearer {READER}"):
        return _failure(401, "", "Invalid credentials in Authorization header")
    if found.is_private and (not ask.authorization or not exists):
        return _failure(404 if ask.authorization else 401, "RepoNotFound", "Repository not found")
    if found.is_gated and not (ask.authorization and found.lets_in):
        told = f"Access to {name} is restricted"
        return _failure(403 if ask.authorization else 401, "GatedRepo", told)
    return None


@contextmanager
def hub_of(**repositories: Repository) -> Iterator[Hub]:
    """A Hub with datasets of `me` while a test runs."""
    hub = Hub({f"datasets/me/{name}": found for name, found in repositories.items()})
    with serving(hub.respond) as hub.front, serving(hub.send) as hub.back:
        yield hub


@contextmanager
def hub_behind_a_proxy(place: Path, **repositories: Repository) -> Iterator[Hub]:
    """The same at huggingface.co, the one address that httpfs knows; its authority is `ca.pem`.

    All files come from the Hub itself, since httpfs takes a proxy for every host.
    """
    make_certificate(place, ["huggingface.co"])
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(place / "host.pem", place / "host.key")
    hub = Hub({f"datasets/me/{name}": found for name, found in repositories.items()})
    hub.large_from = float("inf")
    with serving(hub.respond, tls) as hub.front:
        yield hub
