// What the Java engine's own classes make of given rows: bytes, hashes, buckets, partition paths, column bounds.
import java.io.ByteArrayOutputStream;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.paimon.codegen.CodeGenUtils;
import org.apache.paimon.data.BinaryRow;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.data.serializer.InternalRowSerializer;
import org.apache.paimon.data.serializer.InternalSerializers;
import org.apache.paimon.data.serializer.Serializer;
import org.apache.paimon.format.SimpleColStats;
import org.apache.paimon.memory.MemorySegment;
import org.apache.paimon.schema.TableSchema;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.statistics.SimpleColStatsCollector;
import org.apache.paimon.table.sink.FixedBucketRowKeyExtractor;
import org.apache.paimon.table.sink.KeyAndBucketExtractor;
import org.apache.paimon.types.DataType;
import org.apache.paimon.types.RowType;
import org.apache.paimon.utils.InternalRowPartitionComputer;
import org.apache.paimon.utils.MurmurHashUtils;
import org.apache.paimon.utils.PartitionPathUtils;
import org.apache.paimon.utils.RoaringBitmap64;
import org.apache.paimon.utils.SerializationUtils;

final class Vectors {
    /** Row bytes from the plain serializer and from generated code, and the manifest form (arity first). */
    static Object binaryRows(JsonNode request) {
        List<Object> answers = new ArrayList<>();
        for (JsonNode one : request.get("rows")) {
            RowType type = Values.rowOf(one.get("types"));
            GenericRow row = Values.row(one.get("row"), type);
            BinaryRow plain = new InternalRowSerializer(type).toBinaryRow(row);
            BinaryRow generated = projected(type, row);
            Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("serializer", hex(plain.toBytes()));
            answer.put("codegen", hex(generated.toBytes()));
            answer.put("manifest", hex(SerializationUtils.serializeBinaryRow(plain)));
            answer.put("manifest_codegen", hex(SerializationUtils.serializeBinaryRow(generated)));
            answer.put("back", Values.out(generated, type));
            answers.add(answer);
        }
        return answers;
    }

    /** The hash of each key row and the bucket the table's own extractor gives it, for each bucket count. */
    static Object buckets(JsonNode request) {
        RowType type = Values.rowOf(request.get("types"));
        List<Integer> hashes = new ArrayList<>();
        for (JsonNode values : request.get("rows")) {
            hashes.add(KeyAndBucketExtractor.bucketKeyHashCode(projected(type, Values.row(values, type)).copy()));
        }
        Map<String, Object> buckets = new LinkedHashMap<>();
        for (JsonNode count : request.get("counts")) {
            Map<String, String> options = Map.of(
                    "bucket", count.asText(), "bucket-key", String.join(",", type.getFieldNames()));
            TableSchema schema = new TableSchema(
                    0, type.getFields(), type.getFieldCount(), List.of(), List.of(), options, null);
            FixedBucketRowKeyExtractor extractor = new FixedBucketRowKeyExtractor(schema);
            List<Integer> numbers = new ArrayList<>();
            for (JsonNode values : request.get("rows")) {
                extractor.setRecord(Values.row(values, type));
                numbers.add(extractor.bucket());
            }
            buckets.put(count.asText(), numbers);
        }
        return Map.of("hashes", hashes, "buckets", buckets);
    }

    static Object murmur(JsonNode request) {
        List<Object> hashes = new ArrayList<>();
        for (JsonNode text : request.get("bytes")) {
            byte[] bytes = HexFormat.of().parseHex(text.asText());
            hashes.add(MurmurHashUtils.hashBytesByWords(MemorySegment.wrap(bytes), 0, bytes.length));
        }
        return hashes;
    }

    /** The bytes of each set, and of the union of each with the first; each set is ranges of (start, count, step). */
    static Object roaring64(JsonNode request) throws Exception {
        List<Object> answers = new ArrayList<>();
        byte[] first = null;
        for (JsonNode ranges : request.get("sets")) {
            RoaringBitmap64 bitmap = new RoaringBitmap64();
            for (JsonNode range : ranges) {
                for (long i = 0; i < range.get(1).asLong(); i++) {
                    bitmap.add(range.get(0).asLong() + i * range.get(2).asLong());
                }
            }
            byte[] own = bitmap.serialize();
            first = first == null ? own : first;
            RoaringBitmap64 other = new RoaringBitmap64();
            other.deserialize(first);
            bitmap.or(other);
            Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("bytes", hex(own));
            answer.put("with_first", hex(bitmap.serialize()));
            answers.add(answer);
        }
        return answers;
    }

    /** Whether bytes (hex) hold the same numbers as other bytes, by the engine's own reading. */
    static Object sameRoaring64(JsonNode request) throws Exception {
        List<Object> answers = new ArrayList<>();
        for (JsonNode pair : request.get("pairs")) {
            RoaringBitmap64 one = new RoaringBitmap64();
            RoaringBitmap64 other = new RoaringBitmap64();
            one.deserialize(HexFormat.of().parseHex(pair.get(0).asText()));
            other.deserialize(HexFormat.of().parseHex(pair.get(1).asText()));
            answers.add(one.equals(other));
        }
        return answers;
    }

    static Object partitionPaths(JsonNode request) {
        List<Object> answers = new ArrayList<>();
        for (JsonNode one : request.get("rows")) {
            RowType type = new RowType(Values.fields(one.get("fields")));
            InternalRowPartitionComputer computer = new InternalRowPartitionComputer(
                    "__DEFAULT_PARTITION__", type, type.getFieldNames().toArray(new String[0]));
            InternalRow row = Values.row(one.get("row"), type);
            answers.add(PartitionPathUtils.generatePartitionPath(computer.generatePartValues(row)));
        }
        return answers;
    }

    @SuppressWarnings("unchecked")
    static Object bounds(JsonNode request) {
        List<Object> answers = new ArrayList<>();
        for (JsonNode one : request.get("columns")) {
            DataType type = Values.type(one.get("type"));
            Serializer<Object> serializer = (Serializer<Object>) (Serializer<?>) InternalSerializers.create(type);
            SimpleColStatsCollector collector = SimpleColStatsCollector.from(one.get("mode").asText()).create();
            for (JsonNode value : one.get("values")) {
                collector.collect(Values.in(value, type), serializer);
            }
            SimpleColStats stats = collector.result();
            Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("min", Values.out(stats.min(), type));
            answer.put("max", Values.out(stats.max(), type));
            answer.put("null_count", stats.nullCount());
            answers.add(answer);
        }
        return answers;
    }

    private static BinaryRow projected(RowType type, GenericRow row) {
        int[] all = IntStream.range(0, type.getFieldCount()).toArray();
        return CodeGenUtils.newProjection(type, all).apply(row);
    }

    private static String hex(byte[] bytes) {
        return HexFormat.of().formatHex(bytes);
    }
}
