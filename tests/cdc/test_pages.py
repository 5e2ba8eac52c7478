"""The page on change data capture does what it says, with the real server."""

import os
import re
from pathlib import Path

import psycopg

PAGE = Path(__file__).parent.parent.parent / "docs" / "cdc.md"


def test_the_page_runs(postgres_server, tmp_path, monkeypatch):
    with psycopg.connect(postgres_server.get_uri(), autocommit=True) as admin:
        admin.execute("CREATE DATABASE shop")
    monkeypatch.setitem(os.environ, "SHOP_DSN", postgres_server.get_uri("shop"))
    monkeypatch.chdir(tmp_path)
    seen = {}
    for block in re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(block, "docs/cdc.md", "exec"), seen)
    seen["source"].drop()
