"""Fetches and builds the foreign clients, once, into .build/ beside this file, and says how each is run.

What must hold: a toolchain or a package that cannot be had raises Missing, with a line for the skip; our own source
that does not compile raises subprocess.CalledProcessError. Fetching and compiling are two commands for that reason.
Each folder is made under a lock and stamped at its end with what it was made from, so two test workers do not build
the same thing and a changed source or version builds it again.

Not here: addresses of registries; pip, Maven, Go, npm and apt use what the machine has set.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.clients.matrix import CLIENTS, Client

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
BUILT = HERE / ".build"
BUILD_SECONDS_MAX = 300

CODECS = ("lz4==4.4.5", "python-snappy==0.7.3", "zstandard==0.25.0", "xxhash==3.5.0", "six==1.17.0")
REQUIREMENTS = {
    "aiokafka": ("async-timeout==5.0.1", "typing_extensions>=4.10", "packaging>=24"),
    "kafka-python": CODECS,
}
GENERATIONS = {  # by version: which source speaks its API
    "4.4.0": "3.9",
    "3.9.2": "3.9",
    "2.8.2": "2.8",
    "1.1.1": "1.1",
    "0.10.2.2": "0.10.2",
    "0.9.0.1": "0.9",
    "0.8.2.2": "0.8.2",
}
# By generation: what it has in common with others, which compiles against each of them.
SHARED = {
    "0.8.2": (),
    "0.9": ("consumer",),
    "0.10.2": ("consumer", "times"),
    "1.1": ("consumer", "times", "admin"),
    "2.8": ("consumer", "times", "admin"),
    "3.9": ("consumer", "times", "admin"),
}
CALLS = {"0.9": "0.9", "0.10.2": "0.9", "1.1": "0.9", "2.8": "2.8", "3.9": "2.8"}  # for group members, by generation
# What each Java program is made from.
JAVA_SOURCES = {
    "Script": lambda client: (
        "common",
        *SHARED[GENERATIONS[client.version]],
        f"generation-{GENERATIONS[client.version]}",
    ),
    "Members": lambda client: ("groups", f"groups-{CALLS[GENERATIONS[client.version]]}"),
    "Transactions": lambda client: (
        "transactions",
        "transactions-0.11" if client.version.startswith("0.11") else "transactions-2.8",
    ),
    "Security": lambda client: (
        "security",
        "security-0.10" if client.version.startswith(("0.", "1.")) else "security-2.0",
    ),
    "Tool": lambda client: ("tool",),
}
# A script lives a few seconds: what makes a JVM start faster counts, what makes it run faster does not.
JAVA = ("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")


class Missing(Exception):
    """A toolchain or a package is not to be had on this machine."""


class Command(NamedTuple):
    """How a client's script is run; bootstrap, prefix and so on follow."""

    arguments: list[str]
    environment: dict[str, str]
    folder: Path = HERE


def command_of(client: Client) -> Command:
    """Build the client if that has not been done yet."""
    makers: dict[str, Callable[[Client], Command]] = {"python": python, "kcat": kcat, "java": java, "go": go}
    return (makers | {"node": node})[client.toolchain](client)


def members_of(client: Client) -> Command:
    """Build the client's program of group members, or for Kafka's tool that of the tool; the rest as for command_of."""
    if client.toolchain == "python":
        return python(client, "group_member.py")
    if client.toolchain == "java":
        return java(client, "Members")
    if client.toolchain == "tool":
        return tool(client)
    return go(client, "member") if client.toolchain == "go" else node(client, "member.js")


def transactions_of(client: Client) -> Command:
    """Build the client's program of transactions; the rest as for command_of."""
    if client.toolchain == "python":
        return python(client, "transactions.py")
    if client.toolchain == "java":
        return java(client, "Transactions")
    return go(client, "transactions") if client.toolchain == "go" else node(client, "transactions.js")


def security_of(client: Client) -> Command:
    """Build the client's program of logins; the rest as for command_of."""
    if client.toolchain == "python":
        command = python(client, "security.py")
        path = f"{command.environment['PYTHONPATH']}{os.pathsep}{ROOT}"  # behind the client: it has its settings of us
        return command._replace(environment={"PYTHONPATH": path})
    if client.toolchain == "java":
        return java(client, "Security")
    return go(client, "security") if client.toolchain == "go" else node(client, "security.js")


def python(client: Client, program: str = "script.py") -> Command:
    requirements = (f"{client.name}=={client.version}", *REQUIREMENTS.get(client.name, ()), *CODECS)
    folder = BUILT / f"{client.name}-{client.version}"
    with unless_made(folder, sys.version, *requirements) as making:
        if making:
            # Wheels only: nothing is compiled, so what fails could not be had.
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            fetch([*pip, "--only-binary=:all:", "--target", str(folder), *requirements])
    adapter = client.name.removesuffix("-kafka").replace("-", "_")
    return Command([sys.executable, str(HERE / "python" / program), adapter], {"PYTHONPATH": str(folder)})


