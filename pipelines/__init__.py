"""What Dagster runs: jobs, schedules, sensors and checks over the assets. Start at `pipelines/definitions.py`."""

import warnings

import dagster as dg

# Backfill policies and partitioned checks are what this project is about; a line for each asset says nothing new.
warnings.filterwarnings("ignore", category=dg.BetaWarning)
warnings.filterwarnings("ignore", category=dg.PreviewWarning)
