"""Tables with a primary key: merging the rows of a key, where keys have their rows, hash indexes, lookup compaction."""