def kcat(client: Client) -> Command:
    arguments = [sys.executable, str(HERE / "python/script.py"), "kcat"]
    if program := shutil.which("kcat") or shutil.which("kafkacat"):
        return Command(arguments, {"KCAT": program})
    folder = BUILT / "kcat"
    needed("apt-get", "dpkg-deb")
    with unless_made(folder) as making:
        if making:
            # Unpacked, not installed: that needs no rights, and leaves the machine as it is.
            fetch(["apt-get", "download", "kcat", "librdkafka1", "libyajl2"], folder)
            for package in folder.glob("*.deb"):
                subprocess.run(["dpkg-deb", "-x", package, folder], check=True, timeout=BUILD_SECONDS_MAX)
    libraries = {str(path.parent) for path in folder.glob("usr/lib/**/*.so*")}
    environment = {"KCAT": str(folder / "usr/bin/kcat"), "LD_LIBRARY_PATH": ":".join(sorted(libraries))}
    return Command(arguments, environment)


def java(client: Client, program: str = "Script") -> Command:
    # The consumer of 0.8 is part of the broker's package.
    artifact = "kafka_2.11" if client.version.startswith("0.8") else "kafka-clients"
    artifact = "kafka-tools" if program == "Tool" else artifact
    needed("java", "javac", "mvn")
    jars, classes = BUILT / f"{artifact}-{client.version}-jars", BUILT / f"java-{client.version}-{program.lower()}"
    pom = HERE / "java/pom.xml"
    with unless_made(jars, pom.read_text(encoding="utf-8")) as making:
        if making:
            named = [f"-Dkafka.version={client.version}", f"-Dkafka.artifact={artifact}", f"-DoutputDirectory={jars}"]
            fetch(["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", *named])
    folders = [HERE / "java" / name for name in JAVA_SOURCES[program](client)]
    sources = sorted(path for folder in folders for path in folder.glob("*.java"))
    with unless_made(classes, *(path.read_text(encoding="utf-8") for path in sources)) as making:
        if making:
            build(["javac", "-nowarn", "-cp", f"{jars}/*", "-d", str(classes), *map(str, sources)])
    return Command([*JAVA, "-cp", f"{classes}:{jars}/*", program], {})


def tool(client: Client) -> Command:
    """Return the command of Kafka's kafka-consumer-groups, in an environment with confluent-kafka for the members."""
    members = next(one for one in CLIENTS if one.name == "confluent-kafka")
    return java(client, "Tool")._replace(environment=python(members).environment)


def go(client: Client, program: str = "script") -> Command:
    needed("go")
    folder, source = BUILT / "go", HERE / "go"
    parts = [path.read_text(encoding="utf-8") for path in sorted(source.rglob("*")) if path.is_file()]
    with unless_made(folder, *parts) as making:
        if making:
            fetch(["go", "mod", "download"], source)
            build(["go", "build", "-o", str(folder / "script"), "."], source)
            build(["go", "build", "-o", f"{folder}/", "./member", "./transactions", "./security"], source)
    return Command([str(folder / program), client.name], {})


def node(client: Client, program: str = "script.js") -> Command:
    needed("node", "npm")
    folder = BUILT / "node"
    package = (HERE / "node/package.json").read_text(encoding="utf-8")
    with unless_made(folder, package) as making:
        if making:
            (folder / "package.json").write_text(package, encoding="utf-8")
            fetch(["npm", "install", "--no-package-lock", "--no-audit", "--no-fund"], folder)
    return Command(["node", str(HERE / "node" / program)], {}, folder)


def needed(*programs: str) -> None:
    for program in programs:
        if not shutil.which(program):
            raise Missing(f"{program} is not on this machine")


def fetch(command: list[str], folder: Path = HERE) -> None:
    """Run what only brings packages; its failure means that they are not to be had."""
    try:
        build(command, folder)
    except subprocess.TimeoutExpired:
        raise Missing(f"{Path(command[0]).name}: no end in {BUILD_SECONDS_MAX} s") from None
    except subprocess.CalledProcessError as error:
        lines = re.sub(r"\x1b\[[\d;]*m", "", error.output).splitlines()
        said = [line.strip() for line in lines if "err" in line.lower()]
        line = said[0] if said else f"exit status {error.returncode}"
        raise Missing(f"{' '.join(Path(word).name for word in command[:4])}: {line[:300]}") from None


def build(command: list[str], folder: Path = HERE) -> None:
    done = subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=BUILD_SECONDS_MAX
    )
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout)


@contextmanager
def unless_made(folder: Path, *made_of: str) -> Iterator[bool]:
    """Yield whether the folder, now empty, is to be made; it is stamped if the block ends well."""
    stamp, wanted = folder / ".made_of", hashlib.sha256("\0".join(made_of).encode()).hexdigest()
    BUILT.mkdir(exist_ok=True)
    with Path(f"{folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.is_file() and stamp.read_text() == wanted:
            yield False
            return
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        yield True
        stamp.write_text(wanted)


def run(
    command: Command, *arguments: str, seconds_max: float, given: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a client's script, with something on its input perhaps; the caller judges its exit status."""
    environment = os.environ | command.environment
    whole = [*command.arguments, *arguments]
    return subprocess.run(
        whole,
        cwd=command.folder,
        env=environment,
        input=given,
        capture_output=True,
        text=True,
        timeout=seconds_max,
    )
