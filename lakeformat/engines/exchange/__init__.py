"""Files of others, which are no table's: CSV, JSON and Parquet files read into rows, and rows written to them, as
Paimon's `COPY INTO` describes (docs: Spark, COPY INTO)."""
