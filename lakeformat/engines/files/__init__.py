"""Data files: their formats (Parquet, ORC, Avro), names and statistics."""
