"""The UI as a user sees it: a backfill launched by mouse and keyboard in headless Chromium, and pictures of the result.

    python tests/dagster/ui.py [FOLDER FOR PICTURES]          needs `chromium` on the path

Runs the demo into a fresh warehouse, starts `dagster dev` on it, backfills three days of flights through the dialog,
and checks that this was one run and one snapshot. The pictures are for people to look at.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import dagster as dg
from browser import Browser
from test_end_to_end import ROOT, Server, finished, wait_for

DAYS = ["2013-02-01", "2013-02-02", "2013-02-03"]
GROUPS = ("source", "raw", "fleet", "joined", "marts", "bookings")


def main(pictures: Path) -> None:
    pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = {**os.environ, "DAGSTER_HOME": str(folder / "home")}
        subprocess.run(
            [sys.executable, "-m", "pipelines.demo", str(folder / "warehouse")], cwd=ROOT, env=environment, check=True
        )
        server = Server(folder)
        try:
            with Browser(2000, 2300) as browser:
                take_picture_of_lineage(server, browser, pictures)
            with Browser() as browser:
                launch_backfill(server, browser, pictures)
                take_pictures(server, browser, pictures)
        finally:
            server.stop()
            server.instance.dispose()
    print(f"one run and one snapshot; pictures in {pictures}")


def launch_backfill(server: Server, browser: Browser, pictures: Path) -> None:
    table = server.lake.table("nyc.flights")
    before = [each.id for each in table.snapshots()]
    browser.open(f"{address(server)}/assets/flights")
    browser.click("Materialize")
    browser.type("input[placeholder^='ex: 2013']", f"[{DAYS[0]}...{DAYS[-1]}]")
    browser.wait(
        "document.body.innerText.includes('3 partitions') || document.body.innerText.includes('Launch backfill')"
    )
    time.sleep(2)
    browser.screenshot(pictures / "dialog.png")
    browser.click("Launch backfill")
    backfill = browser.wait("(document.body.innerText.match(/Created backfill\\s+(\\w+)/) || [])[1]")
    tag = {"dagster/backfill": backfill}
    runs = wait_for(lambda: finished(server, server.runs(**tag)), "the backfill's run", server)
    assert [run.status for run in runs] == [dg.DagsterRunStatus.SUCCESS], runs
    (made,) = [each for each in table.snapshots() if each.id not in before]
    assert made.properties["dagster/backfill"] == backfill
    assert set(DAYS) <= server.instance.get_materialized_partitions(dg.AssetKey("flights"))


def take_picture_of_lineage(server: Server, browser: Browser, pictures: Path) -> None:
    """Every group unfolded, without the bars around the graph."""
    expanded = ",".join(f"global%40global%3A{group}" for group in GROUPS)
    browser.open(f"{address(server)}/asset-groups?expanded={expanded}")
    browser.wait("document.body.innerText.includes('carrier_scorecard')")
    time.sleep(10)
    browser.screenshot(pictures / "lineage.png", left=600, top=112, right=70)


def take_pictures(server: Server, browser: Browser, pictures: Path) -> None:
    views = {
        "partitions": f"/assets/flights?view=partitions&partition={DAYS[0]}",
        "checks": "/assets/flights?view=checks",
        "jobs": "/jobs",
        "automation": "/automation",
    }
    for name, path in views.items():
        browser.open(address(server) + path)
        time.sleep(10)
        browser.screenshot(pictures / f"{name}.png")


def address(server: Server) -> str:
    return f"http://127.0.0.1:{server.port}"


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "ui-pictures").absolute())
