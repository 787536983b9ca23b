"""Records and logs on the page, in a real browser: opened, searched, live, written, and taken apart."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka import Consumer, Producer

from minibroker import Broker, Cluster

from .browsing import NARROW, WIDE, Tab, need_browser
from .test_page import EVIL, address_of, compare, produce

need_browser()

pytestmark = [pytest.mark.interop, pytest.mark.outside]
REGISTRY = b"\x00\x00\x00\x00\x07\x0eA"
UNREADABLE = b"\xff\xfe\xfd"
HOSTILE = [
    EVIL.encode(),
    b"javascript:alert(1)",
    "\u202egnp.exe\u2028\n\ndata: {}\n\n".encode(),
    b"w" * 100_000,
    b"</script><script>alert(1)</script>",
    UNREADABLE,
]


def write(cluster: Cluster | Broker, *records: tuple[str | None, bytes], codec: str = "none") -> None:
    """Write a batch to orders-0."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 1000, "compression.type": codec})
    for number, (key, value) in enumerate(records):
        headers: list[tuple[str, str | bytes | None]] = [("trace", f"a{number}")]
        producer.produce("orders", value, key, 0, timestamp=1_700_000_000_000 + number, headers=headers)
    assert producer.flush(30) == 0


def fill(cluster: Cluster | Broker, count: int = 60) -> None:
    """Write a batch of JSON to orders-0."""
    values = (json.dumps({"id": number, "user": {"name": "Anna"}}).encode() for number in range(count))
    write(cluster, *((f"user-{number % 5}", value) for number, value in enumerate(values)), codec="gzip")


def offsets(page: Any) -> list[int]:
    """Return the offsets that are listed, from above."""
    return [int(each.replace(",", "")) for each in page.locator(".records tbody th").all_inner_texts()]


def test_a_topic_shows_its_records_the_newest_first_and_the_way_to_the_older(browser: Any, cluster: Cluster) -> None:
    fill(cluster)
    with Tab(browser, address_of(cluster)) as tab:
        page = tab.open("/#/topics")
        page.get_by_role("link", name="orders", exact=True).click()
        page.get_by_role("heading", name="50 records").wait_for()
        assert offsets(page) == list(range(59, 9, -1))
        row = page.locator(".records tbody tr").first
        time, key, value, size, batch, decoded = row.locator("td").all_inner_texts()[1:]
        assert re.fullmatch(r"\d\d:13:20\.059", time)
        assert (key, value) == ("user-4", '{"id": 59, "user": {"name": "Anna"}}')
        assert (size, batch.strip(), decoded) == ("53 B", "0+60 gzip", "json")
        page.get_by_text("p0 10–59 of 0–59, on b1").wait_for()
        page.get_by_role("link", name="older").click()
        page.wait_for_url("**/#/topic/orders?p=0&offset=0")
        page.get_by_text("oldest first").wait_for()
        assert offsets(page) == list(range(50))
        page.get_by_role("link", name="newer").click()
        page.get_by_role("heading", name="10 records").wait_for()
        page.get_by_label("from offset").fill("")
        page.get_by_label("or time").fill("1700000000040")
        page.get_by_role("button", name="show").click()
        page.wait_for_url("**/#/topic/orders?p=0&time=2023-11-14T22%3A13%3A20.040Z&way=text")
        page.get_by_role("heading", name="20 records").wait_for()
        assert offsets(page) == list(range(40, 60))
        assert tab.troubles == []


def test_what_somebody_types_stays_while_frames_come(browser: Any, cluster: Cluster) -> None:
    with Tab(browser, address_of(cluster)) as tab:
        page = tab.open("/#/topic/orders")
        page.get_by_label("from offset").fill("17")
        page.get_by_role("textbox", name="Value").fill("draft")
        cluster.create_topic("another")
        page.get_by_text("Topic another").first.wait_for()
        assert page.get_by_label("from offset").input_value() == "17"
        assert page.get_by_role("textbox", name="Value").input_value() == "draft"


