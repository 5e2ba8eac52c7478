"""Secrets show nowhere: not in reprs, messages, logs or the tracebacks that errors bring along."""

import logging
import pickle
import traceback

import pytest
import requests
import sqlalchemy as sa
from obstore.exceptions import AlreadyExistsError, GenericError, PreconditionError

from lakeformat import InvalidInput, Lake, LakeError, StoreError, errors, redact

SECRET = "hunter2/Secret"


def shown(error):
    return "".join(traceback.format_exception(error)) + repr(error) + str(error)


def asked(folder, **how):
    lake = Lake(folder / "w", **how)
    assert "Secret" not in f"{lake!r} {lake._catalog!r} {lake._catalog.entry('a.t')!r}"
    lake.tables()


@pytest.mark.parametrize(
    "address",
    [
        "postgresql+psycopg//u:{}@h/db",
        "u:{}@h/db",
        "nothing:{}@h",
        "jdbc:postgresql://h/db?user=u&password={}",
        "jdbc:oracle:thin:u/{}@h:1521/db",
        "postgresql+psycopg://127.0.0.1:1/db?connect_timeout=1&password={}",
        "postgresql+psycopg://u:{}@127.0.0.1:1/db?connect_timeout=1",
        "postgresql+psycopg://u:{}@h:port/db",
        "postgresql+psycopg://u:{}@h:99999999/db?connect_timeout=1",
        "nosuchdb://u:{}@h/db",
        "sqlite:////proc/nothing/x?password={}",
        "https://u:{}@127.0.0.1:1",
        "https://127.0.0.1:1/x?token={}",
        "http://u:{}@[bad",
    ],
)
def test_addresses_of_catalogs(tmp_path, caplog, address):
    caplog.set_level(logging.DEBUG, logger="lakeformat")
    for secret in (SECRET, SECRET.replace("/", "%2F")):
        with pytest.raises(LakeError) as raised:
            asked(tmp_path, catalog=address.format(secret))
        assert "Secret" not in shown(raised.value)
        assert isinstance(raised.value, InvalidInput | StoreError)
    assert "Secret" not in caplog.text


@pytest.mark.parametrize(
    "uri", ["https://u:{}@h/w", "s3://key:{}@bucket/w", "abfss://c:{}@account.dfs.core.windows.net/w"]
)
def test_a_password_is_no_part_of_a_warehouse(uri):
    with pytest.raises(InvalidInput, match="give credentials as options") as raised:
        Lake(uri.format(SECRET.replace("/", "")))
    assert "Secret" not in shown(raised.value)
    assert repr(Lake("abfss://container@account.dfs.core.windows.net/w"))


@pytest.mark.parametrize(
    "options",
    [
        {"header.Authorization": "Bearer Secret\n"},
        {"header.X": " Secret"},
        {"header.X": "Secret \u20ac"},
        {"header.X\n": "Secret"},
        {"token": "Secret\r\nx"},
        {"token": "Secret", "header.x-key": "Secret", "credential": "me:Secret"},
    ],
)
def test_options_of_a_rest_catalog(tmp_path, options):
    with pytest.raises(LakeError) as raised:
        asked(tmp_path, catalog="http://127.0.0.1:1", catalog_options=options)
    assert "Secret" not in shown(raised.value)


def test_options_of_a_store():
    hidden = SECRET.replace("/", "")
    for options in ({"google_service_account_key": hidden}, {"service_account_key": "{" + hidden}):
        with pytest.raises(InvalidInput, match="cannot open the store") as raised:
            Lake("gs://bucket/w", **options).tables()
        assert "Secret" not in shown(raised.value)


def test_every_error_redacts_its_message():
    for kind in (value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, LakeError)):
        error = kind("cannot reach postgresql://u:Secret@host:5432/db?sig=Secret&x=1 for s3://bucket/a:b/c@d")
        said = "cannot reach postgresql://u:***@host:5432/db?sig=***&x=1 for s3://bucket/a:b/c@d"
        assert str(error) == str(pickle.loads(pickle.dumps(error))) == said


@pytest.mark.parametrize(
    "text",
    [
        "http://127.0.0.1:8181/catalog/a@b",
        "where token='x'",
        "dt=12:30@x",
        "abfss://c@account/x",
        "s3://b/k=1:2/a@b",
        "a.password",
    ],
)
def test_what_is_no_secret_stays(text):
    assert redact.redacted(text) == text == str(InvalidInput(text))


def test_an_error_is_shown_beneath_another_if_it_and_what_led_to_it_hold_no_secret():
    clean = requests.ConnectionError("no route to host")
    assert redact.cause(clean, "Secret") is clean
    for kind in (ValueError, requests.ConnectionError, PreconditionError, AlreadyExistsError, GenericError):
        found = redact.cause(kind("409 for https://h/x?sig=Secret"))
        assert (type(found), str(found)) == (kind, "409 for https://h/x?sig=***")
    assert redact.cause(sa.exc.OperationalError("Secret", {}, Exception("Secret")), "Secret") is None
    outer = KeyError("x")
    outer.__context__ = ValueError("//u:Secret@h")
    assert shown(redact.cause(outer)).count("Secret") == 0
    assert redact.secrets_in(str(sa.engine.URL.create("postgresql", "u", "p@ss", "h").render_as_string(False))) == (
        "p%40ss", "p@ss",
    )  # fmt: skip
