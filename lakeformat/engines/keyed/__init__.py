"""Tables with a primary key: merge engines, the places of keys, hash indexes, lookup compaction."""
