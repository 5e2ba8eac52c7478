// Tables as the Java engine reads them: rows at a snapshot or tag, the files that are live, the history.
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.paimon.Snapshot;
import org.apache.paimon.catalog.Catalog;
import org.apache.paimon.catalog.CatalogContext;
import org.apache.paimon.catalog.CatalogFactory;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.fs.Path;
import org.apache.paimon.io.DataFileMeta;
import org.apache.paimon.manifest.ManifestEntry;
import org.apache.paimon.predicate.Predicate;
import org.apache.paimon.predicate.PredicateBuilder;
import org.apache.paimon.schema.SchemaManager;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.source.ReadBuilder;
import org.apache.paimon.table.source.StreamTableScan;
import org.apache.paimon.table.source.TableRead;
import org.apache.paimon.types.DataField;
import org.apache.paimon.types.DataType;
import org.apache.paimon.types.RowType;
import org.apache.paimon.utils.JsonSerdeUtil;

final class Reading {
    static Catalog catalog(JsonNode request) {
        return CatalogFactory.createCatalog(CatalogContext.create(new Path(request.get("warehouse").asText())));
    }

    static Identifier identifier(JsonNode request) {
        return Identifier.fromString(request.get("table").asText());
    }

    static FileStoreTable open(JsonNode request) throws Exception {
        try (Catalog catalog = catalog(request)) {
            return (FileStoreTable) catalog.getTable(identifier(request));
        }
    }

    /** The rows, in wire form, with the columns and their types. */
    static Object read(JsonNode request) throws Exception {
        Map<String, String> at = new LinkedHashMap<>();
        if (request.hasNonNull("snapshot")) {
            at.put("scan.snapshot-id", request.get("snapshot").asText());
        }
        if (request.hasNonNull("tag")) {
            at.put("scan.tag-name", request.get("tag").asText());
        }
        FileStoreTable table = open(request).copy(at);
        ReadBuilder builder = table.newReadBuilder();
        if (request.hasNonNull("columns")) {
            List<Integer> columns = new ArrayList<>();
            request.get("columns").forEach(name -> columns.add(table.rowType().getFieldIndex(name.asText())));
            builder.withProjection(columns.stream().mapToInt(Integer::intValue).toArray());
        }
        if (request.hasNonNull("filter")) {
            builder.withFilter(predicate(request.get("filter"), table.rowType()));
        }
        TableRead read = request.hasNonNull("filter") ? builder.newRead().executeFilter() : builder.newRead();
        RowType type = builder.readType();
        List<Object> rows = new ArrayList<>();
        read.createReader(builder.newScan().plan()).forEachRemaining(row -> rows.add(Values.out(row, type)));
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("columns", columns(type.getFields()));
        answer.put("rows", rows);
        return answer;
    }

    /** What a stream that begins with the first snapshot is told until there is no more: kinds and rows. */
    static Object changes(JsonNode request) throws Exception {
        FileStoreTable table = open(request);
        ReadBuilder builder = table.newReadBuilder();
        StreamTableScan scan = builder.newStreamScan();
        scan.restore(1L);
        List<Object> told = new ArrayList<>();
        while (scan.checkpoint() <= table.snapshotManager().latestSnapshotId()) {
            builder.newRead().createReader(scan.plan()).forEachRemaining(row ->
                    told.add(List.of(row.getRowKind().shortString(), Values.out(row, table.rowType()))));
        }
        return told;
    }