def test_a_record_is_opened_with_its_bytes_and_why_it_was_taken_for_what(browser: Any, cluster: Cluster) -> None:
    produce(cluster, REGISTRY, b"x" * 5000, UNREADABLE)
    with Tab(browser, address_of(cluster)) as tab:
        page = tab.open("/#/topic/orders?p=0&offset=0")
        page.get_by_role("button", name="2", exact=True).click()
        page.wait_for_url("**offset=0&open=0-2")
        opened = page.locator(".opened")
        opened.get_by_role("heading", name="value bytes, 3 bytes").wait_for()
        for why in (
            "does not begin with 0",
            "no json: no UTF-8",
            "no text: byte 0 is no UTF-8",
            "no number: has 3 bytes",
        ):
            opened.get_by_text(why).wait_for()
        assert opened.locator("pre").inner_text().split() == ["0", "ff", "fe", "fd", "..."]
        page.goto(f"{tab.origin}/#/topic/orders?p=0&offset=0&open=0-0")
        opened.get_by_role("heading", name="value registry 7, 7 bytes").wait_for()
        assert opened.locator("pre").inner_text().split() == ["0", *REGISTRY.hex(" ").split(), "......A"]
        page.goto(f"{tab.origin}/#/topic/orders?p=0&offset=0&open=0-1")
        opened.get_by_role("heading", name="value text, 5,000 bytes, not all of it").wait_for()
        assert len(opened.locator("pre").first.inner_text()) == 4096
        opened.get_by_role("button", name="all of it").click()
        opened.get_by_role("heading", name="value text, 5,000 bytes", exact=True).wait_for()
        assert len(opened.locator("pre").first.inner_text()) == 5000
        assert opened.get_by_role("button", name="all of it").count() == 0
        assert tab.troubles == []


def test_records_are_searched_and_what_cannot_be_looked_at_is_counted(browser: Any, cluster: Cluster) -> None:
    fill(cluster)
    produce(cluster, b'{"id": no json', b'"id"' + UNREADABLE)
    with Tab(browser, address_of(cluster)) as tab:
        page = tab.open("/#/topic/orders")
        page.keyboard.press("/")
        page.get_by_label("only with").select_option("path")
        page.get_by_role("searchbox", name="Search for").fill("$.id >= 57")
        page.keyboard.press("Enter")
        page.get_by_text("ended: all").wait_for()
        page.wait_for_url("**/#/topic/orders?way=path&q=%24.id+%3E%3D+57")
        assert offsets(page) == [57, 58, 59]
        page.get_by_text("2 no JSON").wait_for()
        page.get_by_text(re.compile("^62 records, .* looked through in .*p0 0–61 of 0–61")).wait_for()
        progress = page.get_by_role("progressbar", name="Looked through")
        assert progress.evaluate("each => [each.value, each.max]") == [62, 62]
        assert tab.troubles == []
        page.get_by_role("searchbox", name="Search for").fill("id =")
        page.get_by_role("button", name="show").click()
        page.get_by_role("alert").get_by_text("id =").wait_for()


def test_a_search_is_stopped_and_keeps_what_it_has(browser: Any, cluster: Cluster) -> None:
    row = {"partition": 0, "offset": 7, "timestamp": 0, "timestamp_type": "create", "size_bytes": 1, "key": None}
    row |= {"value": None, "headers": [], "batch": {"base_offset": 7, "records": 1, "codec": "none"}}
    hold = f"""
    const asked = fetch;
    globalThis.fetch = (path, given) => {{
      if (!path.includes("/search?")) return asked(path, given);
      const body = new ReadableStream({{
        start(control) {{
          control.enqueue(new TextEncoder().encode('event: hit\\ndata: {json.dumps(row)}\\n\\n: a comment\\n\\n'));
          given.signal.addEventListener("abort", () => control.error(new DOMException("left", "AbortError")));
        }},
      }});
      return Promise.resolve(new Response(body));
    }};
    """
    with Tab(browser, address_of(cluster)) as tab:
        tab.page.add_init_script(hold)
        page = tab.open("/#/topic/orders?way=text&q=a")
        page.get_by_role("heading", name="1 hit").wait_for()
        page.get_by_role("button", name="stop").click()
        page.get_by_role("status").get_by_text("stopped").wait_for()
        assert offsets(page) == [7]
        assert page.get_by_role("alert").count() == 0
        page.get_by_role("button", name="again").wait_for()


def test_live_shows_what_comes_the_newest_on_top_and_counts_the_rest(browser: Any, cluster: Cluster) -> None:
    with Tab(browser, address_of(cluster)) as tab:
        page = tab.open("/#/topic/orders?p=0")
        with page.expect_response("**/tail?*"):
            page.get_by_role("button", name="live").click()
        page.wait_for_url("**live=1")
        produce(cluster, b"first")
        page.get_by_role("heading", name="1 record", exact=True).wait_for()
        fill(cluster, 5000)
        page.get_by_text(re.compile(r"[\d,]+ sampled")).wait_for()
        found = offsets(page)
        assert found == sorted(found, reverse=True)
        assert found[0] == 5000
        told = int(page.get_by_role("heading", name=re.compile(r"^\d+ records$")).inner_text().split()[0])
        sampled = page.get_by_text(re.compile(r"[\d,]+ sampled")).inner_text().split()[0].replace(",", "")
        assert told + int(sampled) == 5001
        page.get_by_role("button", name="stop").click()
        page.get_by_role("button", name="again").wait_for()
        assert offsets(page) == found
        assert tab.troubles == []


