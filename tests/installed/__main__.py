"""The project as people have it: a wheel, installed outside the checkout, and every example of README and docs with it.

    make installed                     all of it
    make installed PARTS="core newest" some

    core     the wheel alone: what needs no extra works, what does says so
    newest   the newest of everything that pip gives, on the newest Python here: examples, with Spark's of all pages;
             those that speak to a broker with ours and with Kafka's
    oldest   the same with Python 3.11 and the lowest versions that pyproject.toml allows; and what is said of an
             older PySpark
    lakes    the page of pipelines with Iceberg, on the newest PySpark that it is there for
    compiled the wheel of `make wheel`, on this Python: the tests of what is compiled, and of all around it
    cluster  Spark's standalone master and two workers that have no minibroker, with what --package writes; Spark
             Connect
    applications  those of examples/, each with its own tests, on the newest Python here; Java with Maven, and Go

What must hold: nothing of the checkout can be imported, no environment is activated, PATH holds none, and no setting of
the tests' own sessions is there. Addresses of examples become those of brokers on free ports, large numbers small ones.
Not here: examples in the checkout, with every change (tests/test_docs.py).
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

from tests.differential.kafka import Kafka
from tests.interop.broker import VERSION as KAFKA_VERSION
from tests.interop.spark import LAKES_VERSION, lakes_class_path, pyspark_folder
from tests.interop.spark import VERSION as OLDEST_SPARK

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
CLIENTS = ("confluent-kafka", "aiokafka")  # of examples that show somebody else's
KEPT = ROOT / "build/installed"
OLDEST_PYTHON, NEWEST_PYTHONS = "3.11", ("3.14", "3.13", "3.12", "3.11")
PATH = "/usr/local/bin:/usr/bin:/bin"
SECONDS_MAX = 1800
COMPILED_TESTS = (
    *("log", "replication", "coordinator", "groups", "transactions", "cleaner", "broker", "server", "cluster"),
    *("embedded", "faults", "spark/files", "simulation", "cli/test_commands.py"),
)
COPIED = ("tests", "docs", "bench", "pyproject.toml", "*.md", "Makefile", "docker-compose.yml")
QUICK = "not interop and not slow and not fuzz"
LOWEST = re.compile(r"([A-Za-z0-9_.-]+)>=([^;,\s]+)")


class Failed(Exception):
    """Something does not do what it says."""


def environment(**more: str) -> dict[str, str]:
    """Return what somebody's shell has who has activated nothing."""
    kept = ("HOME", "LANG", "TMPDIR", "JAVA_HOME", "PIP_CONFIG_FILE", "PIP_INDEX_URL", "SSL_CERT_FILE")
    return {name: os.environ[name] for name in kept if name in os.environ} | {"PATH": PATH} | more


def run(*command: str | Path, cwd: Path, status: int = 0, **more: str) -> str:
    """Run a program; return what it printed, both ways."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words,
        cwd=cwd,
        env=environment(**more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS_MAX,
    )
    if done.returncode != status:
        raise Failed(f"{' '.join(words)}: status {done.returncode}, not {status}\n{done.stdout[-6000:]}")
    return done.stdout


# Environments


def build_wheel(name: str = "dist", **more: str) -> Path:
    """Return the wheel, which holds all that lies in the package."""
    folder = KEPT / name
    shutil.rmtree(folder, ignore_errors=True)
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps")
    subprocess.run([*pip, "--wheel-dir", folder, ROOT], check=True, env=os.environ | more)
    (wheel,) = folder.glob("*.whl")
    return wheel


def find_python(*versions: str) -> str:
    """Return the first Python of these that runs."""
    places = [*os.environ["PATH"].split(os.pathsep), *map(str, Path.home().glob(".pyenv/versions/*/bin"))]
    for version in versions:
        for place in places:
            program = os.path.join(place, f"python{version}")
            if os.access(program, os.X_OK) and not subprocess.run([program, "-c", ""], capture_output=True).returncode:
                return program
    return sys.executable


def made(name: str, python: str, *what: str | Path) -> Path:
    """Make an environment anew; return its folder of programs."""
    folder = KEPT / name
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([python, "-m", "venv", folder], check=True)
    pip = (folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    subprocess.run([*pip, *what], check=True)
    versions = subprocess.run([folder / "bin/pip", "freeze"], capture_output=True, text=True).stdout.split()
    print(f"  {name}: {Path(python).name}, {', '.join(word for word in versions if '==' in word)}", flush=True)
    return folder / "bin"


def lowest(*extras: str) -> list[str]:
    """Return what the project and extras need, in the lowest versions that are allowed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *(each for extra in extras for each in project["optional-dependencies"][extra])]
    return ["==".join(match.groups()) for each in needed if (match := LOWEST.match(each))]


