"""The interpreters that there are, by version."""

from tests.package.interpreters import VERSIONS, interpreters

INTERPRETERS = interpreters()


def pytest_terminal_summary(terminalreporter):
    for version in VERSIONS:
        where = INTERPRETERS.get(version, "no interpreter is here, so it was not tried")
        terminalreporter.write_line(f"Python {version}: {where}")