@pytest.mark.parametrize("isolated", [True, False], ids=["alone", "cluster"])
def test_a_record_is_written_as_python_shell_and_http_say_too(browser: Any, cluster: Cluster, isolated: bool) -> None:
    with Broker(topics=["orders"]) as broker:
        target: Broker | Cluster = broker if isolated else cluster
        with Tab(browser, address_of(target)) as tab:
            page = tab.open("/#/topic/orders")
            form = page.get_by_role("region", name="Write a record")
            form.get_by_role("button", name="write").hover()
            page.get_by_text("minibroker produce -t orders -J <<<").wait_for()
            form.get_by_label("partition").fill("0")
            form.get_by_label("key").fill("user's")
            form.get_by_role("textbox", name="Value").fill('{"id": 7}\n"Ünicode" $HOME')
            form.get_by_role("textbox", name="Headers").fill("trace=a=1\nempty")
            form.get_by_role("button", name="write").click()
            form.get_by_text("written to p0 at offset 0").wait_for()
            page.get_by_role("heading", name="1 record", exact=True).wait_for()
            python, shell, curl = page.locator(".twin code").all_inner_texts()
            exec(python, {"broker": broker, "cluster": cluster})
            environment = {"PATH": f"{sys.prefix}/bin:/usr/bin:/bin"}
            for line in (shell.replace("minibroker ", f"{sys.executable} -m minibroker "), curl):
                subprocess.run(["bash", "-c", line], check=True, timeout=60, capture_output=True, env=environment)
            form.get_by_label("null").check()
            form.get_by_role("button", name="write").click()
            form.get_by_text("written to p0 at offset 4").wait_for()
            assert tab.troubles == []
        *same, tombstone = read(target, 5)
        headers = [("trace", b"a=1"), ("empty", b"")]
        assert same == [(b"user's", '{"id": 7}\n"Ünicode" $HOME'.encode(), headers)] * 4
        assert tombstone == (b"user's", None, headers)


def read(cluster: Cluster | Broker, count: int) -> list[tuple[Any, Any, Any]]:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "readers", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe(["orders"])
    found = consumer.consume(count, 30)
    consumer.close()
    return [(record.key(), record.value(), record.headers()) for record in found]


# The log


def test_an_offset_is_found_by_steps_in_segments_to_scale(browser: Any, cluster: Cluster) -> None:
    fill(cluster)
    cluster.roll_now("orders", 0)
    produce(cluster, b"behind")
    with Tab(browser, address_of(cluster)) as tab:
        page = tab.open()
        page.locator("article[id='part-orders-0'] .lane").get_by_role("link", name="b2").click()
        page.wait_for_url("**/#/log/orders/0@2")
        page.get_by_role("heading", name="orders-0 on b2").wait_for()
        page.get_by_role("heading", name="2 segments").wait_for()
        widths = (
            page.locator(".strip")
            .first.locator("rect")
            .evaluate_all("all => all.map((each) => Number(each.getAttribute('width')))")
        )
        assert sum(widths) == pytest.approx(1000)
        assert widths[0] > 3 * widths[1]
        page.get_by_label("find offset").fill("41")
        page.keyboard.press("Enter")
        page.wait_for_url("**/#/log/orders/0@2?offset=41")
        page.locator(".found li").first.wait_for()
        steps = page.locator(".found li").all_inner_texts()
        assert steps[0] == "segment 0: the last of 2 whose name is not above 41"
        assert steps[-1].startswith("the batch of 0 to 59 begins at byte 0")
        page.get_by_role("button", name="records[41].key", exact=False).first.wait_for()
        page.get_by_role("link", name=re.compile("^segment 60: 1 offset, .*, active")).click()
        page.get_by_role("heading", name=re.compile("bytes at 0 of segment 60")).wait_for()
        page.get_by_role("link", name="the batch before").click()
        page.get_by_role("heading", name=re.compile("bytes at 0 of segment 0")).wait_for()
        assert tab.troubles == []


