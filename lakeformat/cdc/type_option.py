"""Options for mapping database column types to table column types, and for values that do not fit."""

from __future__ import annotations

from enum import StrEnum


class TypeOption(StrEnum):
    """How column types are mapped, by the names of Paimon's `type_mapping`."""

    TINYINT1_NOT_BOOL = "tinyint1-not-bool"  # TINYINT(1) and BIT(1) stay numbers.
    TO_NULLABLE = "to-nullable"  # No column but the key is NOT NULL.
    TO_STRING = "to-string"  # Every column is a STRING.
    CHAR_TO_STRING = "char-to-string"  # CHAR(n) and VARCHAR(n) are STRING.
    LONGTEXT_TO_BYTES = "longtext-to-bytes"  # LONGTEXT is BYTES.
    BIGINT_UNSIGNED_TO_BIGINT = "bigint-unsigned-to-bigint"  # Instead of DECIMAL(20, 0).


class OnMisfit(StrEnum):
    """What becomes of a value that its column cannot hold, such as PostgreSQL's `infinity`."""

    STOP = "stop"  # The table stops with an error that names the column.
    NULL = "null"  # The value is NULL in the table, and counted; of a key column, the table stops.
