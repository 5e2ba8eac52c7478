from typing import Any

from . import DataType, MemoryPool, Scalar

class CastOptions:
    def __init__(self, target_type: DataType | None = None, *, allow_int_overflow: bool | None = None) -> None: ...

class Expression:
    def __and__(self, other: object) -> Expression: ...
    def __or__(self, other: object) -> Expression: ...
    def __invert__(self) -> Expression: ...
    def __eq__(self, other: object) -> Expression: ...  # type: ignore[override]
    def __ne__(self, other: object) -> Expression: ...  # type: ignore[override]
    def __lt__(self, other: object) -> Expression: ...
    def __le__(self, other: object) -> Expression: ...
    def __gt__(self, other: object) -> Expression: ...
    def __ge__(self, other: object) -> Expression: ...
    def cast(self, type: DataType | str | None = None, safe: bool | None = None) -> Expression: ...
    def equals(self, other: Expression) -> bool: ...
    def is_null(self, nan_is_null: bool = False) -> Expression: ...
    def is_valid(self) -> Expression: ...
    def isin(self, values: Any) -> Expression: ...

def field(*name_or_index: Any) -> Expression: ...
def scalar(value: Any) -> Expression: ...
def abs(x: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def abs_checked(x: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def add(x: Any, y: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def add_checked(x: Any, y: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def all(
    array: Any,
    /,
    *,
    skip_nulls: bool = True,
    min_count: int = 1,
    options: Any = None,
    memory_pool: MemoryPool | None = None,
) -> Scalar: ...
def and_(x: Any, y: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def and_kleene(x: Any, y: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def and_not(x: Any, y: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def any(
    array: Any,
    /,
    *,
    skip_nulls: bool = True,
    min_count: int = 1,
    options: Any = None,
    memory_pool: MemoryPool | None = None,
) -> Scalar: ...
def array_sort_indices(
    array: Any,
    /,
    order: str = "ascending",
    *,
    null_placement: str | None = "at_end",
    options: Any = None,
    memory_pool: MemoryPool | None = None,
) -> Any: ...
def ascii_lower(strings: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def ascii_upper(strings: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def binary_join(strings: Any, separator: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def binary_join_element_wise(
    *strings: Any,
    null_handling: str = "emit_null",
    null_replacement: str = "",
    options: Any = None,
    memory_pool: MemoryPool | None = None,
) -> Any: ...
def binary_length(strings: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def binary_slice(
    strings: Any,
    /,
    start: Any,
    stop: int | None = None,
    step: int = 1,
    *,
    options: Any = None,
    memory_pool: MemoryPool | None = None,
) -> Any: ...
def cast(
    arr: Any,
    target_type: DataType | str | None = None,
    safe: bool | None = None,
    options: Any = None,
    memory_pool: MemoryPool | None = None,
) -> Any: ...
def ceil(x: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def coalesce(*values: Any, memory_pool: MemoryPool | None = None) -> Any: ...
def count_distinct(
    array: Any, /, mode: str = "only_valid", *, options: Any = None, memory_pool: MemoryPool | None = None
) -> Scalar: ...
def cumulative_sum(
    values: Any,
    /,
    start: Any = None,
    *,
    skip_nulls: bool = False,
    options: Any = None,
    memory_pool: MemoryPool | None = None,
) -> Any: ...
def dictionary_encode(
    array: Any, /, null_encoding: str = "mask", *, options: Any = None, memory_pool: MemoryPool | None = None
) -> Any: ...
def divide(dividend: Any, divisor: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def divide_checked(dividend: Any, divisor: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def ends_with(
    strings: Any,
    /,
    pattern: str | bytes,
    *,
    ignore_case: bool = False,
    options: Any = None,
    memory_pool: MemoryPool | None = None,
) -> Any: ...
def equal(x: Any, y: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def extract_regex(
    strings: Any, /, pattern: str | bytes, *, options: Any = None, memory_pool: MemoryPool | None = None
) -> Any: ...
def fill_null(values: Any, fill_value: Any) -> Any: ...
def filter(
    input: Any,
    selection_filter: Any,
    /,
    null_selection_behavior: str = "drop",
    *,
    options: Any = None,
    memory_pool: MemoryPool | None = None,
) -> Any: ...
def floor(x: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def floor_temporal(
    timestamps: Any,
    /,
    multiple: int = 1,
    unit: str = "day",
    *,
    week_starts_monday: bool = True,
    ceil_is_strictly_greater: bool = False,
    calendar_based_origin: bool = False,
    options: Any = None,
    memory_pool: MemoryPool | None = None,
) -> Any: ...
def greater(x: Any, y: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def greater_equal(x: Any, y: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def if_else(cond: Any, left: Any, right: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def index_in(
    values: Any,
    /,
    value_set: Any,
    *,
    skip_nulls: bool = False,
    options: Any = None,
    memory_pool: MemoryPool | None = None,
) -> Any: ...
def invert(values: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def is_finite(values: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def is_in(
    values: Any,
    /,
    value_set: Any,
    *,
    skip_nulls: bool = False,
    options: Any = None,
    memory_pool: MemoryPool | None = None,
) -> Any: ...
def is_nan(values: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def is_null(
    values: Any, /, *, nan_is_null: bool = False, options: Any = None, memory_pool: MemoryPool | None = None
) -> Any: ...
def is_valid(values: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def less(x: Any, y: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def less_equal(x: Any, y: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def list_element(lists: Any, index: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def list_flatten(
    lists: Any, /, recursive: bool = False, *, options: Any = None, memory_pool: MemoryPool | None = None
) -> Any: ...
def list_parent_indices(lists: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def list_value_length(lists: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def match_substring(
    strings: Any,
    /,
    pattern: str | bytes,
    *,
    ignore_case: bool = False,
    options: Any = None,
    memory_pool: MemoryPool | None = None,
) -> Any: ...
def match_substring_regex(
    strings: Any,
    /,
    pattern: str | bytes,
    *,
    ignore_case: bool = False,
    options: Any = None,
    memory_pool: MemoryPool | None = None,
) -> Any: ...
def max(
    array: Any,
    /,
    *,
    skip_nulls: bool = True,
    min_count: int = 1,
    options: Any = None,
    memory_pool: MemoryPool | None = None,
) -> Scalar: ...
def min(
    array: Any,
    /,
    *,
    skip_nulls: bool = True,
    min_count: int = 1,
    options: Any = None,
    memory_pool: MemoryPool | None = None,
) -> Scalar: ...
def min_max(
    array: Any,
    /,
    *,
    skip_nulls: bool = True,
    min_count: int = 1,
    options: Any = None,
    memory_pool: MemoryPool | None = None,
) -> Scalar: ...
def multiply(x: Any, y: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def multiply_checked(x: Any, y: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def negate(x: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def negate_checked(x: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def not_equal(x: Any, y: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def or_(x: Any, y: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def or_kleene(x: Any, y: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def rank(
    input: Any,
    /,
    sort_keys: Any = "ascending",
    *,
    null_placement: str | None = None,
    tiebreaker: str = "first",
    options: Any = None,
    memory_pool: MemoryPool | None = None,
) -> Any: ...
def replace_substring(
    strings: Any,
    /,
    pattern: str | bytes,
    replacement: str | bytes,
    *,
    max_replacements: int | None = None,
    options: Any = None,
    memory_pool: MemoryPool | None = None,
) -> Any: ...
def replace_substring_regex(
    strings: Any,
    /,
    pattern: str | bytes,
    replacement: str | bytes,
    *,
    max_replacements: int | None = None,
    options: Any = None,
    memory_pool: MemoryPool | None = None,
) -> Any: ...
def replace_with_mask(
    values: Any, mask: Any, replacements: Any, /, *, memory_pool: MemoryPool | None = None
) -> Any: ...
def round(
    x: Any,
    /,
    ndigits: int = 0,
    round_mode: str = "half_to_even",
    *,
    options: Any = None,
    memory_pool: MemoryPool | None = None,
) -> Any: ...
def run_end_decode(array: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def sign(x: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def sort_indices(
    input: Any,
    /,
    sort_keys: Any = (),
    *,
    null_placement: str | None = None,
    options: Any = None,
    memory_pool: MemoryPool | None = None,
) -> Any: ...
def split_pattern(
    strings: Any,
    /,
    pattern: str | bytes,
    *,
    max_splits: int | None = None,
    reverse: bool = False,
    options: Any = None,
    memory_pool: MemoryPool | None = None,
) -> Any: ...
def starts_with(
    strings: Any,
    /,
    pattern: str | bytes,
    *,
    ignore_case: bool = False,
    options: Any = None,
    memory_pool: MemoryPool | None = None,
) -> Any: ...
def string_is_ascii(strings: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def strftime(
    timestamps: Any,
    /,
    format: str = "%Y-%m-%dT%H:%M:%S",
    locale: str = "C",
    *,
    options: Any = None,
    memory_pool: MemoryPool | None = None,
) -> Any: ...
def struct_field(
    values: Any, /, indices: Any, *, options: Any = None, memory_pool: MemoryPool | None = None
) -> Any: ...
def subtract(x: Any, y: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def subtract_checked(x: Any, y: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def sum(
    array: Any,
    /,
    *,
    skip_nulls: bool = True,
    min_count: int = 1,
    options: Any = None,
    memory_pool: MemoryPool | None = None,
) -> Scalar: ...
def take(data: Any, indices: Any, *, boundscheck: bool = True, memory_pool: MemoryPool | None = None) -> Any: ...
def trunc(x: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def unique(array: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def utf8_length(strings: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def utf8_upper(strings: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def utf8_lower(strings: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
def utf8_lpad(
    strings: Any,
    /,
    width: int,
    padding: str = " ",
    lean_left_on_odd_padding: bool = True,
    *,
    options: Any = None,
    memory_pool: MemoryPool | None = None,
) -> Any: ...
def utf8_ltrim(
    strings: Any, /, characters: str, *, options: Any = None, memory_pool: MemoryPool | None = None
) -> Any: ...
def utf8_rpad(
    strings: Any,
    /,
    width: int,
    padding: str = " ",
    lean_left_on_odd_padding: bool = True,
    *,
    options: Any = None,
    memory_pool: MemoryPool | None = None,
) -> Any: ...
def utf8_rtrim(
    strings: Any, /, characters: str, *, options: Any = None, memory_pool: MemoryPool | None = None
) -> Any: ...
def utf8_slice_codeunits(
    strings: Any,
    /,
    start: Any,
    stop: int | None = None,
    step: int = 1,
    *,
    options: Any = None,
    memory_pool: MemoryPool | None = None,
) -> Any: ...
def utf8_trim(
    strings: Any, /, characters: str, *, options: Any = None, memory_pool: MemoryPool | None = None
) -> Any: ...
def utf8_trim_whitespace(strings: Any, /, *, memory_pool: MemoryPool | None = None) -> Any: ...
