"""Addresses of databases: options are obeyed or refused by name, and no error shows a password."""

import ssl
import traceback

import pytest

from lakeformat import InvalidInput
from lakeformat.cdc import MySql, Postgres, open_source
from lakeformat.cdc.mysql import address


@pytest.mark.parametrize(
    ("options", "verify", "has_name"),
    [
        ("ssl_mode=required", ssl.CERT_NONE, False),
        ("ssl_mode=VERIFY_CA", ssl.CERT_REQUIRED, False),
        ("ssl_mode=VERIFY_IDENTITY", ssl.CERT_REQUIRED, True),
        ("ssl_verify_cert=true", ssl.CERT_REQUIRED, False),
        ("ssl_verify_identity=1", ssl.CERT_REQUIRED, True),
        ("ssl_ca={ca}", ssl.CERT_REQUIRED, False),
        ("ssl_ca={ca}&ssl_verify_cert=false", ssl.CERT_NONE, False),
        ("ssl_ca={ca}&ssl_verify_identity=true", ssl.CERT_REQUIRED, True),
    ],
)
def test_tls_is_as_the_address_says(options, verify, has_name):
    ca = ssl.get_default_verify_paths().cafile
    if ca is None and "{ca}" in options:
        pytest.skip("no certificates here")
    settings = address.parse(f"mysql://u:p@h/?{options.format(ca=ca)}").settings
    assert (settings["ssl"].verify_mode, settings["ssl"].check_hostname) == (verify, has_name)


def test_tls_is_used_if_the_server_has_it_and_may_be_disabled():
    assert not {"ssl", "ssl_disabled"} & address.parse("mysql://u:p@h").settings.keys()
    for option in ("ssl_mode=DISABLED", "ssl_disabled=true"):
        assert address.parse(f"mysql://u:p@h?{option}").settings["ssl_disabled"] is True


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("typo=1", "'typo'.*ssl_ca"),
        ("ssl_mode=VERIFY", "VERIFY_IDENTITY"),
        ("ssl_verify_cert=maybe", "true or false"),
        ("ssl_ca=/nonexistent.pem", "/nonexistent.pem"),
        ("ssl_mode=DISABLED&ssl_ca=/x.pem", "'ssl_ca'"),
        ("connect_timeout=soon", "connect_timeout"),
        ("unlogged_cascades=yes", "accept"),
    ],
)
def test_options_that_cannot_be_obeyed_are_refused(option, message):
    with pytest.raises(InvalidInput, match=message):
        MySql(f"mysql://u:secret@h/?{option}")


@pytest.mark.parametrize("scheme", ["mysql", "mariadb", "postgresql", "postgres", "http", "mysq"])
@pytest.mark.parametrize(
    "rest",
    ["u:s3%ZZcret@h/d", "u:s3cret@h:abc/d", "u:s3/cret@h/d", "u:s3#cret@h", "u:s3 cret@[::1/d", "u:s3cret@h/d?typo=1"],
)
def test_no_error_shows_the_password(scheme, rest):
    try:
        open_source(f"{scheme}://{rest}")
    except InvalidInput as error:
        shown = "".join(traceback.format_exception(error)).replace(__file__, "")
        lines = [line for line in shown.splitlines() if not line.startswith(" ")]
        assert "cret" not in "\n".join(lines)
    if scheme == "postgresql":
        assert "cret" not in repr(Postgres("postgresql://u:s3cret@h/d"))


def test_a_server_has_a_name_whose_address_may_change():
    assert open_source("mysql://u:p@h", name="shop").name == "mysql/shop"
    with pytest.raises(InvalidInput, match="is for MySQL"):
        open_source("postgresql://u:p@h/d", name="shop")
