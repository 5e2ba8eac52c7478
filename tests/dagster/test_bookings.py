"""Bookings derived from the flights: what a changelog must keep, checked on the rows themselves."""

from datetime import date, timedelta

import pytest

from assets.bookings import MOST_DAYS_AHEAD, MOST_SEATS, earn_by_route, events_of, latest
from assets.nycflights13 import read_days

pytestmark = pytest.mark.spark

FIRST = date(2013, 3, 1)
FLOWN = (FIRST + timedelta(MOST_DAYS_AHEAD)).isoformat()
DAYS = [(FIRST + timedelta(n)).isoformat() for n in range(MOST_DAYS_AHEAD + 1)]


@pytest.fixture(scope="module")
def flights(spark):
    """One day's flights: all that ever happens to their bookings lies in the 30 days before."""
    return spark.createDataFrame(read_days("flights", [FLOWN]))


@pytest.fixture(scope="module")
def events(flights):
    return events_of(flights, DAYS).toArrow().sort_by([("booking_id", "ascending"), ("event_at", "ascending")])


def test_every_seat_is_booked_once_before_the_flight_and_then_changed_or_cancelled_at_most_once(flights, events):
    rows = events.to_pylist()
    booked = [row for row in rows if row["op"] == "booked"]
    assert len(booked) == len({row["booking_id"] for row in rows}) == flights.count() * MOST_SEATS
    histories = {}
    for row in rows:
        histories.setdefault(row["booking_id"], []).append(row)
        assert row["event_date"] == row["event_at"].date() <= row["flight_date"]
    allowed = {("booked",), ("booked", "changed"), ("booked", "cancelled"), ("booked", "changed", "cancelled")}
    assert {tuple(change["op"] for change in history) for history in histories.values()} == allowed
    for history in histories.values():
        assert history[0]["booked_at"] == history[0]["event_at"] == history[-1]["booked_at"]
        assert history[0]["event_date"] < history[0]["flight_date"]
        changed = [change["fare"] for change in history if change["op"] == "changed"]
        assert not changed or (changed[0] > history[0]["fare"] and history[-1]["fare"] == changed[0])
    shares = {op: sum(row["op"] == op for row in rows) / len(booked) for op in ("changed", "cancelled")}
    assert 0.15 < shares["changed"] < 0.22
    assert 0.06 < shares["cancelled"] < 0.10


def test_a_day_alone_gives_the_rows_it_gives_in_a_range(flights, events):
    alone = events_of(flights, DAYS[20:21]).toArrow()
    wanted = [event for event in events.to_pylist() if event["event_date"].isoformat() == DAYS[20]]
    assert sorted(alone.to_pylist(), key=lambda row: row["booking_id"]) == wanted
    assert wanted


def test_the_latest_event_of_each_booking_is_its_state(spark, events):
    state = {row["booking_id"]: row for row in latest(spark.createDataFrame(events)).toArrow().to_pylist()}
    wanted = {event["booking_id"]: event for event in events.to_pylist()}  # In order of time: the last one stays.
    assert {key: row["op"] for key, row in state.items()} == {key: row["op"] for key, row in wanted.items()}
    assert {key: row["fare"] for key, row in state.items()} == {key: row["fare"] for key, row in wanted.items()}


def test_routes_earn_what_was_kept(spark, flights, events):
    state = {event["booking_id"]: event for event in events.to_pylist()}.values()
    rows = earn_by_route(flights, latest(spark.createDataFrame(events))).toArrow().to_pylist()
    assert sum(row["sold"] for row in rows) == len(state)
    assert sum(row["cancelled"] for row in rows) == sum(row["op"] == "cancelled" for row in state)
    assert sum(row["revenue"] or 0 for row in rows) == sum(row["fare"] for row in state if row["op"] != "cancelled")
    assert sum(row["flights"] for row in rows) == flights.count()
