"""Row-level operations: delete files read and written, changelogs applied, MERGE decided and written."""
