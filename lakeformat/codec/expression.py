"""Expressions: parsed from SQL text, evaluated over Arrow tables and against file statistics."""

from lakeformat.codec.evaluation import cast, common_type, evaluate, keep, lookup, mask
from lakeformat.codec.pruning import Bounds, may_match, must_match, partition_mask, to_dataset_filter
from lakeformat.codec.sql_text import parse

__all__ = [
    "Bounds",
    "cast",
    "common_type",
    "evaluate",
    "keep",
    "lookup",
    "mask",
    "may_match",
    "must_match",
    "parse",
    "partition_mask",
    "to_dataset_filter",
]
