"""What the text of a statement in MySQL's log says of tables."""

import pytest

from lakeformat.cdc.mysql import statements

TABLES = ["s.t", "s.u", "other.t"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("DROP TABLE t", ["s.t"]),
        ("drop tables if exists `t`, other . t", ["s.t", "other.t"]),
        ("/* a */ -- b\n DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `t`", []),
        ("CREATE TABLE t (id int)", ["s.t"]),
        ("CREATE OR REPLACE TABLE other.t SELECT 1", ["other.t"]),
        ("CREATE TABLE IF NOT EXISTS t (id int)", []),
        ("CREATE TEMPORARY TABLE t (id int)", []),
        ("DROP DATABASE s", ["s.t", "s.u"]),
        ("RENAME TABLE t TO x, u TO t", ["s.u"]),
        ("ALTER TABLE t ADD c int COMMENT 'don''t RENAME x /*', RENAME TO y /* */", ["s.t"]),
        ("ALTER TABLE t RENAME COLUMN a TO b", []),
        ("ALTER TABLE t COMMENT ', RENAME TO y'", []),
    ],
)
def test_tables_that_a_statement_removes(text, expected):
    assert statements.removed(statements.plain(text), "s", TABLES) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ALTER TABLE t /*!50100 TRUNCATE PARTITION p0 */", True),
        ("ALTER TABLE t CONVERT PARTITION p0 TO TABLE x", True),
        ("ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4", True),
        ("ALTER TABLE t ADD a int, drop b", True),
        ("ALTER IGNORE TABLE t ADD UNIQUE (v)", True),
        ("ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a", True),
        ("ALTER TABLE t COMMENT 'DROP PARTITION p0' /* DROP PARTITION p0 */", False),
        ("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (a, b)", True),
        ("ALTER TABLE t DROP FOREIGN KEY f", True),
        ("ALTER TABLE t DROP CONSTRAINT f", True),
        ("ALTER TABLE t ADD c int, DROP INDEX i, ALTER d DROP DEFAULT, RENAME KEY a TO b", False),
    ],
)
def test_statements_that_change_rows_without_the_log(text, expected):
    assert statements.rewrites(statements.plain(text)) is expected


def test_names_that_another_table_takes():
    assert statements.exchanged("RENAME TABLE t TO x, `u` TO s.t", "s") == ["s.t"]
    assert statements.exchanged("RENAME TABLE t TO x", "s") == []


def test_tables_that_a_statement_empties_or_names():
    assert statements.truncated(statements.plain("/*!50000 TRUNCATE TABLE */ `o ``t` . t WAIT 5"), "s") == "o `t.t"
    assert statements.truncated(statements.plain("# a comment\nTRUNCATE t"), "s") == "s.t"
    assert statements.truncated("ALTER TABLE t TRUNCATE PARTITION p", "s") is None
    assert statements.names("ALTER TABLE `t` ADD c int", "s.t")
    assert not statements.names("ALTER TABLE t2 ADD c int", "s.t")
    assert (statements.verb("commit;"), statements.verb("")) == ("COMMIT", "")
