// Paimon's Java engine with one of its catalogs: JSON requests, one to a line, on stdin; JSON answers on stdout. A table's rows are
// of a whole number and a text, or a variant, whose JSON is the answer. `create` adds columns (`more`: name -> type), whose values are
// written as numbers: a timestamp in microseconds.
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.paimon.catalog.Catalog;
import org.apache.paimon.catalog.CatalogContext;
import org.apache.paimon.catalog.CatalogFactory;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.data.BinaryRow;
import org.apache.paimon.data.BinaryString;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.data.Timestamp;
import org.apache.paimon.disk.IOManager;
import org.apache.paimon.options.Options;
import org.apache.paimon.predicate.PredicateBuilder;
import org.apache.paimon.schema.Schema;
import org.apache.paimon.schema.SchemaChange;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.paimon.table.Table;
import org.apache.paimon.table.sink.BatchTableCommit;
import org.apache.paimon.table.sink.BatchTableWrite;
import org.apache.paimon.table.sink.BatchWriteBuilder;
import org.apache.paimon.table.source.ReadBuilder;
import org.apache.paimon.types.DataType;
import org.apache.paimon.types.DataTypeJsonParser;
import org.apache.paimon.types.DataTypeRoot;
import org.apache.paimon.types.DataTypes;
import org.apache.paimon.types.RowKind;

public final class Catalogs {
    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            Map<String, Object> answer = new LinkedHashMap<>();
            try {
                answer.put("answer", run(mapper.readTree(line)));
            } catch (Throwable error) {
                StringWriter trace = new StringWriter();
                error.printStackTrace(new PrintWriter(trace));
                answer.put("error", trace.toString());
            }
            answers.println(mapper.writeValueAsString(answer));
        }
        System.exit(0);
    }

    private static Object run(JsonNode request) throws Exception {
        Map<String, String> options = new LinkedHashMap<>();
        request.get("catalog").fields().forEachRemaining(one -> options.put(one.getKey(), one.getValue().asText()));
        try (Catalog catalog = CatalogFactory.createCatalog(CatalogContext.create(Options.fromMap(options)))) {
            Identifier name = request.has("table") ? Identifier.fromString(request.get("table").asText()) : null;
            switch (request.get("verb").asText()) {
                case "tables":
                    TreeSet<String> names = new TreeSet<>();
                    for (String database : catalog.listDatabases()) {
                        catalog.listTables(database).forEach(table -> names.add(database + "." + table));
                    }
                    return names;
                case "create":
                    catalog.createDatabase(name.getDatabaseName(), true);
                    Schema.Builder schema = Schema.newBuilder();
                    schema.column("id", DataTypes.BIGINT()).column("dt", DataTypes.STRING());
                    if (request.has("more")) {
                        request.get("more").fields().forEachRemaining(
                            one -> schema.column(one.getKey(), DataTypeJsonParser.parseAtomicTypeSQLString(one.getValue().asText())));
                    }
                    request.get("options").fields().forEachRemaining(o -> schema.option(o.getKey(), o.getValue().asText()));
                    if (request.get("keyed").asBoolean()) {
                        schema.primaryKey("id");
                    }
                    catalog.createTable(name, schema.build(), false);
                    return null;
                case "write":
                    return write(catalog.getTable(name), request.get("rows"), request.get("kinds"));
                case "compact":
                    return compact(catalog.getTable(name));
                case "options":
                    return new TreeMap<>(catalog.getTable(name).options());
                case "read":
                    return read(catalog.getTable(name), request.get("equals"));
                case "add_column":
                    catalog.alterTable(name, List.of(SchemaChange.addColumn(request.get("name").asText(), DataTypes.INT())), false);
                    return null;
                case "rename":
                    catalog.renameTable(name, Identifier.fromString(request.get("to").asText()), false);
                    return null;
                case "register":
                    catalog.registerTable(name, request.get("path").asText());
                    return null;
                case "drop":
                    catalog.dropTable(name, false);
                    return null;
                default:
                    throw new IllegalArgumentException("no such verb: " + request.get("verb"));
            }
        }
    }

    private static Object write(Table table, JsonNode rows, JsonNode kinds) throws Exception {
        BatchWriteBuilder builder = table.newBatchWriteBuilder();
        try (BatchTableWrite write = builder.newWrite(); BatchTableCommit commit = builder.newCommit()) {
            write.withIOManager(IOManager.create(System.getProperty("java.io.tmpdir")));
            int written = 0;
            for (JsonNode row : rows) {
                GenericRow made = new GenericRow(table.rowType().getFieldCount());
                made.setField(0, row.get(0).asLong());
                made.setField(1, BinaryString.fromString(row.get(1).asText()));
                for (int at = 2; at < row.size(); at++) {
                    made.setField(at, row.get(at).isNull() ? null : number(table.rowType().getTypeAt(at), row.get(at).asLong()));
                }
                if (kinds != null) {
                    made.setRowKind(RowKind.fromShortString(kinds.get(written++).asText()));
                }
                write.write(made);
            }
            commit.commit(write.prepareCommit());
        }
        return null;
    }

    private static Object number(DataType type, long value) {
        switch (type.getTypeRoot()) {
            case INTEGER:
                return (int) value;
            case BIGINT:
                return value;
            default:
                return Timestamp.fromMicros(value);
        }
    }

    /** Compacts a table of one bucket in full. */
    private static Object compact(Table table) throws Exception {
        BatchWriteBuilder builder = table.newBatchWriteBuilder();
        try (BatchTableWrite write = builder.newWrite(); BatchTableCommit commit = builder.newCommit()) {
            write.withIOManager(IOManager.create(System.getProperty("java.io.tmpdir")));
            write.compact(BinaryRow.EMPTY_ROW, 0, true);
            commit.commit(write.prepareCommit());
        }
        return null;
    }

    /** The rows, or with `equals` (a text) those that may have it in their second column, by the files that are not left out. */
    private static Object read(Table table, JsonNode equals) throws Exception {
        ReadBuilder builder = table.newReadBuilder();
        if (equals != null) {
            builder.withFilter(new PredicateBuilder(table.rowType()).equal(1, BinaryString.fromString(equals.asText())));
        }
        List<Object> rows = new ArrayList<>();
        builder.newRead().createReader(builder.newScan().plan()).forEachRemaining(row -> rows.add(Arrays.asList(row.getLong(0), second(table, row))));
        return rows;
    }

    private static String second(Table table, InternalRow row) {
        if (row.isNullAt(1)) {
            return null;
        }
        boolean isVariant = table.rowType().getTypeAt(1).getTypeRoot() == DataTypeRoot.VARIANT;
        return isVariant ? row.getVariant(1).toJson() : row.getString(1).toString();
    }
}
