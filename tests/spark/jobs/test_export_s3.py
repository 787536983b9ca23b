"""Files of an export in an object store, where there is no rename: a server of S3 on this machine, through PyArrow."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pyarrow.dataset as ds
import pytest
from pyarrow.fs import S3FileSystem

from minibroker.spark.folders import Folder, open_folder
from minibroker.spark.jobs.export_files import Lake, clean, small_files
from tests.interop.spark import s3_folder
from tests.spark.jobs.test_export_files import SCHEMA, rows, written

pytestmark = [pytest.mark.slow, pytest.mark.interop]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield the address of a server with a bucket `lakes`."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "of-no-use")
    environment = {**os.environ, "PYTHONPATH": str(s3_folder())}
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=environment, text=True) as server:
        assert server.stderr
        try:
            lines = (re.search(r"http://(127\.0\.0\.1:\d+)", line) for line in server.stderr)
            address = next(match[1] for match in lines if match)
            options = {"scheme": "http", "region": "us-east-1", "allow_bucket_creation": True}
            S3FileSystem(endpoint_override=address, **options).create_dir("lakes")
            yield address
        finally:
            server.kill()


def test_an_object_store_has_each_record_once(store: str) -> None:
    folder = open_folder(f"s3a://lakes/orders?endpoint_override={store}&scheme=http&region=us-east-1")
    assert not folder.renames
    lake = Lake(folder, SCHEMA, "zstd", "1")
    lake.begin("id")
    written(lake, 0, rows(0, 5))
    written(lake, 1, rows(5, 5))
    assert offsets_in(folder) == list(range(10))
    assert clean(folder, unfinished=1)
    assert offsets_in(folder) == list(range(5))
    lake = Lake(folder, SCHEMA, "zstd", "2")
    lake.begin("id")
    written(lake, 1, rows(5, 5))
    lake.end()
    assert offsets_in(folder) == list(range(10))
    assert [group.name.rpartition("/")[2] for group in small_files(folder, 1 << 20)] == [
        "00000000-000000-0000-00000001-000000-0000.parquet"
    ]
    assert not clean(folder, None)


def offsets_in(folder: Folder) -> list[int]:
    found = ds.dataset(folder.path(), filesystem=folder.files, partitioning="hive").to_table(columns=["offset"])
    return sorted(found["offset"].to_pylist())
