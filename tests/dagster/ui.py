"""The UI as a user sees it: a backfill launched by mouse and keyboard in headless Chromium, and pictures of the result.

    python tests/dagster/ui.py [FOLDER FOR PICTURES]          needs `chromium` on the path

Runs the demo into a fresh warehouse, starts `dagster dev` on it, backfills three days of flights through the dialog,
and checks that this was one run and one snapshot. The pictures are for people to look at: those in docs/images/ are from here.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import dagster as dg

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from tests.dagster.browser import Browser
from tests.dagster.test_end_to_end import ROOT, Server, finished, wait_for
from tests.dagster.transcript import commands, run

DAYS = ["2013-02-01", "2013-02-02", "2013-02-03"]
GROUPS = ("source", "raw", "fleet", "joined", "marts", "bookings")
VIEWS = {
    "catalog": "/assets",
    "partitions": f"/assets/flights?view=partitions&partition={DAYS[0]}",
    "checks": "/assets/flights?view=checks&checkDetail=row_count",
    "jobs": "/jobs",
    "automation": "/automation",
    "sensor": "/locations/lake/sensors/compaction",
    "schedule": "/locations/lake/schedules/late_data",
}
OF_COMPONENTS = {
    "component": "/locations/shop.definitions/components/library/packages/lakeformat/lakeformat.dagster.LakeTableComponent"
}


def main(pictures: Path) -> None:
    pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = {**os.environ, "DAGSTER_HOME": str(folder / "home")}
        subprocess.run(
            [sys.executable, "-m", "pipelines.demo", str(folder / "warehouse")], cwd=ROOT, env=environment, check=True
        )
        server = Server(folder, LAKE_SCHEDULES="on")
        try:
            with Browser(2000, 2300) as browser:
                take_picture_of_lineage(server, browser, pictures)
            with Browser() as browser:
                launch_backfill(server, browser, pictures)
                take_pictures(server, browser, pictures, VIEWS)
                take_picture_of_columns(server, browser, pictures)
                take_picture_of_plots(server, browser, pictures)
                take_picture_of_upkeep(server, browser, pictures)
        finally:
            server.stop()
            server.instance.dispose()
    take_pictures_of_components(pictures)
    print(f"one run and one snapshot; pictures in {pictures}")


def launch_backfill(server: Server, browser: Browser, pictures: Path) -> None:
    table = server.lake.table("nyc.flights")
    before = [snapshot.id for snapshot in table.snapshots()]
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
    (made,) = [snapshot for snapshot in table.snapshots() if snapshot.id not in before]
    assert made.properties["dagster/backfill"] == backfill
    assert set(DAYS) <= server.instance.get_materialized_partitions(dg.AssetKey("flights"))


def take_picture_of_lineage(server: Server, browser: Browser, pictures: Path) -> None:
    """Every group unfolded, without the bars around the graph."""
    expanded = ",".join(f"global%40global%3A{group}" for group in GROUPS)
    browser.open(f"{address(server)}/asset-groups?expanded={expanded}")
    browser.wait("document.body.innerText.includes('carrier_scorecard')")
    time.sleep(10)
    browser.screenshot(pictures / "lineage.png", left=600, top=112, right=70)


def take_picture_of_columns(server: Server, browser: Browser, pictures: Path) -> None:
    """What the docstring says of the columns, as it came back from the table."""
    browser.open(f"{address(server)}/assets/flights?view=overview")
    browser.wait("document.body.innerText.includes('Column name')")
    browser.run(f"({found('Columns')}).scrollIntoView({{block: 'start'}})")
    time.sleep(2)
    browser.screenshot(pictures / "columns.png")


def take_picture_of_plots(server: Server, browser: Browser, pictures: Path) -> None:
    """By event: those by partition begin at the year's end, where the demo made none."""
    browser.open(f"{address(server)}/assets/flights?view=overview")
    time.sleep(10)
    press(browser, "Plots")
    press(browser, "Events")
    time.sleep(10)
    browser.run(f"({found('Plots')}).scrollIntoView({{block: 'start'}})")
    time.sleep(2)
    browser.screenshot(pictures / "plots.png")


def take_picture_of_upkeep(server: Server, browser: Browser, pictures: Path) -> None:
    """What an observation of upkeep shows of the partitions."""
    seen = server.instance.fetch_observations(dg.AssetKey("flights"), limit=50).records
    shows = next(event for event in seen if "lake/partitions" in event.asset_observation.metadata)
    browser.open(f"{address(server)}/assets/flights?view=events&time={int(shows.timestamp * 1000)}")
    time.sleep(10)
    press(browser, "[Show Markdown]")
    time.sleep(3)
    browser.screenshot(pictures / "upkeep.png")


def found(text: str) -> str:
    """The last innermost element that shows `text`, which may be the name of a tab elsewhere on the page."""
    return (
        f"[...document.querySelectorAll('*')].filter(e => !e.children.length && e.innerText?.trim() === {text!r}).pop()"
    )


def press(browser: Browser, text: str) -> None:
    browser.wait(f"!!({found(text)})")
    browser.run(f"({found(text)}).click()")
    time.sleep(3)


def take_pictures_of_components(pictures: Path) -> None:
    """Of the project that docs/components.md makes."""
    with tempfile.TemporaryDirectory() as name:
        project = Path(name) / "project"
        project.mkdir()
        for command, _ in commands(ROOT / "docs" / "components.md"):
            run(command, project)
        server = Server(Path(name), loads=("-m", "shop.definitions"), within=project)
        try:
            with Browser() as browser:
                take_pictures(server, browser, pictures, OF_COMPONENTS)
        finally:
            server.stop()
            server.instance.dispose()


def take_pictures(server: Server, browser: Browser, pictures: Path, views: Mapping[str, str]) -> None:
    for name, path in views.items():
        browser.open(address(server) + path)
        time.sleep(10)
        browser.screenshot(pictures / f"{name}.png")


def address(server: Server) -> str:
    return f"http://127.0.0.1:{server.port}"


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "ui-pictures").absolute())
