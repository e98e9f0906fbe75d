"""The commands of the README in clean Debian and Ubuntu systems: `make test-systems` (root; debootstrap).

For each system: install it with the packages that the README names into a folder, clone the current commit
there, and run the commands. Finished steps are recorded in ROOTS/SYSTEM.json and skipped by the next call,
which continues after an interruption or an error; another commit repeats everything but the installation
of the system. The summary has the commit, the versions and the time of each step; a call replaces the
entries of the systems that it runs.

The mirrors are those of this machine (/etc/apt, or DEBIAN_MIRROR and UBUNTU_MIRROR). pip is used as on
this machine: its configuration files, its variables, certificates and proxies are passed on, and local
folders that they name are mounted. Everything is mounted in a mount namespace of its own, which ends with
the command: an interrupted call leaves no mount behind.

    tests/systems/clean_systems.py [--systems NAME ...] [--roots FOLDER] [--dry-run]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SUMMARY = ROOT / "results" / "systems" / "summary.json"


@dataclass(frozen=True)
class Distribution:
    """Where the packages of a distribution are, and what debootstrap needs to know of it."""

    name: str
    mirror: str
    """The default."""
    components: str
    script: tuple[str, ...] = ()
    """Path of debootstrap's script, which older versions do not find by the name of a newer suite."""

    def find_mirror(self) -> str:
        """The mirror of this machine."""
        if given := os.environ.get(f"{self.name.upper()}_MIRROR"):
            return given
        pattern = rf"^(?:URIs:|deb(?: \[.*?\])?)\s+(\S+/{self.name})/?(?:\s|$)"
        for path in sorted(Path("/etc/apt").glob("sources.list*")):
            for file in [path] if path.is_file() else sorted(path.iterdir()):
                if found := re.search(pattern, file.read_text(encoding="utf-8"), flags=re.MULTILINE):
                    return found[1]
        return self.mirror


DEBIAN = Distribution("debian", "http://deb.debian.org/debian", "main")
UBUNTU = Distribution(
    "ubuntu",
    "http://archive.ubuntu.com/ubuntu",
    "main,universe",  # python3-venv is in universe
    ("/usr/share/debootstrap/scripts/gutsy",),
)
SYSTEMS = {
    "debian-12": (DEBIAN, "bookworm"),
    "ubuntu-24.04": (UBUNTU, "noble"),
    "debian-13": (DEBIAN, "trixie"),
    "debian-unstable": (DEBIAN, "sid"),
}
"""System -> distribution and suite: Python 3.11, 3.12, 3.13 and 3.14."""
COMMANDS = ("make install", "make sweep", "make test")
"""The README's commands; the installation is a command of its own, so that its time is known."""
PROJECT = "root/project"
"""The clone, below the folder of the system."""
OUTCOME = re.compile(r"^(?:=+ )?(\d+ (?:passed|failed|error)[^\n=]*?)(?: in [^\n]*)?(?: =+)?$", re.MULTILINE)
"""The last line of pytest."""
PROGRAMS = {"debootstrap": "debootstrap", "unshare": "util-linux", "setpriv": "util-linux", "git": "git"}
"""What this needs -> Debian's package."""
NAMESPACE = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
"""Mounts, also those of debootstrap, and processes end with the command."""
DEPENDENT = ("setpriv", "--pdeathsig", "KILL")
"""Starts a process that is killed when this one ends, however it ends."""
PASSED = re.compile(r"(?i:PIP_.*|.*_proxy)|SSL_CERT_FILE|REQUESTS_CA_BUNDLE|OPENBLAS_.*|TORCH")
"""Variables that the commands get."""
PIP_FILES = ("/etc/pip.conf", "/etc/xdg/pip/pip.conf", "/root/.pip/pip.conf", "/root/.config/pip/pip.conf")
LOCAL_PATH = re.compile(r"(?<![\w:/])(?:file://)?(/[\w./+-]+)")
ENTER = """\
root=$1; shift
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
while [ "$1" != -- ]; do
    mkdir -p "$root$1"
    mount --bind -o ro "$1" "$root$1"
    shift
done
shift
exec chroot "$root" "$@"
"""
VERSIONS = r"""
import importlib.metadata as m, json, platform, subprocess
done = subprocess.run(["g++", "-dumpfullversion"], capture_output=True, text=True)
names = ("torch", "numpy", "fairseq-fixed", "transformers")
print(json.dumps({
    "system": platform.freedesktop_os_release()["PRETTY_NAME"], "python": platform.python_version(),
    "g++": done.stdout.strip(), **{name: m.version(name) for name in names},
}))
"""


