"""Where a run of the demo belongs: under its job on Dagster's pages, as runs that a server launches."""

from pathlib import Path

import dagster as dg
from dagster._core.remote_origin import RemoteRepositoryOrigin
from dagster._core.workspace.load import location_origins_from_yaml_paths

WORKSPACE = Path(__file__).parent.parent / "workspace.yaml"
REPOSITORY = "__repository__"  # The one of a module with `Definitions`.
REPOSITORY_TAG, LOCATION = ".dagster/repository", f"{REPOSITORY}@lake"


def show_under_job(instance: dg.DagsterInstance, run_id: str) -> None:
    """Record the location of `workspace.yaml` as the origin of a run of this process, which has the tag
    `REPOSITORY_TAG`: its job's page and the timeline then show it, and the UI can execute it again."""
    run = instance.get_run_by_id(run_id)
    if run is not None and run.tags.get(REPOSITORY_TAG) == LOCATION:
        (location,) = location_origins_from_yaml_paths([str(WORKSPACE)])
        instance.run_storage.replace_job_origin(
            run, RemoteRepositoryOrigin(location, REPOSITORY).get_job_origin(run.job_name)
        )
