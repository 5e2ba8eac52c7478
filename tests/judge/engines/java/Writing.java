// Tables as the Java engine writes them: a table is created, then each step of a recipe is done to it.
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.paimon.AppendOnlyFileStore;
import org.apache.paimon.append.UnawareAppendCompactionTask;
import org.apache.paimon.append.UnawareAppendTableCompactionCoordinator;
import org.apache.paimon.catalog.Catalog;
import org.apache.paimon.crosspartition.GlobalIndexAssigner;
import org.apache.paimon.crosspartition.IndexBootstrap;
import org.apache.paimon.data.BinaryRow;
import org.apache.paimon.disk.IOManager;
import org.apache.paimon.manifest.ManifestEntry;
import org.apache.paimon.operation.AppendOnlyFileStoreWrite;
import org.apache.paimon.options.ExpireConfig;
import org.apache.paimon.schema.Schema;
import org.apache.paimon.schema.SchemaChange;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.table.BucketMode;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.sink.BatchTableCommit;
import org.apache.paimon.table.sink.BatchTableWrite;
import org.apache.paimon.table.sink.BatchWriteBuilder;
import org.apache.paimon.table.sink.CommitMessage;
import org.apache.paimon.types.DataField;
import org.apache.paimon.types.DataType;
import org.apache.paimon.types.RowType;

final class Writing {
    /** Create the table and do the steps. The answer holds, for each step, the snapshot that was the latest after it. */
    static Object write(JsonNode request) throws Exception {
        create(request);
        return steps(request);
    }

    /** Do the steps to a table that is there. */
    static Object steps(JsonNode request) throws Exception {
        List<Object> latest = new ArrayList<>();
        for (JsonNode step : request.get("steps")) {
            take(step, request);
            latest.add(Reading.open(request).snapshotManager().latestSnapshotId());
        }
        return latest;
    }

    private static void create(JsonNode request) throws Exception {
        Schema.Builder schema = Schema.newBuilder();
        for (DataField field : Values.fields(request.get("fields"))) {
            schema.column(field.name(), field.type(), field.description());
        }
        schema.partitionKeys(texts(request.get("partition_by")));
        schema.primaryKey(texts(request.get("primary_key")));
        request.get("options").fields().forEachRemaining(one -> schema.option(one.getKey(), one.getValue().asText()));
        if (request.hasNonNull("comment")) {
            schema.comment(request.get("comment").asText());
        }
        try (Catalog catalog = Reading.catalog(request)) {
            catalog.createDatabase(Reading.identifier(request).getDatabaseName(), true);
            catalog.createTable(Reading.identifier(request), schema.build(), false);
        }
    }

    private static void take(JsonNode step, JsonNode request) throws Exception {
        FileStoreTable table = Reading.open(request);
        switch (step.get("do").asText()) {
            case "append":
                write(table, step.get("rows"), null);
                break;
            case "overwrite_partitions":
                write(table.copy(Map.of("dynamic-partition-overwrite", "true")), step.get("rows"), Map.of());
                break;
            case "overwrite":
                FileStoreTable statically = table.copy(Map.of("dynamic-partition-overwrite", "false"));
                write(statically, step.get("rows"), spec(table, step.get("partition")));
                break;
            case "truncate":
                try (BatchTableCommit commit = table.newBatchWriteBuilder().newCommit()) {
                    commit.truncateTable();
                }
                break;
            case "drop_partitions":
                for (JsonNode partition : step.get("partitions")) {
                    try (Catalog catalog = Reading.catalog(request)) {
                        catalog.dropPartition(Reading.identifier(request), spec(table, partition));
                    }
                }
                break;
            case "alter":
                List<SchemaChange> changes = new ArrayList<>();
                step.get("changes").forEach(change -> changes.add(change(change)));
                try (Catalog catalog = Reading.catalog(request)) {
                    catalog.alterTable(Reading.identifier(request), changes, false);
                }
                break;
            case "tag":
                table.createTag(step.get("name").asText());
                break;
            case "branch":
                String branch = step.get("name").asText();
                if (step.has("tag")) {
                    table.createBranch(branch, step.get("tag").asText());
                } else {
                    table.createBranch(branch);
                }
                break;
            case "fast_forward":
                table.fastForward(step.get("name").asText());
                break;
            case "compact":
                compact(table);
                break;
            case "expire":
                int retained = step.get("retain_last").asInt();
                ExpireConfig config = ExpireConfig.builder()
                        .snapshotRetainMin(retained)
                        .snapshotRetainMax(retained)
                        .snapshotTimeRetain(Duration.ZERO)
                        .build();
                table.newExpireSnapshots().config(config).expire();
                break;
            case "rollback":
                table.rollbackTo(step.get("snapshot").asLong());
                break;
            default:
                throw new IllegalArgumentException("no such step: " + step.get("do"));
        }
    }

