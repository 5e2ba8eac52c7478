"""Values that the YAML of several components has: partitions, freshness, and texts from the environment."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from inspect import signature
from typing import Any, Literal

import dagster as dg
from pydantic import Field

from lakeformat.errors import InvalidInput

TIME_PARTITIONS: Mapping[str, Callable[..., dg.PartitionsDefinition]] = {
    "hourly": dg.HourlyPartitionsDefinition,
    "daily": dg.DailyPartitionsDefinition,
    "weekly": dg.WeeklyPartitionsDefinition,
    "monthly": dg.MonthlyPartitionsDefinition,
}


class TimePartitions(dg.Model):
    """Time-window partitions."""

    type: Literal["hourly", "daily", "weekly", "monthly"]
    start_date: str = Field(description="The first one, e.g. '2026-01-01' (for hours '2026-01-01-00:00').")
    end_date: str | None = Field(default=None, description="The first one that is not among them.")
    timezone: str | None = Field(default=None, description="UTC unless it says otherwise, e.g. 'Europe/Berlin'.")

    def definition(self) -> dg.PartitionsDefinition:
        """The Dagster definition."""
        if self.end_date is not None and self.end_date <= self.start_date:
            raise InvalidInput(f"partitions: end_date={self.end_date} is not after start_date={self.start_date}")
        with _as_invalid("partitions", self):
            return TIME_PARTITIONS[self.type](
                start_date=self.start_date, end_date=self.end_date, timezone=self.timezone
            )


class StaticPartitions(dg.Model):
    """Partitions with a fixed list of keys."""

    type: Literal["static"]
    partition_keys: list[str]

    def definition(self) -> dg.PartitionsDefinition:
        """The Dagster definition."""
        if not self.partition_keys:
            raise InvalidInput("partitions: partition_keys is empty; name the partitions")
        return dg.StaticPartitionsDefinition(self.partition_keys)


class DynamicPartitions(dg.Model):
    """Partitions whose keys are added by sensors and users."""

    type: Literal["dynamic"]
    name: str

    def definition(self) -> dg.PartitionsDefinition:
        """The Dagster definition."""
        return dg.DynamicPartitionsDefinition(name=self.name)


class MultiPartitions(dg.Model):
    """Partitions of two dimensions."""

    type: Literal["multi"]
    dimensions: dict[str, TimePartitions | StaticPartitions | DynamicPartitions]

    def definition(self) -> dg.PartitionsDefinition:
        """The Dagster definition."""
        return dg.MultiPartitionsDefinition(
            {name: dimension.definition() for name, dimension in self.dimensions.items()}
        )


def one_of(*values: str, description: str) -> dg.Resolver:
    """The resolver of a field that is one of `values`. Dagster lets any text stand in YAML, since it may be a template;
    with the pattern `dg check yaml` refuses others. Older versions of 1.13 take no pattern: there loading refuses."""
    if "json_schema_extra" not in signature(dg.Resolver.default).parameters:
        return dg.Resolver.default(description=description)
    pattern = rf"^({'|'.join(values)}|\{{\{{.*\}}\}})$"
    return dg.Resolver.default(description=description, json_schema_extra={"pattern": pattern})


class FromEnv(dg.Model):
    """The value of an environment variable, read when a run needs it; Dagster shows only its name."""

    env: str


Text = str | FromEnv
Partitions = TimePartitions | StaticPartitions | DynamicPartitions | MultiPartitions


@contextmanager
def _as_invalid(field: str, value: Any) -> Iterator[None]:
    """Turn what Dagster refuses into `InvalidInput` that names the field."""
    try:
        yield
    except Exception as error:
        raise InvalidInput(f"{field}: {value}: {error}") from error


class WithinHours(dg.Model):
    """Freshness: how old the last materialization may be."""

    fail_hours: float = Field(description="From this age on, the asset fails its freshness.")
    warn_hours: float | None = Field(default=None, description="From this age on, it warns.")

    def policy(self) -> dg.FreshnessPolicy:
        """The Dagster policy."""
        warn = None if self.warn_hours is None else timedelta(hours=self.warn_hours)
        with _as_invalid("freshness", self):
            return dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=self.fail_hours), warn_window=warn)


class ByDeadline(dg.Model):
    """Freshness: by when a materialization must be there."""

    deadline_cron: str = Field(description="The deadlines, e.g. '0 6 * * *'.")
    lower_bound_hours: float = Field(description="How long before the deadline a materialization counts.")
    timezone: str = Field(default="UTC", description="Of the deadlines.")

    def policy(self) -> dg.FreshnessPolicy:
        """The Dagster policy."""
        with _as_invalid("freshness", self):
            return dg.FreshnessPolicy.cron(
                deadline_cron=self.deadline_cron,
                lower_bound_delta=timedelta(hours=self.lower_bound_hours),
                timezone=self.timezone,
            )


Freshness = WithinHours | ByDeadline


def value_of(text: Text | None) -> Any:
    return dg.EnvVar(text.env) if isinstance(text, FromEnv) else text


@contextmanager
def betas_allowed() -> Iterator[None]:
    """Suppress Dagster's beta warnings: backfill policies are used on purpose, and one warning per table says nothing
    new."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        yield
