"""Tables of a database as assets, with the real server: micro-batches, lag, a table taken anew; in Python and in YAML."""

import json
import re
import runpy
from datetime import timedelta

import dagster as dg
import pyarrow as pa
import pytest
import yaml
from dagster.components.testing import create_defs_folder_sandbox

from assets import bookings as made_up
from lakeformat import InvalidInput, clock
from lakeformat.cdc import sync_table
from lakeformat.dagster import CdcSource, cdc_assets, checks_for, foreign_commits, lag_checks, lag_sensor
from resources import BOOKING_SYSTEM_DSN, booking_system

ORDERS, NOTES = dg.AssetKey(["shop", "orders"]), dg.AssetKey("notes")
TABLES = {"public.orders": "shop.orders", "public.notes": "notes"}


@pytest.fixture
def server(postgres_database):
    postgres_database.slot = postgres_database.info.dbname
    postgres_database.execute("CREATE TABLE orders (id bigint PRIMARY KEY, amount int)")
    postgres_database.execute("CREATE TABLE notes (id int PRIMARY KEY, text text)")
    postgres_database.execute("INSERT INTO orders VALUES (1, 10), (2, 20); INSERT INTO notes VALUES (1, 'a')")
    return postgres_database


@pytest.fixture
def project(server, lake):
    assets = cdc_assets("shop", TABLES, format="paimon", table_properties={"bucket": "1"}, group_name="shop")
    return dg.Definitions(
        assets=assets,
        asset_checks=[*checks_for(assets), *lag_checks(assets, timedelta(hours=1))],
        sensors=[lag_sensor(assets, timedelta(0)), foreign_commits(assets)],
        resources={"lake": lake, "shop": CdcSource(url=server.dsn, slot=server.slot, readers=2)},
        executor=dg.in_process_executor,
    )


@pytest.fixture
def run(project, instance):
    def run(*keys, **config):
        job = project.resolve_implicit_global_asset_job_def()
        ops = {key.to_python_identifier(): {"config": config} for key in keys} if config else {}
        return job.execute_in_process(
            instance=instance, asset_selection=keys or None, run_config={"ops": ops}, raise_on_error=False
        )

    return run


@pytest.fixture
def sense(project, instance, lake):
    def sense(name):
        context = dg.build_sensor_context(instance, resources=project.resources, definitions=project)
        return project.resolve_sensor_def(name).evaluate_tick(context)

    return sense


@pytest.mark.other_clock("PostgreSQL")
def test_first_the_rows_that_are_there_then_micro_batches(server, run, lake, instance, sense, project):
    assert {each.op.pool for each in project.assets} == {"lake__shop__orders", "lake__notes"}
    assert {tuple(run_request.asset_selection) for run_request in sense("cdc_lag").run_requests} == {
        (ORDERS,),
        (NOTES,),
    }
    first = run()
    assert first.success
    assert all(asset_check_evaluation.passed for asset_check_evaluation in first.get_asset_check_evaluations())
    (made,) = first.asset_materializations_for_node(ORDERS.to_python_identifier())
    assert made.metadata["cdc/snapshot_rows"].value == 2
    assert made.metadata["cdc/snapshot_is_complete"].value
    assert made.metadata["dagster/column_schema"].schema.columns[0].name == "id"
    assert sense("cdc_lag").skip_message == "shop/orders: 0 s behind; notes: 0 s behind"

    server.execute("ALTER TABLE orders ADD note text; DELETE FROM orders WHERE id = 1")
    server.execute("UPDATE orders SET amount = 21, note = 'dear' WHERE id = 2")
    assert [run_request.asset_selection for run_request in sense("cdc_lag").run_requests] == [[ORDERS]]
    second = run()
    assert not second.asset_materializations_for_node(NOTES.to_python_identifier()), "nothing changed in it"
    (made,) = second.asset_materializations_for_node(ORDERS.to_python_identifier())
    told = {name: value.value for name, value in made.metadata.items() if name.startswith("cdc/")}
    assert (told["cdc/rows"], told["cdc/rows -D"], told["cdc/rows +U"]) == (2, 1, 1)
    assert told["cdc/schema_changes"] == "AddColumn note"
    assert 0 <= told["cdc/lag_seconds"] < 3600
    table = lake.lake.table("shop.orders")
    assert table.scan().to_arrow().to_pylist() == [{"id": 2, "amount": 21, "note": "dear"}]
    assert told["cdc/position"] == table.current_snapshot().properties["cdc.position"]
    assert table.current_snapshot().properties["dagster/run_id"] == second.run_id
    assert "no foreign commit" in sense("foreign_commits").skip_message, "none of them is foreign"


