"""The folders of a table, and the paths of its root documents."""

from __future__ import annotations

SCHEMA_FOLDER = "schema"
SNAPSHOT_FOLDER = "snapshot"
MANIFEST_FOLDER = "manifest"
TAG_FOLDER = "tag"
CONSUMER_FOLDER = "consumer"
CHANGELOG_FOLDER = "changelog"
BRANCH_FOLDER = "branch"
INDEX_FOLDER = "index"
STATISTICS_FOLDER = "statistics"
MAIN = "main"
# The folders of each branch.
ROOT_FOLDERS = (
    SCHEMA_FOLDER,
    SNAPSHOT_FOLDER,
    TAG_FOLDER,
    CHANGELOG_FOLDER,
    CONSUMER_FOLDER,
)


def schema_path(schema_id: int) -> str:
    return f"{SCHEMA_FOLDER}/schema-{schema_id}"


def snapshot_path(snapshot_id: int) -> str:
    return f"{SNAPSHOT_FOLDER}/snapshot-{snapshot_id}"


def changelog_path(snapshot_id: int) -> str:
    return f"{CHANGELOG_FOLDER}/changelog-{snapshot_id}"


def statistics_path(name: str) -> str:
    return f"{STATISTICS_FOLDER}/{name}"
