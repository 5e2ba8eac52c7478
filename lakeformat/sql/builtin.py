"""Spark's built-in functions: an unqualified call of one is never a call of a stored function."""

from __future__ import annotations

from sqlglot import exp

from lakeformat.errors import InvalidInput
from lakeformat.sql import text
from lakeformat.sql.text import Piece

_WORDS = """
aes_decrypt aes_encrypt array_repeat array_union arrays_overlap assert_true bigint bin binary bitmap_and_agg bround
btrim cardinality collations collect_union conv count_min_sketch counter_diff crc32 current_path date_part datepart
decimal e every expm1 find_in_set forall format_number from_avro from_csv from_protobuf from_xml get hash
histogram_numeric hll_sketch_agg hll_sketch_estimate hll_union hll_union_agg hmac hypot inline_outer
input_file_block_length input_file_block_start input_file_name is_valid_utf8 is_valid_variant is_variant_null isnotnull
isnull jaro_winkler_similarity java_method json_array_length json_tuple kll_merge_agg_bigint kll_merge_agg_double
kll_merge_agg_float kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float kll_sketch_get_n_bigint
kll_sketch_get_n_double kll_sketch_get_n_float kll_sketch_get_quantile_bigint kll_sketch_get_quantile_double
kll_sketch_get_quantile_float kll_sketch_get_rank_bigint kll_sketch_get_rank_double kll_sketch_get_rank_float
kll_sketch_merge_bigint kll_sketch_merge_double kll_sketch_merge_float kll_sketch_to_string_bigint
kll_sketch_to_string_double kll_sketch_to_string_float log1p luhn_check make_date make_dt_interval make_time
make_timestamp_ltz make_timestamp_ntz make_valid_utf8 make_ym_interval map_concat map_entries map_filter map_values
map_zip_with mask mean measure monotonically_increasing_id named_struct now nullifzero octet_length pmod positive
printf python_worker_logs quote raise_error range reflect regexp schema_of_avro schema_of_csv schema_of_json
schema_of_variant schema_of_variant_agg schema_of_xml sentences session_window shiftrightunsigned smallint some
spark_partition_id
sql_keywords st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid st_srid std theta_difference theta_intersection
theta_intersection_agg theta_sketch_agg theta_sketch_estimate theta_union theta_union_agg time_bucket time_from_micros
time_from_millis time_from_seconds time_to_micros time_to_millis time_to_seconds timestamp_micros timestamp_millis
timestamp_nanos timestamp_seconds tinyint to_avro to_csv to_protobuf to_time to_timestamp_ltz to_timestamp_ntz
to_varchar to_variant_object to_xml transform_keys transform_values try_aes_decrypt try_avg try_make_interval
try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz try_mod try_parse_json try_parse_url try_reflect
try_sum try_to_binary try_to_date try_to_number try_to_time try_to_timestamp try_url_decode try_validate_utf8
try_variant_array_append try_variant_get try_variant_insert try_variant_set tuple_difference_double
tuple_difference_integer tuple_difference_theta_double tuple_difference_theta_integer tuple_intersection_agg_double
tuple_intersection_agg_integer tuple_intersection_double tuple_intersection_integer tuple_intersection_theta_double
tuple_intersection_theta_integer tuple_sketch_agg_double tuple_sketch_agg_integer tuple_sketch_estimate_double
tuple_sketch_estimate_integer tuple_sketch_summary_double tuple_sketch_summary_integer tuple_sketch_theta_double
tuple_sketch_theta_integer tuple_union_agg_double tuple_union_agg_integer tuple_union_double tuple_union_integer
tuple_union_theta_double tuple_union_theta_integer unix_nanos url_decode url_encode user validate_utf8
variant_array_append variant_delete variant_explode variant_explode_outer variant_get variant_insert variant_set
variant_strip_nulls vector_avg vector_cosine_similarity vector_inner_product vector_l2_distance vector_norm
vector_normalize vector_sum version weekday window window_time xpath xpath_boolean xpath_double xpath_float xpath_int
xpath_long xpath_number xpath_short xpath_string xxhash64 zeroifnull zip_with
"""
UNNAMED = frozenset(_WORDS.split())  # Built-in functions of Spark 4.3 that sqlglot does not know, or not as calls.


def is_one(name: str) -> bool:
    """Whether a name is that of a built-in function, or of anything else that the parser reads as syntax."""
    if name.lower() in UNNAMED:
        return True
    try:
        script = text.read(f"{name}(1)")
        called = text.expression(Piece.cut(script, 0, len(script.text)))
    except InvalidInput:  # Quoted names are no built-in's.
        return name.isidentifier() and name.isascii()
    return not isinstance(called, exp.Anonymous)