def test_a_database_that_cannot_be_reached_is_tried_again_after_pauses_that_grow(lake, instance, monkeypatch):
    assets = cdc_assets("shop", TABLES)
    resources = {"lake": lake, "shop": CdcSource(url="postgresql://u@127.0.0.1:1/none?connect_timeout=2")}
    lake.lake.create_table("shop.orders", pa.schema([("id", pa.int64())]), primary_key=["id"]).append(
        [{"id": 1}], properties={"cdc.source": "x", "cdc.position": "0/1"}
    )
    defs = dg.Definitions(assets=assets[:1], sensors=[lag_sensor(assets[:1], timedelta(0))], resources=resources)
    context, now, pauses = None, 1_000_000, []
    for _ in range(7):
        monkeypatch.setattr(clock, "now_ms", lambda now=now: now)
        cursor = context and context.cursor
        context = dg.build_sensor_context(instance, resources=resources, definitions=defs, cursor=cursor)
        tick = defs.resolve_sensor_def("cdc_lag").evaluate_tick(context)
        assert "cannot be reached" in tick.skip_message
        context.update_cursor(tick.cursor)
        pauses.append(json.loads(tick.cursor)["shop"][1] - now / 1000)
        context.update_cursor(tick.cursor)
        waits = dg.build_sensor_context(instance, resources=resources, definitions=defs, cursor=tick.cursor)
        assert "next try in" in defs.resolve_sensor_def("cdc_lag").evaluate_tick(waits).skip_message
        now += int(1000 * pauses[-1])
    assert pauses == [30, 60, 120, 240, 480, 600, 600]


@pytest.mark.parametrize("swap", [False, True])
def test_a_table_is_taken_anew_once_and_the_others_go_on(server, run, lake, swap):
    run()
    before = len(lake.lake.table("nyc.notes").snapshots())
    server.execute("TRUNCATE orders; INSERT INTO orders SELECT i, i FROM generate_series(1, 5) i")
    last = lake.lake.table("shop.orders").current_snapshot().id
    made = run(ORDERS, restart=True, swap=swap)
    assert made.success
    (event,) = made.asset_materializations_for_node(ORDERS.to_python_identifier())
    assert event.metadata["cdc/snapshot_rows"].value == 5
    table = lake.lake.table("shop.orders")
    assert table.scan().count() == 5
    assert {snapshot.properties.get("cdc.restart") for snapshot in table.snapshots()} == {None, made.run_id}
    later = [snapshot.id for snapshot in table.snapshots() if snapshot.id > last]
    assert (0 in [table.scan(snapshot_id=id).count() for id in later]) is not swap
    assert len(lake.lake.table("nyc.notes").snapshots()) == before


def test_a_snapshot_that_is_cut_short_goes_on_and_is_materialized_once_it_is_complete(server, run, sense, instance):
    assert not run(ORDERS, max_seconds=1e-6).asset_materializations_for_node(ORDERS.to_python_identifier())
    (check,) = [
        asset_check_evaluation
        for asset_check_evaluation in run(NOTES).get_asset_check_evaluations()
        if asset_check_evaluation.check_name == "lag"
    ]
    assert check.passed
    assert [run_request.asset_selection for run_request in sense("cdc_lag").run_requests] == [[ORDERS]]
    (made,) = run(ORDERS).asset_materializations_for_node(ORDERS.to_python_identifier())
    assert made.metadata["dagster/row_count"].value == 2