def main() -> int:
    """Run the commands in each system and write the summary; returns 1 if a command failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    names = ", ".join(SYSTEMS)
    parser.add_argument(
        "--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), metavar="NAME", help=f"of {names}"
    )
    parser.add_argument(
        "--roots", type=Path, default=ROOT / "data" / "systems", metavar="FOLDER",
        help="folder of the systems, 8 GB each; default: data/systems",
    )  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="print the steps and their state")
    options = parser.parse_args()
    commit, roots = _git("rev-parse", "HEAD"), options.roots.absolute()
    systems = [System(name, roots, commit) for name in options.systems]
    if options.dry_run:
        for system in systems:
            for step in ("debootstrap", "clone", *COMMANDS):
                print(f"{system.name}: {step}: {'finished' if system.finished(step) else 'to do'}")
        return 0
    _check()
    if _git("status", "--porcelain"):
        print(f"note: uncommitted changes are not tested, only commit {commit[:8]}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    passed = True
    for system in systems:
        passed = system.run(COMMANDS) and passed
        summarize(system)
    return 0 if passed else 1


class System:
    """A system in a folder, and the record of its finished steps."""

    def __init__(self, name: str, roots: Path, commit: str) -> None:
        self.name = name
        self.distribution, self.suite = SYSTEMS[name]
        self.folder, self.record_file = roots / name, roots / f"{name}.json"
        self.log = roots / f"{name}.log"
        self.commit = commit
        self.record: dict[str, Any] = {"steps": {}}
        if self.record_file.is_file():
            self.record = json.loads(self.record_file.read_text(encoding="utf-8"))
        if self.record.get("commit") != commit:
            kept = {name: step for name, step in self.record["steps"].items() if name == "debootstrap"}
            self.record = {"commit": commit, "steps": kept}

    def finished(self, step: str) -> bool:
        """Whether the step has been finished for this commit."""
        return self.record["steps"].get(step, {}).get("exit_code") == 0

    def run(self, commands: Sequence[str]) -> bool:
        """Run every step that is not finished; returns whether all are. An error ends the system's steps."""
        print(f"== {self.name} ({self.suite}): {self.folder}, all output: {self.log}", flush=True)
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        if not self._step("debootstrap", self._debootstrap) or not self._step("clone", self._clone):
            return False
        self._configure()
        for command in commands:
            if not self._step(
                command, lambda command=command: self._call(self._words(["sh", "-c", command]))
            ):
                return False
            if command.startswith("make"):
                self._note_versions()
        return True

    def _step(self, name: str, action: Any) -> bool:
        if self.finished(name):
            print(f"{self.name}: {name}: finished before", flush=True)
            return True
        print(f"{self.name}: {name} ...", flush=True)
        begin, size = time.monotonic(), self.log.stat().st_size if self.log.exists() else 0
        code = action()
        step = {"exit_code": code, "seconds": round(time.monotonic() - begin)}
        if outcome := _outcome(self.log, size):
            step["tests"] = outcome
        self.record["steps"][name] = step
        self._save()
        print(f"{self.name}: {name}: exit code {code}, {step['seconds']} s  {outcome or ''}", flush=True)
        return code == 0

    def _debootstrap(self) -> int:
        # A folder without the record of a finished installation may be half of a system.
        shutil.rmtree(self.folder, ignore_errors=True)
        packages = ",".join(["ca-certificates", *readme_packages()])
        words = ["debootstrap", "--variant=minbase", f"--include={packages}"]
        words += [f"--components={self.distribution.components}", self.suite, str(self.folder)]
        words += [self.distribution.find_mirror(), *self.distribution.script]
        return self._call([*NAMESPACE, *words])

    def _clone(self) -> int:
        target = self.folder / PROJECT
        shutil.rmtree(target, ignore_errors=True)
        # This commit, also if the branch has got further ones since the call began.
        script = (
            'git init -q "$1" && cd "$1" && git fetch -q --depth 1 "$2" "$3" && git checkout -q FETCH_HEAD'
        )
        return self._call(["sh", "-c", script, "clone", str(target), f"file://{ROOT}", self.commit])

    def _configure(self) -> None:
        """Copy the files that pip and the resolver of this machine use."""
        for path in ("/etc/resolv.conf", "/etc/hosts", *machine_files()):
            target = self.folder / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)

    def _note_versions(self) -> None:
        python = f"/{PROJECT}/.venv/bin/python"
        done = subprocess.run(self._words([python, "-c", VERSIONS]), capture_output=True, text=True)
        if done.returncode == 0:
            self.record["versions"] = json.loads(done.stdout)
            self._save()

    def _save(self) -> None:
        temporary = self.record_file.with_suffix(".tmp")
        temporary.write_text(json.dumps(self.record, indent=2) + "\n", encoding="utf-8")
        temporary.replace(self.record_file)

    def _words(self, words: list[str]) -> list[str]:
        """The command that executes `words` in the clone, in the system."""
        environment = {name: value for name, value in os.environ.items() if PASSED.fullmatch(name)}
        settings = [f"{name}={value}" for name, value in environment.items()]
        settings += ["HOME=/root", "LANG=C.UTF-8", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"]
        inside = ["env", "-i", f"--chdir=/{PROJECT}", *settings, *words]
        return [*NAMESPACE, "sh", "-euc", ENTER, "enter", str(self.folder), *machine_folders(), "--", *inside]

    def _call(self, words: list[str]) -> int:
        """Execute a command with its output in the log; it ends with this process."""
        with self.log.open("a", encoding="utf-8") as log:
            log.write(f"\n$ {shlex.join(words)}\n")
            log.flush()
            process = subprocess.Popen([*DEPENDENT, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            try:
                return process.wait()
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()


def readme_packages() -> list[str]:
    """The Debian packages that the README names."""
    found = re.search(r"`apt install ([^`]+)`", (ROOT / "README.md").read_text(encoding="utf-8"))
    return found[1].split() if found else []


def _named_paths() -> Iterator[Path]:
    """Local files and folders that pip's configuration and the passed variables name."""
    texts = [value for name, value in os.environ.items() if PASSED.fullmatch(name)]
    texts += [Path(path).read_text(encoding="utf-8") for path in PIP_FILES if Path(path).is_file()]
    for text in texts:
        for path in map(Path, LOCAL_PATH.findall(text)):
            if path.exists() and path != Path("/"):
                yield path


def machine_files() -> list[str]:
    """The files of pip's configuration, and those that they name."""
    files = {path for path in PIP_FILES if Path(path).is_file()}
    return sorted(files | {str(path) for path in _named_paths() if path.is_file()})


def machine_folders() -> list[str]:
    """The local folders that pip uses; the parent of an index (`simple`), whose files may be beside it."""
    folders = (path for path in _named_paths() if path.is_dir())
    return sorted({str(path.parent if path.name == "simple" else path) for path in folders})


def summarize(system: System) -> None:
    """Write the record of a system into the summary; the entries of the others stay."""
    content = json.loads(SUMMARY.read_text(encoding="utf-8")) if SUMMARY.is_file() else {}
    content[system.name] = {
        "commit": system.commit,
        "date": datetime.now(UTC).date().isoformat(),
        "versions": system.record.get("versions", {}),
        "steps": system.record["steps"],
    }
    SUMMARY.parent.mkdir(parents=True, exist_ok=True)
    SUMMARY.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    print(f"wrote {SUMMARY.relative_to(ROOT)}", flush=True)


def _outcome(log: Path, begin: int) -> str | None:
    """The last line of pytest in the part of the log after `begin`, if any."""
    with log.open("rb") as stream:
        stream.seek(begin)
        text = stream.read().decode("utf-8", errors="replace")
    found = OUTCOME.findall(text)
    return found[-1].strip() if found else None


def _check() -> None:
    if os.geteuid() != 0:
        sys.exit("error: debootstrap and mounts need root; start make test-systems as root")
    for program, package in PROGRAMS.items():
        if shutil.which(program) is None:
            sys.exit(f"error: no {program} on this machine; on Debian: apt install {package}")


def _git(*words: str) -> str:
    return subprocess.check_output(["git", "-C", str(ROOT), *words], text=True).strip()


if __name__ == "__main__":
    sys.exit(main())
