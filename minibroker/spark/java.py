"""Java, which Spark runs on: where one is that is new enough, or what to do about it.

What must hold: nothing of Spark is started before it is known that it can; a machine without Java gets one message with
the command that helps, and no stack of calls.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

VERSION_MIN = 17
USUAL_PLACES = (
    "/usr/lib/jvm/*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*",
    "/usr/local/opt/openjdk*",
    "/opt/java/*",
    "/opt/jdk*",
)
COMMANDS = {
    "apt-get": "sudo apt-get install openjdk-17-jre-headless",
    "dnf": "sudo dnf install java-17-openjdk-headless",
    "apk": "sudo apk add openjdk17-jre-headless",
    "pacman": "sudo pacman -S jre17-openjdk-headless",
    "zypper": "sudo zypper install java-17-openjdk-headless",
    "brew": "brew install openjdk@17",
    "winget": "winget install EclipseAdoptium.Temurin.17.JRE",
}


class JavaMissing(Exception):
    """There is no Java that Spark could run on; the text says what helps."""


def use_java() -> str:
    """Return the home of a Java that is new enough, and let Spark find it; raise JavaMissing if there is none."""
    tried: list[str] = []
    for home in _homes():
        version = version_of(home)
        if version is not None and version >= VERSION_MIN:
            os.environ["JAVA_HOME"] = home
            return home
        tried.append(f"{home} is {version or 'none that runs'}")
    found = f"found only: {', '.join(tried[:3])}" if tried else "none was found in JAVA_HOME, PATH or the usual places"
    raise JavaMissing(f"Spark needs Java {VERSION_MIN} or newer; {found}. To install one: {advice()}")


def _homes() -> dict[str, None]:
    """Return where Java may be, the likeliest first."""
    homes: dict[str, None] = {}
    if told := os.environ.get("JAVA_HOME"):
        homes[told] = None
    if program := shutil.which("java"):
        homes[str(Path(program).resolve().parent.parent)] = None
    for place in USUAL_PLACES:
        for home in sorted(Path("/").glob(place.lstrip("/")), reverse=True):
            homes[str(home.resolve())] = None
    return homes


def version_of(home: str) -> int | None:
    """Return 17 for Java 17, 8 for 1.8; None if it does not run."""
    program = Path(home, "bin", "java.exe" if sys.platform == "win32" else "java")
    try:
        said = subprocess.run([str(program), "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    return int(match[1]) if match else None


def advice() -> str:
    """Return the command that installs Java here."""
    return next(
        (command for tool, command in COMMANDS.items() if shutil.which(tool)),
        f"a JRE {VERSION_MIN} for this machine is at https://adoptium.net",
    )