def test_tables_share_a_slot_and_each_goes_on_where_it_stands(server, run, lake):
    """Whichever runs first and fails; a table that has a slot of its own from before keeps it."""
    slots = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database() ORDER BY 1"
    own = CdcSource(url=server.dsn, slot=server.slot).open("public.notes")
    sync_table(own, "public.notes", lake.lake, "nyc.notes", properties={"bucket": "1"})
    for number in range(2):
        assert run(ORDERS).success
        server.execute(f"INSERT INTO notes VALUES ({10 + number}, 'b'); UPDATE orders SET amount = {number}")
        assert run(NOTES).success
    assert server.execute(slots).fetchall() == [(server.slot,), (f"{server.slot}_public_notes",)]
    own.drop()
    own.close()
    lake.lake.drop_table("nyc.notes")
    assert run(NOTES).success
    assert server.execute(slots).fetchall() == [(server.slot,)]
    server.execute("UPDATE orders SET amount = 7; ALTER TABLE orders ADD at point; INSERT INTO notes VALUES (20, 'c')")
    for _ in range(2):
        assert not run(ORDERS).success
        server.execute("INSERT INTO notes SELECT max(id) + 1, 'd' FROM notes")
        assert run(NOTES).success
    server.execute("ALTER TABLE orders DROP at")
    assert run().success
    for name, table in (("orders", "shop.orders"), ("notes", "nyc.notes")):
        rows = server.execute(f"SELECT * FROM {name} ORDER BY id").fetchall()
        assert [
            tuple(row.values()) for row in lake.lake.table(table).scan().to_arrow().sort_by("id").to_pylist()
        ] == rows


def test_shards_are_one_asset(server, lake, instance):
    """A shard that comes later makes the asset one that is behind; rows that a filter leaves out do not."""
    pattern, key = re.compile(r"public\.part_\d"), ["table_name", "id"]
    create = (
        "CREATE TABLE {0} (id int PRIMARY KEY); ALTER TABLE {0} REPLICA IDENTITY FULL; INSERT INTO {0} VALUES (1), (9)"
    )
    server.execute(create.format("part_1"))
    filters, keys = {pattern.pattern: "id < 9 AND table_name LIKE 'part%'"}, {pattern.pattern: key}
    assets = cdc_assets("shop", {pattern: "shop.parts"}, primary_keys=keys, row_filters=filters, group_name="shop")
    resources = {"lake": lake, "shop": CdcSource(url=server.dsn, slot=server.slot)}
    sensor = lag_sensor(assets, timedelta(0))

    def materialize():
        assert dg.materialize(assets, instance=instance, resources=resources).success
        return sorted(lake.lake.table("shop.parts").scan(columns=key).to_arrow().to_pylist(), key=str)

    def behind():
        defs = dg.Definitions(assets=assets, sensors=[sensor], resources=resources)
        return sensor.evaluate_tick(dg.build_sensor_context(instance, resources=resources, definitions=defs))

    assert materialize() == [{"table_name": "part_1", "id": 1}]
    assert behind().skip_message == "shop/parts: 0 s behind"
    server.execute("UPDATE part_1 SET id = id + 1 WHERE id = 9")
    assert behind().skip_message == "shop/parts: 0 s behind"
    server.execute(create.format("part_2"))
    assert len(behind().run_requests) == 1
    assert materialize() == [{"table_name": "part_1", "id": 1}, {"table_name": "part_2", "id": 1}]
    with pytest.raises(InvalidInput, match=r"have the same text: a; leave"):
        cdc_assets("shop", {"a": "b", re.compile("a"): "c"})