# Parts


def check_core(wheel: Path, work: Path) -> None:
    programs = made("core", sys.executable, wheel)
    python, minibroker = programs / "python", programs / "minibroker"
    where = run(python, "-c", "import minibroker; print(minibroker.__file__)", cwd=work)
    if not where.startswith(str(KEPT)):
        raise Failed(f"{where} is not what was installed")
    run(minibroker, "--help", cwd=work)
    said = run(minibroker, "spark", "export", "--path", "data", "-t", "orders", "lake", cwd=work, status=2)
    if "pip install 'minibroker[spark]'" not in said or "Traceback" in said:
        raise Failed(f"without the extra Spark's jobs say: {said}")


def check_examples(programs: Path, work: Path) -> None:
    """Run what tests/test_docs.py runs, where there are pages and no package, and pytest's own examples with pytest."""
    for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docker-compose.yml"):
        shutil.copy2(ROOT / name, work)
    shutil.copytree(ROOT / "docs", work / "docs")
    (work / "tests").mkdir()
    for name in ("test_docs.py", "README.md"):
        shutil.copy2(ROOT / "tests" / name, work / "tests")
    shutil.copytree(ROOT / "tests/golden", work / "tests/golden")
    python = programs / "python"
    said = run(python, "-m", "pytest", "-q", "tests/test_docs.py", "-k", "examples_run or commands", cwd=work)
    print(f"  {said.splitlines()[-1]}", flush=True)
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    (work / "test_readme.py").write_text("\n\n".join(block for block in blocks if "def test_" in block))
    said = run(python, "-m", "pytest", "-q", "test_readme.py", cwd=work)
    print(f"  {said.splitlines()[-1]}", flush=True)


def check_spark(programs: Path, work: Path, *modes: str, with_kafka: bool = False, **more: str) -> None:
    """Run Spark's examples with our broker; with_kafka: what speaks to a broker with Kafka's, too."""

    def check(mode: str, *address: str) -> None:
        folder = work / f"{mode}{len(address)}"
        folder.mkdir()
        command = (programs / "python", HERE / "spark_examples.py", mode, ROOT, programs / "minibroker", *address)
        said = run(*command, cwd=folder, MINIBROKER_SALT="a secret, as the page of slice wants one", **more)
        told = [f"  {line}" for line in said.splitlines() if line.startswith(("ran ", "left out"))]
        print("\n".join([f"  {mode}, with {'Kafka' if address else 'ours'}:", *told]), flush=True)

    for mode in modes or ("plain", "brokers", "pipelines", "jobs"):
        check(mode)
    for mode in (modes or ("plain", "brokers", "pipelines")) if with_kafka else ():
        with Kafka(KAFKA_VERSION, work / f"kafka-{mode}") as kafka:
            check(mode, kafka.address)


def check_newest(wheel: Path, work: Path) -> None:
    programs = made("newest", find_python(*NEWEST_PYTHONS), f"{wheel}[spark,tls]", "pytest", *CLIENTS)
    check_examples(programs, work)
    check_spark(programs, work, with_kafka=True)


def check_oldest(wheel: Path, work: Path) -> None:
    bounds = [each for each in lowest("spark", "tls") if not each.startswith("pyspark==")]
    bounds += [each for each in lowest("test") if each.startswith(CLIENTS)]
    if f"pyspark=={OLDEST_SPARK}" not in {f"{each}.0" for each in lowest("spark")}:
        raise Failed(f"pyspark {OLDEST_SPARK} is what tests use, and pyproject.toml allows older ones")
    programs = made("oldest", find_python(OLDEST_PYTHON), wheel, "pytest==8.0", *bounds)
    packages = next((programs.parent / "lib").glob("python*/site-packages"))
    (packages / "pyspark.pth").write_text(f"{pyspark_folder()}\n")  # 470 MB that are there already
    check_examples(programs, work)
    check_spark(programs, work)


def check_lakes(wheel: Path, work: Path) -> None:
    needed = [each for each in lowest("spark") if not each.startswith("pyspark==")]
    programs = made("lakes", find_python(OLDEST_PYTHON), wheel, "pytest", *needed)
    packages = next((programs.parent / "lib").glob("python*/site-packages"))
    (packages / "pyspark.pth").write_text(f"{pyspark_folder(LAKES_VERSION)}\n")
    check_spark(programs, work, "pipelines", MINIBROKER_TEST_JARS=lakes_class_path())


