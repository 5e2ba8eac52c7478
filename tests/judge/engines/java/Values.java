// The wire form of a value: what JSON carries between a test and the Java engine.
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.paimon.data.BinaryString;
import org.apache.paimon.data.Decimal;
import org.apache.paimon.data.GenericArray;
import org.apache.paimon.data.GenericMap;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.data.InternalArray;
import org.apache.paimon.data.InternalMap;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.data.Timestamp;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.types.ArrayType;
import org.apache.paimon.types.DataField;
import org.apache.paimon.types.DataType;
import org.apache.paimon.types.DataTypeJsonParser;
import org.apache.paimon.types.DataTypes;
import org.apache.paimon.types.DecimalType;
import org.apache.paimon.types.MapType;
import org.apache.paimon.types.MultisetType;
import org.apache.paimon.types.RowType;

/** DECIMAL is its plain text, bytes are hex, DATE days, TIME milliseconds, a timestamp nanoseconds since the epoch;
 *  a MAP or MULTISET is a list of pairs, a ROW a list in field order; NaN and the infinities are their names. */
final class Values {
    private static final BigInteger MILLION = BigInteger.valueOf(1_000_000);

    static List<DataField> fields(JsonNode columns) {
        List<DataField> fields = new ArrayList<>();
        int position = 0;
        for (JsonNode column : columns) {
            int id = column.has("id") ? column.get("id").asInt() : position;
            String comment = column.hasNonNull("description") ? column.get("description").asText() : null;
            fields.add(new DataField(id, column.get("name").asText(), type(column.get("type")), comment));
            position++;
        }
        return fields;
    }

    static DataType type(JsonNode node) {
        return DataTypeJsonParser.parseDataType(node);
    }

    static RowType rowOf(JsonNode types) {
        List<DataType> all = new ArrayList<>();
        types.forEach(node -> all.add(type(node)));
        return RowType.of(all.toArray(new DataType[0]));
    }

    static GenericRow row(JsonNode values, RowType type) {
        GenericRow row = new GenericRow(type.getFieldCount());
        for (int i = 0; i < type.getFieldCount(); i++) {
            row.setField(i, in(values.get(i), type.getTypeAt(i)));
        }
        return row;
    }

    static Object in(JsonNode node, DataType type) {
        if (node == null || node.isNull()) {
            return null;
        }
        switch (type.getTypeRoot()) {
            case BOOLEAN:
                return node.asBoolean();
            case TINYINT:
                return (byte) node.asInt();
            case SMALLINT:
                return (short) node.asInt();
            case INTEGER:
            case DATE:
            case TIME_WITHOUT_TIME_ZONE:
                return node.asInt();
            case BIGINT:
                return node.asLong();
            case FLOAT:
                return node.isTextual() ? Float.parseFloat(node.asText()) : (float) node.asDouble();
            case DOUBLE:
                return node.isTextual() ? Double.parseDouble(node.asText()) : node.asDouble();
            case CHAR:
            case VARCHAR:
                return BinaryString.fromString(node.asText());
            case BINARY:
            case VARBINARY:
                return HexFormat.of().parseHex(node.asText());
            case DECIMAL:
                DecimalType decimal = (DecimalType) type;
                return Decimal.fromBigDecimal(
                        new BigDecimal(node.asText()), decimal.getPrecision(), decimal.getScale());
            case TIMESTAMP_WITHOUT_TIME_ZONE:
            case TIMESTAMP_WITH_LOCAL_TIME_ZONE:
                BigInteger nanos = node.bigIntegerValue();
                BigInteger inMilli = nanos.mod(MILLION);
                return Timestamp.fromEpochMillis(
                        nanos.subtract(inMilli).divide(MILLION).longValueExact(), inMilli.intValueExact());
            case ARRAY:
                List<Object> items = new ArrayList<>();
                node.forEach(item -> items.add(in(item, ((ArrayType) type).getElementType())));
                return new GenericArray(items.toArray());
            case MAP:
                Map<Object, Object> entries = new LinkedHashMap<>();
                MapType map = (MapType) type;
                node.forEach(pair -> entries.put(in(pair.get(0), map.getKeyType()), in(pair.get(1), map.getValueType())));
                return new GenericMap(entries);
            case MULTISET:
                Map<Object, Object> counts = new LinkedHashMap<>();
                DataType element = ((MultisetType) type).getElementType();
                node.forEach(pair -> counts.put(in(pair.get(0), element), pair.get(1).asInt()));
                return new GenericMap(counts);
            case ROW:
                return row(node, (RowType) type);
            default:
                throw new UnsupportedOperationException("wire form of " + type);
        }
    }

    static List<Object> out(InternalRow row, RowType type) {
        List<Object> values = new ArrayList<>();
        for (int i = 0; i < type.getFieldCount(); i++) {
            Object value = InternalRow.createFieldGetter(type.getTypeAt(i), i).getFieldOrNull(row);
            values.add(out(value, type.getTypeAt(i)));
        }
        return values;
    }

    static Object out(Object value, DataType type) {
        if (value == null) {
            return null;
        }
        switch (type.getTypeRoot()) {
            case FLOAT:
            case DOUBLE:
                double number = ((Number) value).doubleValue();
                return Double.isFinite(number) ? (Object) number : Double.toString(number);
            case CHAR:
            case VARCHAR:
                return value.toString();
            case BINARY:
            case VARBINARY:
                return HexFormat.of().formatHex((byte[]) value);
            case DECIMAL:
                return ((Decimal) value).toBigDecimal().toPlainString();
            case TIMESTAMP_WITHOUT_TIME_ZONE:
            case TIMESTAMP_WITH_LOCAL_TIME_ZONE:
                Timestamp timestamp = (Timestamp) value;
                return BigInteger.valueOf(timestamp.getMillisecond())
                        .multiply(MILLION)
                        .add(BigInteger.valueOf(timestamp.getNanoOfMillisecond()));
            case ARRAY:
                return list((InternalArray) value, ((ArrayType) type).getElementType());
            case MAP:
                MapType map = (MapType) type;
                return pairs((InternalMap) value, map.getKeyType(), map.getValueType());
            case MULTISET:
                return pairs((InternalMap) value, ((MultisetType) type).getElementType(), DataTypes.INT().notNull());
            case ROW:
                return out((InternalRow) value, (RowType) type);
            default:
                return value;
        }
    }

    private static List<Object> list(InternalArray array, DataType element) {
        InternalArray.ElementGetter getter = InternalArray.createElementGetter(element);
        List<Object> items = new ArrayList<>();
        for (int i = 0; i < array.size(); i++) {
            items.add(out(getter.getElementOrNull(array, i), element));
        }
        return items;
    }

    private static List<Object> pairs(InternalMap map, DataType key, DataType value) {
        List<Object> keys = list(map.keyArray(), key);
        List<Object> values = list(map.valueArray(), value);
        List<Object> pairs = new ArrayList<>();
        for (int i = 0; i < keys.size(); i++) {
            pairs.add(Arrays.asList(keys.get(i), values.get(i)));
        }
        return pairs;
    }
}