    private static void write(FileStoreTable table, JsonNode rows, Map<String, String> overwrite) throws Exception {
        BatchWriteBuilder builder = table.newBatchWriteBuilder();
        if (overwrite != null) {
            builder.withOverwrite(overwrite);
        }
        RowType type = table.rowType();
        try (BatchTableWrite write = builder.newWrite(); BatchTableCommit commit = builder.newCommit()) {
            write.withIOManager(spill());
            if (table.bucketMode() == BucketMode.CROSS_PARTITION) {
                placed(table, rows, write);
            } else {
                for (JsonNode row : rows) {
                    write.write(Values.row(row, type));
                }
            }
            commit.commit(write.prepareCommit());
        }
    }

    /** Each row in the bucket that Paimon's own index of all keys gives it, after the row that deletes the old one. */
    private static void placed(FileStoreTable table, JsonNode rows, BatchTableWrite write) throws Exception {
        try (GlobalIndexAssigner assigner = new GlobalIndexAssigner(table)) {
            assigner.open(0, spill(), 1, 0, (row, bucket) -> {
                try {
                    write.write(row, bucket);
                } catch (Exception error) {
                    throw new RuntimeException(error);
                }
            });
            new IndexBootstrap(table).bootstrap(1, 0, key -> {
                try {
                    assigner.bootstrapKey(key);
                } catch (IOException error) {
                    throw new UncheckedIOException(error);
                }
            });
            assigner.endBoostrap(false);
            for (JsonNode row : rows) {
                assigner.processInput(Values.row(row, table.rowType()));
            }
        }
    }

    /** Five files at a time for an unaware table, however small they are; all of a bucket's files otherwise. */
    private static void compact(FileStoreTable table) throws Exception {
        compactAll(table.copy(Map.of("compaction.max.file-num", "5")));
    }

    private static void compactAll(FileStoreTable table) throws Exception {
        BatchWriteBuilder builder = table.newBatchWriteBuilder();
        if (table.bucketMode() == BucketMode.BUCKET_UNAWARE) {
            AppendOnlyFileStoreWrite write = ((AppendOnlyFileStore) table.store()).newWrite("compaction");
            List<CommitMessage> messages = new ArrayList<>();
            for (UnawareAppendCompactionTask task : new UnawareAppendTableCompactionCoordinator(table, false).run()) {
                messages.add(task.doCompact(table, write));
            }
            write.close();
            try (BatchTableCommit commit = builder.newCommit()) {
                commit.commit(messages);
            }
            return;
        }
        try (BatchTableWrite write = builder.newWrite(); BatchTableCommit commit = builder.newCommit()) {
            write.withIOManager(spill());
            Map<BinaryRow, List<Integer>> buckets = new HashMap<>();
            for (ManifestEntry entry : table.store().newScan().plan().files()) {
                List<Integer> seen = buckets.computeIfAbsent(entry.partition().copy(), key -> new ArrayList<>());
                if (!seen.contains(entry.bucket())) {
                    seen.add(entry.bucket());
                    write.compact(entry.partition().copy(), entry.bucket(), true);
                }
            }
            commit.commit(write.prepareCommit());
        }
    }

    private static SchemaChange change(JsonNode change) {
        String column = change.get(1).asText();
        switch (change.get(0).asText()) {
            case "add":
                DataType type = Values.type(change.get(2));
                return change.size() < 4
                        ? SchemaChange.addColumn(column, type)
                        : SchemaChange.addColumn(column, type, null, move(column, change.get(3)));
            case "rename":
                return SchemaChange.renameColumn(column, change.get(2).asText());
            case "drop":
                return SchemaChange.dropColumn(column);
            case "type":
                return SchemaChange.updateColumnType(column, Values.type(change.get(2)));
            case "nullable":
                return SchemaChange.updateColumnNullability(column, change.get(2).asBoolean());
            case "comment":
                return SchemaChange.updateColumnComment(column, change.get(2).asText());
            case "move":
                return SchemaChange.updateColumnPosition(move(column, change.get(2)));
            case "set":
                return SchemaChange.setOption(column, change.get(2).asText());
            case "unset":
                return SchemaChange.removeOption(column);
            default:
                throw new IllegalArgumentException("no such change: " + change);
        }
    }

    /** A place is null for the first, or the name of the column before it. */
    private static SchemaChange.Move move(String column, JsonNode place) {
        return place.isNull() ? SchemaChange.Move.first(column) : SchemaChange.Move.after(column, place.asText());
    }

    private static Map<String, String> spec(FileStoreTable table, JsonNode partition) {
        Map<String, String> spec = new HashMap<>();
        partition.fields().forEachRemaining(one -> spec.put(
                one.getKey(), one.getValue().isNull() ? table.coreOptions().partitionDefaultName() : one.getValue().asText()));
        return spec;
    }

    private static List<String> texts(JsonNode names) {
        List<String> texts = new ArrayList<>();
        names.forEach(name -> texts.add(name.asText()));
        return texts;
    }

    private static IOManager spill() throws Exception {
        return IOManager.create(Files.createTempDirectory("judge").toString());
    }
}