    /** Every live file with what its manifest entry says of it. */
    static Object files(JsonNode request) throws Exception {
        FileStoreTable table = open(request);
        long snapshot = request.hasNonNull("snapshot")
                ? request.get("snapshot").asLong()
                : table.snapshotManager().latestSnapshotId();
        SchemaManager schemas = new SchemaManager(table.fileIO(), table.location());
        RowType partitions = table.store().partitionType();
        List<Object> files = new ArrayList<>();
        for (ManifestEntry entry : table.store().newScan().withSnapshot(snapshot).plan().files()) {
            DataFileMeta file = entry.file();
            RowType type = nullable(schemas.schema(file.schemaId()).logicalRowType());
            List<Object> nulls = new ArrayList<>();
            for (int i = 0; i < file.valueStats().nullCounts().size(); i++) {
                nulls.add(file.valueStats().nullCounts().isNullAt(i) ? null : file.valueStats().nullCounts().getLong(i));
            }
            Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("partition", Values.out(entry.partition(), partitions));
            answer.put("bucket", entry.bucket());
            answer.put("total_buckets", entry.totalBuckets());
            answer.put("name", file.fileName());
            answer.put("size", file.fileSize());
            answer.put("rows", file.rowCount());
            answer.put("schema", file.schemaId());
            answer.put("level", file.level());
            answer.put("sequence", List.of(file.minSequenceNumber(), file.maxSequenceNumber()));
            answer.put("source", file.fileSource().map(Object::toString).orElse(null));
            answer.put("columns", columns(type.getFields()));
            answer.put("min", Values.out(file.valueStats().minValues(), type));
            answer.put("max", Values.out(file.valueStats().maxValues(), type));
            answer.put("nulls", nulls);
            files.add(answer);
        }
        return files;
    }

    /** The latest schema, the snapshots that can be read, the tags. */
    static Object describe(JsonNode request) throws Exception {
        FileStoreTable table = open(request);
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("columns", columns(table.rowType().getFields()));
        answer.put("partition_keys", table.partitionKeys());
        answer.put("primary_keys", table.primaryKeys());
        answer.put("options", table.options());
        answer.put("comment", table.comment().orElse(null));
        List<Object> snapshots = new ArrayList<>();
        table.snapshotManager().snapshots().forEachRemaining(one -> snapshots.add(Map.of(
                "id", one.id(), "schema", one.schemaId(), "kind", one.commitKind().toString(),
                "total", one.totalRecordCount(), "delta", one.deltaRecordCount())));
        answer.put("snapshots", snapshots);
        Map<String, Object> tags = new LinkedHashMap<>();
        for (Map.Entry<Snapshot, List<String>> entry : table.tagManager().tags().entrySet()) {
            entry.getValue().forEach(name -> tags.put(name, entry.getKey().id()));
        }
        answer.put("tags", tags);
        return answer;
    }

    static List<Object> columns(List<DataField> fields) {
        List<Object> columns = new ArrayList<>();
        for (DataField field : fields) {
            columns.add(JsonSerdeUtil.fromJson(JsonSerdeUtil.toFlatJson(field), Map.class));
        }
        return columns;
    }

    private static RowType nullable(RowType type) {
        List<DataField> fields = new ArrayList<>();
        for (DataField field : type.getFields()) {
            fields.add(new DataField(field.id(), field.name(), field.type().copy(true), field.description()));
        }
        return new RowType(fields);
    }

    /** A condition is [operator, ...]: ["and", c, c], ["or", c, c], ["in", column, [values]], ["=", column, value]. */
    private static Predicate predicate(JsonNode condition, RowType type) {
        PredicateBuilder builder = new PredicateBuilder(type);
        String operator = condition.get(0).asText();
        if (operator.equals("and") || operator.equals("or")) {
            List<Predicate> parts = new ArrayList<>();
            for (int i = 1; i < condition.size(); i++) {
                parts.add(predicate(condition.get(i), type));
            }
            return operator.equals("and") ? PredicateBuilder.and(parts) : PredicateBuilder.or(parts);
        }
        int column = type.getFieldIndex(condition.get(1).asText());
        DataType of = type.getTypeAt(column);
        if (operator.equals("in")) {
            List<Object> values = new ArrayList<>();
            condition.get(2).forEach(value -> values.add(Values.in(value, of)));
            return builder.in(column, values);
        }
        Object value = Values.in(condition.get(2), of);
        switch (operator) {
            case "=":
                return builder.equal(column, value);
            case "!=":
                return builder.notEqual(column, value);
            case "<":
                return builder.lessThan(column, value);
            case "<=":
                return builder.lessOrEqual(column, value);
            case ">":
                return builder.greaterThan(column, value);
            case ">=":
                return builder.greaterOrEqual(column, value);
            case "is_null":
                return builder.isNull(column);
            case "is_not_null":
                return builder.isNotNull(column);
            case "starts_with":
                return builder.startsWith(column, value);
            default:
                throw new IllegalArgumentException("no such operator: " + operator);
        }
    }
}
