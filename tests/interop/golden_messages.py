"""The golden messages and their schemas, made by Kafka's own classes: tests/golden/wire and messages.jsonl.gz.

    python -m tests.interop.golden_messages     writes them anew; nothing changes as long as RELEASES does not

A version that has come with a release of Kafka is in them as soon as that release stands first in RELEASES.
"""

from __future__ import annotations

import gzip
import json
import re
import zipfile
from pathlib import Path
from typing import Any

from tests import goldens
from tests.interop import kafka

# The newest that has a version of a message is who writes it.
RELEASES = {
    "4.4": kafka.Release("kafka-clients", "4.4.0"),
    "4.0": kafka.Release("kafka-clients", "4.0.1"),
    "3.9": kafka.Release("kafka-clients", "3.9.2"),
}
PROGRAM = goldens.GOLDEN / "wire/Messages.java"


def messages(kind: str) -> list[str]:
    """Return the lines of wire/requests or wire/responses."""
    found: dict[tuple[int, int, str], str] = {}
    for name, release in RELEASES.items():
        ran = kafka.run(release, "-Dfile.encoding=UTF-8", str(PROGRAM), name, kind, cwd=PROGRAM.parent)
        assert ran.returncode == 0, ran.stderr
        for line in ran.stdout.splitlines():
            of = json.loads(line)
            found.setdefault((of["apiKey"], of["version"], of["variant"]), line)
    return [found[key] for key in sorted(found, key=lambda key: key[:2])]


def schemas(known: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines of messages.jsonl.gz: what is known, and what the newest of RELEASES has changed or added."""
    name, release = next(iter(RELEASES.items()))
    by_name = {each["name"]: each for each in known}
    with zipfile.ZipFile(_jar_of(release)) as jar:
        for path in jar.namelist():
            if path.startswith("common/message/") and path.endswith(".json"):
                text = re.sub(r"(?m)^\s*//.*$", "", jar.read(path).decode())
                schema = json.loads(text)
                by_name[schema["name"]] = _with_release(by_name.get(schema["name"]), schema, name)
    return [by_name[each] for each in sorted(by_name)]


def _jar_of(release: kafka.Release) -> Path:
    paths = map(Path, kafka.class_path(release).split(":"))
    return next(path for path in paths if path.name == f"{release.artifact}-{release.version}.jar")


def _with_release(known: dict[str, Any] | None, schema: dict[str, Any], release: str) -> dict[str, Any]:
    """Return a schema since version 0 with what a release says of it; versions and fields that have gone stay."""
    if known is None:
        known = {key: schema[key] for key in ("apiKey", "type", "name", "listeners") if key in schema}
        known |= {"validVersions": schema["validVersions"], "flexibleVersions": schema["flexibleVersions"]}
        known |= {"module": "kafka-clients", "releases": {}, "fields": []}
    releases = known["releases"] | {release: schema["validVersions"]}
    if schema["validVersions"] == "none":
        return known | {"releases": releases}
    ends = [int(end) for each in (known, schema) for end in re.findall(r"\d+", each["validVersions"])]
    versions = str(min(ends)) if min(ends) == max(ends) else f"{min(ends)}-{max(ends)}"
    fields = _merged(known["fields"], schema["fields"])
    named = json.dumps(fields).replace(json.dumps(known["fields"]), "")
    made = known | {"validVersions": versions, "releases": releases}
    structs = {each["name"]: each for each in known.get("commonStructs", ())}
    for struct in schema.get("commonStructs", ()):
        before = structs.get(struct["name"], {"name": struct["name"], "fields": []})
        if before["fields"] or f'{struct["name"]}"' in named:
            structs[struct["name"]] = before | {"fields": _merged(before["fields"], struct["fields"])}
    return made | {"fields": fields} | ({"commonStructs": [*structs.values()]} if structs else {})


def _merged(known: list[dict[str, Any]], fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return known fields, and each new one behind the one that it follows in the newer schema."""
    found = {each["name"]: each for each in known}
    names = [each["name"] for each in known]
    before = -1
    for field in fields:
        name = field["name"]
        if name not in found:
            names.insert(before + 1, name)
            found[name] = {key: value for key, value in field.items() if key not in ("about", "fields")}
            found[name] |= {"fields": []} if "fields" in field else {}
        if "fields" in found[name] and "fields" in field:
            found[name] = found[name] | {"fields": _merged(found[name]["fields"], field["fields"])}
        before = names.index(name)
    return [found[name] for name in names]


def main() -> None:
    written = {f"wire/{kind}": messages(kind) for kind in ("requests", "responses")}
    known = list(goldens.schema().values())
    written["messages"] = [json.dumps(each, separators=(",", ":"), ensure_ascii=False) for each in schemas(known)]
    for name, lines in written.items():
        text = "".join(f"{line}\n" for line in lines).encode()
        path = goldens.GOLDEN / f"{name}.jsonl.gz"
        if gzip.decompress(path.read_bytes()) != text:
            path.write_bytes(gzip.compress(text, 9, mtime=0))
            print(f"{path.name}: {len(lines)} lines")


if __name__ == "__main__":
    main()