def check_compiled(_pure: Path, work: Path) -> None:
    """Run tests with the compiled wheel; those that break what is compiled are left out, and say so."""
    with zipfile.ZipFile(build_wheel("compiled", MINIBROKER_COMPILED="1")) as wheel:
        wheel.extractall(work)
    kept = subprocess.run(["git", "ls-files", "-z", *COPIED], cwd=ROOT, check=True, capture_output=True, text=True)
    for name in kept.stdout.split("\0")[:-1]:
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, work / name)
    own = {"PYTHONPATH": str(work)}
    said = run(sys.executable, "-m", "minibroker", "--version", cwd=work, **own)
    if "(compiled)" not in said:
        raise Failed(f"the compiled wheel says: {said}")
    folders = [f"tests/{name}" for name in COMPILED_TESTS]
    pytest = (sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "-m", QUICK, *folders)
    print(f"  {said.strip()}: {run(*pytest, cwd=work, **own).splitlines()[-1]}", flush=True)


def check_cluster(wheel: Path, work: Path) -> None:
    programs = KEPT / "newest/bin"
    if not programs.exists():
        programs = made("newest", find_python(*NEWEST_PYTHONS), f"{wheel}[spark,tls]", "pytest", *CLIENTS)
    pip = (programs / "python", "-m", "pip", "install", "--quiet")
    run(*pip, "--no-deps", "--force-reinstall", wheel, cwd=work)  # what is there may be of another day
    run(*pip, "pyspark[connect]", cwd=work)
    python = str((programs / "python").resolve())
    needed = ("numpy", "pyarrow", "google-crc32c", "lz4", "python-snappy", "zstandard")
    machine = made("machine", python, *needed)
    bare = made("bare", python, "numpy", "pyarrow")
    said = run(programs / "python", HERE / "spark_cluster.py", programs, machine, bare, cwd=work)
    print("\n".join(f"  {line}" for line in said.splitlines() if line.startswith("ran ")), flush=True)


def check_applications(wheel: Path, work: Path) -> None:
    examples = work / "examples"
    shutil.copytree(ROOT / "examples", examples, ignore=shutil.ignore_patterns("target", "__pycache__", ".*"))
    requirements = sorted(examples.glob("*/requirements.txt"))
    needed = [word for each in requirements for word in ("-r", str(each))]
    programs = made("applications", find_python(*NEWEST_PYTHONS), wheel, *needed)
    suites = [(each.parent, (), (programs / "python", "-m", "pytest", "-q")) for each in requirements]
    suites += [(each.parent, ("java", "mvn"), ("mvn", "-B", "test")) for each in sorted(examples.glob("*/pom.xml"))]
    suites += [
        (each.parent, ("go",), ("go", "test", "-count=1", "./...")) for each in sorted(examples.glob("*/go.mod"))
    ]
    settings = {name: value for name, value in os.environ.items() if name.startswith(("GO", "MAVEN_"))}
    for folder, tools, command in suites:
        places = [shutil.which(tool) for tool in tools]
        if None in places:
            print(f"  {folder.name}: left out, {tools[places.index(None)]} is not on this machine", flush=True)
            continue
        path = os.pathsep.join([str(programs), *(os.path.dirname(place) for place in places if place), PATH])
        began = time.monotonic()
        # env looks for the program on this path, and not on ours.
        said = run("/usr/bin/env", *command, cwd=folder, **(settings | {"PATH": path}))
        results = re.findall(r"^(?:\d+ passed.*|ok\s.*|.*Tests run: .*)$", said, re.MULTILINE)
        print(f"  {folder.name}: {results[-1].strip()}, {time.monotonic() - began:.1f} s", flush=True)


PARTS: dict[str, Callable[[Path, Path], None]] = {
    "core": check_core,
    "newest": check_newest,
    "oldest": check_oldest,
    "lakes": check_lakes,
    "compiled": check_compiled,
    "cluster": check_cluster,
    "applications": check_applications,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.installed", description="Try the project as people have it.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all without any")
    parts = parser.parse_args().parts or [*PARTS]
    if unknown := [part for part in parts if part not in PARTS]:
        parser.error(f"there is no part {unknown[0]}, only {', '.join(PARTS)}")
    KEPT.mkdir(parents=True, exist_ok=True)
    wheel, failed = build_wheel(), 0
    for part in parts:
        began = time.monotonic()
        print(f"{part}:", flush=True)
        with tempfile.TemporaryDirectory(prefix="minibroker-installed-") as work:
            try:
                PARTS[part](wheel, Path(work))
            except Failed as error:
                failed += 1
                print(f"  FAILED: {error}", flush=True)
        print(f"  {time.monotonic() - began:.0f} s", flush=True)
    print(f"{len(parts) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