def test_bytes_say_what_they_are_by_keys_and_by_pointer(browser: Any, cluster: Cluster) -> None:
    produce(cluster, b"before")
    write(cluster, (None, b"first"), ("k", b"second"))
    with Tab(browser, address_of(cluster)) as tab:
        page = tab.open("/#/log/orders/0@1?offset=2")
        fields = page.locator(".field")
        detail = page.locator(".detail")
        detail.get_by_text("offset of the first record").wait_for()
        fields.first.focus()
        assert [each.get_attribute("tabindex") for each in fields.all()].count("0") == 1
        for _ in range(2):
            page.keyboard.press("ArrowRight")
        detail.get_by_text("batch[0].partition_leader_epoch").wait_for()
        assert "the broker sets it" in detail.inner_text()
        assert "not under the CRC" in detail.inner_text()
        page.keyboard.press("ArrowLeft")
        detail.get_by_text("batch[0].size").wait_for()
        page.get_by_role("button", name="crc", exact=False).first.hover()
        detail.get_by_text("the CRC covers byte 21 to").wait_for()
        covered = page.locator(".field.covered small").all_inner_texts()
        assert covered[0] == "attributes"
        assert len(covered) == fields.count() - 5
        page.get_by_role("button", name="records[1].value", exact=False).last.hover()
        detail.get_by_text("= second").wait_for()
        assert "as the producer sent it" in detail.inner_text()
        page.get_by_text("in base_offset and partition_leader_epoch; the CRC stands").wait_for()
        compare(page.get_by_role("region", name="Bytes").locator(".facts").last.aria_snapshot(), "formats")
        page.get_by_role("link", name=re.compile("^v1 .* bytes")).click()
        page.get_by_role("heading", name=re.compile("as v1$")).wait_for()
        fields.filter(has_text="timestamp").first.wait_for()
        assert tab.troubles == []


def test_what_the_broker_has_written_anew_is_not_said_to_be_the_producers(browser: Any, cluster: Cluster) -> None:
    cluster.create_topic("stamped", message_timestamp_type="LogAppendTime")
    produce(cluster, b"a", topic="stamped")
    with Tab(browser, address_of(cluster)) as tab:
        page = tab.open("/#/log/stamped/0?offset=0")
        page.get_by_text("the CRC was made again").wait_for()
        page.get_by_role("button", name="crc", exact=False).first.hover()
        page.locator(".detail").get_by_text("the broker sets it").wait_for()
        page.get_by_role("button", name="records[0].value", exact=False).last.hover()
        page.locator(".detail").get_by_text("as the producer sent it").wait_for()


def test_a_log_that_is_not_there_is_said_to_be_so(browser: Any, cluster: Cluster) -> None:
    with Tab(browser, address_of(cluster)) as tab:
        page = tab.open("/#/log/orders/9@7?offset=3")
        page.get_by_role("alert").get_by_text("orders has the partitions 0 to 1, and not 9").first.wait_for()
        page.goto(f"{tab.origin}/#/topic/nothing")
        page.get_by_text("There is no topic nothing here").wait_for()


# Whoever looks on, and whoever means harm


def test_who_may_only_look_sees_no_button_that_writes(browser: Any, cluster: Cluster) -> None:
    def without(route: Any) -> None:
        answer = route.fetch()
        route.fulfill(
            response=answer, body=answer.text().replace('why-not" content="', 'why-not" content="you may look only')
        )

    produce(cluster, b"a")
    with Tab(browser, address_of(cluster)) as tab:
        tab.page.route(f"{tab.origin}/", without)
        page = tab.open("/#/topic/orders")
        page.get_by_role("heading", name="1 record", exact=True).wait_for()
        assert page.get_by_role("region", name="Write a record").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_records_are_text_whatever_stands_in_them(
    browser: Any, cluster: Cluster, scheme: str, size: dict[str, int]
) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "message.max.bytes": 2_000_000})
    for value in HOSTILE:
        producer.produce("orders", value, value[:200], 0, headers=[(EVIL, value[:300]), ("\u202e" * 9, None)])
        producer.flush(30)
    last = len(HOSTILE) - 1
    places = [f"/#/topic/orders?p=0&offset=0&open=0-{at}" for at in range(last + 1)]
    places += [f"/#/log/orders/0@1?offset={at}" for at in range(last + 1)]
    places += [
        "/#/topic/orders?way=text&q=a",
        f"/#/topic/{quote(EVIL)}",
        f"/#/log/{quote(EVIL)}/0",
        "/#/topic/orders?way=header&q=%ff",
    ]
    with Tab(browser, address_of(cluster), size=size, scheme=scheme) as tab:
        page = tab.open("/#/topic/orders?live=1")
        for path in places:
            page.goto(tab.origin + path)
            page.locator("main :is(.opened, .bytes, [role=status], [role=alert], .empty-place)").first.wait_for()
            assert page.locator("img, iframe, object, script[src^=java]").count() == 0
            assert not tab.has_no_room_to_the_side(), path
        page.goto(f"{tab.origin}/#/topic/orders?way=text&q={quote(EVIL)}")
        page.get_by_role("heading", name="1 hit", exact=True).wait_for()
        assert [each for each in tab.troubles if "404" not in each] == []
        assert all(request.startswith(f"{tab.origin}/") for request in tab.requests)