def test_what_is_wrong_is_said(server, run, instance, lake):
    with pytest.raises(InvalidInput, match=r"primary_keys names 'orders'; the tables are public\.orders"):
        cdc_assets("shop", {"public.orders": "orders"}, primary_keys={"orders": ["id"]})
    with pytest.raises(InvalidInput, match=r"row_filters names 'orders'; the tables are public\.orders"):
        cdc_assets("shop", {"public.orders": "orders"}, row_filters={"orders": "id > 1"})
    server.execute("ALTER TABLE orders DROP CONSTRAINT orders_pkey")
    failed = run(ORDERS)
    (failure,) = [event for event in failed.all_events if event.is_step_failure]
    assert "primary_key=" in failure.step_failure_data.user_failure_data.description
    assert not [event for event in failed.all_events if event.is_step_up_for_retry], "a second try says the same"
    slots = {CdcSource(url="postgresql://x").open(name)._slot for name in ("a.b", "a_b", "A.b", "a." + "b" * 70)}
    assert len(slots) == 4
    with pytest.raises(InvalidInput, match="readers is 0"):
        CdcSource(url="postgresql://x", readers=0)
    assert all(len(slot) <= 63 for slot in slots)


def test_bookings_of_the_demo_come_from_its_database(server, lake, instance, monkeypatch):
    """Where `BOOKING_SYSTEM_DSN` names one, and what they earn follows from them as from made-up ones."""
    server.execute(
        "CREATE TABLE bookings (booking_id text PRIMARY KEY, event_at timestamptz, op text, booked_at timestamptz, flight_date date, "
        "carrier text, flight int, origin text, dest text, cabin text, fare numeric(10, 2))"
    )
    server.execute(
        "INSERT INTO bookings SELECT 'b' || i, now(), 'booked', now(), '2013-03-01', 'UA', i, 'JFK', 'LAX', 'economy', i FROM generate_series(1, 3) i"
    )
    assert booking_system() == {}
    monkeypatch.setenv(BOOKING_SYSTEM_DSN, server.dsn)
    project = runpy.run_path(made_up.__file__, run_name="assets_of_a_database")
    bookings, route_revenue = project["bookings"], project["route_revenue"]
    assert bookings.key in route_revenue.dependency_keys
    made = dg.materialize([bookings], resources={"lake": lake, **booking_system()}, instance=instance)
    assert made.success
    rows = lake.lake.table("nyc.bookings").scan().to_arrow()
    assert set(made_up.EVENT) - {"event_date"} == set(rows.schema.names)
    assert (rows.num_rows, bookings.partitions_def) == (3, None)


def test_yaml_follows_a_database(server, instance, monkeypatch):
    monkeypatch.setenv("SHOP_DSN", server.dsn)
    fields = {
        "lake": ("LakeComponent", {"warehouse": "warehouse", "database": "nyc"}),
        "shop": (
            "LakeCdcComponent",
            {
                "url": {"env": "SHOP_DSN"},
                "tables": TABLES,
                "slot": server.slot,
                "format": "iceberg",
                "schedule": "*/5 * * * *",
                "run_at_lag_seconds": 60,
                "max_lag_seconds": 600,
            },
        ),
    }
    with create_defs_folder_sandbox() as sandbox:
        for name, (kind, attributes) in fields.items():
            folder = sandbox.defs_folder_path / name
            folder.mkdir()
            contents = {"type": f"lakeformat.dagster.{kind}", "attributes": attributes}
            (folder / "defs.yaml").write_text(yaml.safe_dump(contents))
        with sandbox.build_all_defs() as defs:
            repository = defs.get_repository_def()
            assert {schedule_def.name for schedule_def in repository.schedule_defs} == {"follow_database", "sweep"}
            assert "follow_database_at_lag" in {sensor_def.name for sensor_def in repository.sensor_defs}
            assert {job.name for job in repository.get_all_jobs()} >= {"maintain"}
            job = defs.resolve_implicit_global_asset_job_def()
            assert job.execute_in_process(instance=instance).success
            lake = defs.resources["lake"].lake
            assert lake.table("nyc.notes").scan().to_arrow().to_pylist() == [{"id": 1, "text": "a"}]
