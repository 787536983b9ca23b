"""The page as a broker serves it: its files, what guards them, who may steer by it; and what the page is made of."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
from argparse import ArgumentParser
from hashlib import sha256
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import pytest

from minibroker import Cluster
from minibroker.broker import web_page
from minibroker.broker.broker import Node
from minibroker.broker.http_verbs import answer, find_refusal
from minibroker.broker.verb import fit
from minibroker.broker.view_source import NodesSource
from minibroker.cli.cluster import add_arguments, arguments_of
from minibroker.cluster.verbs import VERBS
from minibroker.server.http import HttpRequest, PreparedAnswer
from minibroker.view import page_files
from minibroker.view.feed import Feed
from minibroker.view.page_files import FILES, FIRST, SHELL
from tests.server.running import connected, running

pytestmark = pytest.mark.outside
FOLDER = Path(page_files.__file__).with_name("page")
VENDOR = FOLDER.with_name("vendor")
BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8", "Accept-Encoding": "gzip, deflate, br"}
JS_COLUMNS_MAX = 140
FIRST_BYTES_MAX, ALL_BYTES_MAX = 35 * 1024, 60 * 1024  # by gzip


async def get(node: Node, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    async with connected(node) as browser:
        browser.send(f"{method} {path} HTTP/1.1\r\nHost: localhost:9092\r\n{lines}\r\n".encode())
        head, _, body = (await browser.reader.read()).partition(b"\r\n\r\n")
    first, *rest = head.decode().split("\r\n")
    return int(first.split()[1]), dict(line.split(": ", 1) for line in rest), body


async def test_a_browser_gets_the_page_and_curl_the_paths() -> None:
    async with running() as node:
        status, headers, body = await get(node, "/", **BROWSER)
        assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert f'name="minibroker-token" content="{node.feed.token}"' in body.decode()
        assert f'name="minibroker-broker" content="{node.node_id}"' in body.decode()
        assert "$" not in re.sub(r"<script.*?</script>", "", body.decode())
        status, headers, body = await get(node, "/", Accept="*/*")
        assert (status, headers["Content-Type"]) == (200, "text/plain; charset=utf-8")
        assert b"/api/state" in body
        assert (await get(node, "/", "HEAD", **BROWSER))[2] == b""
        assert not node.feed.is_on  # nobody looks yet


@pytest.mark.parametrize("path", ["/", "/page/app.js"])
async def test_what_browsers_are_told_to_keep_to(path: str) -> None:
    async with running() as node:
        _, headers, _ = await get(node, path, **BROWSER)
        policy = dict(each.strip().split(" ", 1) for each in headers["Content-Security-Policy"].split(";"))
        assert policy == {
            "default-src": "'none'",
            "script-src": "'self'",
            "style-src": "'self'",
            "connect-src": "'self'",
            "img-src": "'self' data:",
            "base-uri": "'none'",
            "form-action": "'none'",
            "frame-ancestors": "'none'",
        }
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
        assert "Access-Control-Allow-Origin" not in headers


async def test_a_file_is_packed_for_whoever_takes_that_and_sent_once() -> None:
    async with running() as node:
        for name in FILES:
            status, headers, body = await get(node, f"/page/{name}", **BROWSER)
            assert (status, headers["Content-Encoding"], headers["Vary"]) == (200, "gzip", "Accept-Encoding")
            assert gzip.decompress(body) == page_files.content(name)
            assert headers["Content-Type"] == page_files.KINDS[name.rpartition(".")[2]]
            _, plain, whole = await get(node, f"/page/{name}")
            assert "Content-Encoding" not in plain
            assert whole == gzip.decompress(body)
            again = await get(node, f"/page/{name}", If_None_Match=headers["ETag"])
            assert (again[0], again[2]) == (304, b"")
            assert "Content-Length" not in again[1]


@pytest.mark.parametrize(
    "name", ["", "nothing.js", "../reduce.js", "..%2freduce.js", "%2e%2e/page.css", "index.html", ".", "topics.js"]
)
async def test_nothing_but_the_files_of_the_page_is_served(name: str) -> None:
    async with running() as node:
        assert (await get(node, f"/page/{name}", **BROWSER))[0] == 404
        assert (await get(node, "/page/app.js", "POST"))[0] == 404


@pytest.mark.parametrize("path", ["/", "/page/app.js"])
async def test_the_page_is_not_for_pages_of_others(path: str) -> None:
    async with running() as node:
        assert (await get(node, path, Sec_Fetch_Site="cross-site", **BROWSER))[0] == 403
        assert (await get(node, path, Origin="http://evil.example", **BROWSER))[0] == 403


async def test_who_has_started_the_broker_says_who_may_steer_by_the_page() -> None:
    async with running() as node:
        for mode, (near, far) in {"near": (True, False), "full": (True, True), "read-only": (False, False)}.items():
            node.page = mode
            for address, may in (("127.0.0.1", near), ("10.0.0.7", far)):
                page = answer(node, from_afar(address, accept="text/html"))
                assert (node.feed.token in page.body.decode()) is may, (mode, address)
                asked = from_afar(
                    address, "POST", "/faults", origin="http://localhost:9092", x_minibroker=node.feed.token
                )
                assert (find_refusal(node, asked) is None) is may, (mode, address)
        node.page = "off"
        paths: Any = answer(node, from_afar("127.0.0.1", accept="text/html"))
        assert b"doctype" not in (paths[2] if isinstance(paths, tuple) else paths.body)
        assert (await get(node, "/page/app.js"))[0] == 404


def from_afar(address: str, method: str = "GET", path: str = "/", **headers: str) -> HttpRequest:
    request = HttpRequest(
        method, path, {"host": "localhost:9092", **{k.replace("_", "-"): v for k, v in headers.items()}}
    )
    request.address = address
    return request


@pytest.mark.parametrize("address", ["10.1.2.3", "::ffff:10.1.2.3", "2001:db8::1", "172.17.0.1", ""])
async def test_who_looks_from_another_machine_may_not_steer_by_the_page(address: str) -> None:
    async with running() as node:
        page = answer(node, from_afar(address, accept="text/html"))
        assert isinstance(page, PreparedAnswer)
        assert node.feed.token.encode() not in page.body
        assert b"from another machine" in page.body
        steering = from_afar(address, "POST", "/faults", origin="http://localhost:9092", x_minibroker=node.feed.token)
        refusal = find_refusal(node, steering)
        assert isinstance(refusal, tuple)
        assert refusal[0] == "403 Forbidden"
        assert find_refusal(node, from_afar(address, "POST", "/faults")) is None  # a program, as before


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
async def test_who_sits_at_this_machine_may(address: str) -> None:
    async with running() as node:
        page = answer(node, from_afar(address, accept="text/html"))
        assert isinstance(page, PreparedAnswer)
        assert node.feed.token.encode() in page.body


async def test_who_may_only_describe_the_cluster_gets_a_page_that_only_shows() -> None:
    async with running() as node:
        page = web_page.answer(node, from_afar("127.0.0.1", accept="text/html"), may_steer=False)
        assert node.feed.token.encode() not in page.body
        assert b"the access rules let you look" in page.body
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    async with running({"authorizer.class.name": authorizer}) as node:
        assert (await get(node, "/", **BROWSER))[0] == 403
        assert (await get(node, "/page/app.js", **BROWSER))[0] == 403


def test_the_word_is_one_that_nobody_guesses_and_stays_the_same() -> None:
    one, other = (Feed(made_source(SystemRandom())) for _ in range(2))
    assert one.token == one.token
    assert one.token != other.token
    assert len(one.token) == 32


def test_a_word_takes_nothing_from_the_chance_of_a_simulation() -> None:
    chance = Random(7)
    Feed(made_source(chance)).token  # noqa: B018
    assert chance.random() == Random(7).random()


def made_source(chance: Random) -> NodesSource:
    source = NodesSource()
    source.chance = chance
    return source


# What it is made of


def packed_bytes(names: tuple[str, ...]) -> int:
    whole = [page_files.content(name) if name in FILES else (FOLDER / name).read_bytes() for name in names]
    return sum(len(gzip.compress(data, mtime=0)) for data in whole)


def test_what_is_sent_is_the_file_line_for_line_without_comments_and_indentation() -> None:
    text = b"// What it is.\n\nconst a = `\n  b`; // stays\n  // goes\n//\n"
    assert page_files.sent("a.js", text) == b"\n\nconst a = `\nb`; // stays\n\n\n"
    for name in ("vendor.js", "page.css"):
        assert page_files.sent(name, text) == text
    for name in (*FILES, *page_files.parts()):
        data = (FOLDER / name).read_bytes()
        assert page_files.sent(name, data).count(b"\n") == data.count(b"\n")


def test_the_page_is_small() -> None:
    assert packed_bytes((SHELL, *FIRST)) <= FIRST_BYTES_MAX
    assert packed_bytes((SHELL, *FILES)) <= ALL_BYTES_MAX


def test_all_files_of_the_page_are_served_and_loaded_ahead() -> None:
    assert sorted([SHELL, *FILES, *page_files.parts()]) == sorted(path.name for path in FOLDER.iterdir())
    shell = (FOLDER / SHELL).read_text("utf-8")
    assert set(re.findall(r"page/([\w.]+)", shell)) == set(FIRST)


def test_what_comes_later_is_sent_as_one_module_that_has_all_of_them() -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not there: what is sent as one was not read")
    checked = subprocess.run(
        ["node", "--input-type=module", "--check"], input=page_files.content(page_files.JOINED), capture_output=True
    )
    assert checked.returncode == 0, checked.stderr.decode()
    known: set[str] = set(FIRST)
    for name in page_files.parts():  # those in front that others import
        wanted = set(re.findall(r'(?s)import .*?from "\./([\w.]+)"', (FOLDER / name).read_text("utf-8")))
        assert wanted <= known, name
        known.add(name)


def test_the_page_asks_nobody_else_and_runs_nothing_that_came_as_text() -> None:
    for path in FOLDER.iterdir():
        if path.name == "vendor.js":
            continue
        text = path.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        text = text.replace("`http://${", "")  # links to the other brokers, and lines of curl
        assert "http:" not in text, path.name
        assert "https:" not in text, path.name
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacent|document\.write|dangerously|\beval\b|new Function", text
        )
        assert not re.search(r"<script>|\bon\w+=\"|style=", text), path.name


def test_the_page_can_be_read() -> None:
    for path in FOLDER.glob("*.js"):
        if path.name != "vendor.js":
            lines = path.read_text("utf-8").splitlines()
            assert lines[0].startswith("// "), f"{path.name} says what it is"
            assert not [f"{path.name}:{number}" for number, line in enumerate(lines, 1) if len(line) > JS_COLUMNS_MAX]


COLOUR = re.compile(r"--([\w-]+): light-dark\((#\w+), (#\w+)\)")
ON = {"paper": ("ink", "soft", "accent", "warn", "bad"), "panel": ("ink", "soft", "accent", "good", "warn", "bad")}


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_every_colour_of_words_can_be_read(theme: int) -> None:
    """Contrast as WCAG 2.2 AA asks for, 4.5 at least."""
    found = {name: pair[theme] for name, *pair in COLOUR.findall((FOLDER / "page.css").read_text("utf-8"))}
    pairs = [(words, ground) for ground, some in ON.items() for words in some] + [("bad", "bad-ground")]
    sign = "#0e1614"  # on a lane
    pale = [f"{a} on {b}" for a, b in pairs if contrast(found[a], found[b]) < 4.5]
    assert not pale + [f"e{epoch}" for epoch in range(6) if contrast(sign, found[f"e{epoch}"]) < 4.5]


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted(map(luminance, (one, other)))
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * each for each in colour[1:])
    shares = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (each / 12.92 if each <= 0.03928 else ((each + 0.055) / 1.055) ** 2.4 for each in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_what_others_wrote_is_what_the_licences_say() -> None:
    told = (VENDOR / "LICENSES.txt").read_text("utf-8")
    assert f"sha256 {sha256((FOLDER / 'vendor.js').read_bytes()).hexdigest()}" in told
    for name, version in json.loads((VENDOR / "package.json").read_text("utf-8"))["devDependencies"].items():
        assert f"{name} {version}" in told


# What buttons do, in node: the verbs, and how they are said elsewhere

SCRIPT = """
import { readFileSync } from "node:fs";
const text = readFileSync(%s, "utf-8").replace(/^import .*$/gm, "");
globalThis.location = { host: "localhost:9092" };
globalThis.signal = (value) => ({ value });
const module = await import("data:text/javascript;base64," + Buffer.from(text).toString("base64"));
const told = {};
for (const [name, given] of JSON.parse(process.argv[1])) {
  const command = module.verb(name, given);
  told[JSON.stringify([name, given])] = { ...command, twins: module.twins(command) };
}
console.log(JSON.stringify({ verbs: module.VERBS, told }));
"""
EXAMPLES: list[tuple[str, dict[str, Any]]] = [
    ("kill", {"broker": 1}),
    ("kill", {"broker": "controller", "lossy": True}),
    ("stop", {"broker": 2}),
    ("start", {"broker": 2}),
    ("pause", {"broker": 2}),
    ("resume", {"broker": 2}),
    ("fill-disk", {"broker": 3}),
    ("slow-disk", {"broker": 3, "ms": 20}),
    ("heal-disk", {"broker": 3}),
    ("cut", {"a": 1, "b": "clients"}),
    ("cut", {"a": 1, "b": 2, "one_way": True}),
    ("heal", {}),
    ("heal", {"a": 1}),
    ("heal", {"a": 1, "b": 2, "one_way": True}),
    ("isolate", {"broker": 1}),
    ("delay", {"a": 1, "b": 2, "ms": 50, "one_way": True}),
    ("throttle", {"a": 1, "b": 2, "bytes_per_s": 2000}),
    ("lose", {"a": 1, "b": 2, "share": 0.2}),
    ("elect", {"topic": "orders", "partition": 0}),
    ("move-leader", {"topic": "orders", "partition": 0, "broker": 2}),
    ("hold", {}),
    ("hold", {"kinds": ["fetch", "answer"]}),
    ("release", {}),
    ("step", {}),
    ("step", {"kind": "fetch", "count": 3}),
    ("freeze", {}),
    ("thaw", {}),
    ("advance", {"duration": "7d"}),
    ("abort-transaction", {"id": "pay-1"}),
]


def test_what_buttons_say_in_python_shell_and_http_is_what_they_do() -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not there: what the buttons say was not read")
    script = SCRIPT % json.dumps(str(FOLDER / "commands.js"))
    command = ["node", "--input-type=module", "-e", script, json.dumps(EXAMPLES)]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)
    assert set(found["verbs"]) == {name for name, _ in EXAMPLES}
    parser = ArgumentParser()
    add_arguments(parser)
    for name, given in EXAMPLES:
        command = found["told"][json.dumps([name, given], separators=(",", ":"))]
        wanted = fit(VERBS[name], given)
        assert command["path"] == f"cluster/{name}"
        assert command["body"] == given
        assert called(command["python"]) == wanted
        words = split(command["twins"][1][1])
        assert words[:2] == ["minibroker", "cluster"]
        options = parser.parse_args(words[2:])
        assert fit(VERBS[name], arguments_of(options.verb, options.words, options)) == wanted
        curl = split(command["twins"][2][1])
        assert curl[:4] == ["curl", "-X", "POST", f"http://localhost:9092/cluster/{name}"]
        assert json.loads(curl[-1]) == given if given else len(curl) == 4


def split(line: str) -> list[str]:
    import shlex

    return shlex.split(line)


def called(line: str) -> tuple[list[Any], dict[str, Any]]:
    """Return what a call of a method of `minibroker.Cluster` hands to the verb."""
    import ast
    import inspect

    call = ast.parse(line, mode="eval").body
    assert isinstance(call, ast.Call)
    assert isinstance(call.func, ast.Attribute)
    name = call.func.attr
    assert hasattr(Cluster, name), name
    verb = VERBS[{"start_broker": "start", "stop_broker": "stop"}.get(name, name.replace("_", "-"))]
    arguments = [ast.literal_eval(each) for each in call.args]
    named = {each.arg: ast.literal_eval(each.value) for each in call.keywords if each.arg}
    own = [each for each, _ in verb.parameters()]
    if own and own[0].kind is inspect.Parameter.VAR_POSITIONAL:
        return arguments, named
    return [], {**dict(zip((each.name for each in own), arguments, strict=False)), **named}
