import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Map;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.iceberg.AppendFiles;
import org.apache.iceberg.BaseTable;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.PartitionData;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.Schema;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.SortOrder;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.data.GenericFileWriterFactory;
import org.apache.iceberg.data.GenericRecord;
import org.apache.iceberg.data.IcebergGenerics;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.deletes.EqualityDeleteWriter;
import org.apache.iceberg.encryption.Ciphers;
import org.apache.iceberg.encryption.EncryptedFiles;
import org.apache.iceberg.encryption.EncryptedKey;
import org.apache.iceberg.encryption.EncryptingFileIO;
import org.apache.iceberg.encryption.EncryptionManager;
import org.apache.iceberg.encryption.EncryptionUtil;
import org.apache.iceberg.encryption.KeyManagementClient;
import org.apache.iceberg.hadoop.HadoopFileIO;
import org.apache.iceberg.hadoop.HadoopTableOperations;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.io.DataWriter;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.InputFile;
import org.apache.iceberg.io.OutputFileFactory;
import org.apache.iceberg.types.Types;
import org.apache.iceberg.util.ByteBuffers;
import org.apache.iceberg.util.LockManagers;

/**
 * Encrypted tables by Iceberg's own encryption manager: Encrypted folder name format (parquet, avro) key (hex).
 *
 * <p>Prints, for each snapshot, its id and the rows that Iceberg reads: id, partition, text, one row a line.
 */
public final class Encrypted {
  private static final String KEY_ID = "keyA";
  private static final Schema SCHEMA =
      new Schema(
          Types.NestedField.required(1, "id", Types.LongType.get()),
          Types.NestedField.optional(2, "k", Types.StringType.get()),
          Types.NestedField.optional(3, "v", Types.StringType.get()));
  private static final PartitionSpec SPEC = PartitionSpec.builderFor(SCHEMA).identity("k").build();

  public static void main(String[] arguments) throws Exception {
    String location = arguments[0] + "/" + arguments[1];
    FileFormat format = FileFormat.fromString(arguments[2]);
    byte[] key = new byte[arguments[3].length() / 2];
    for (int at = 0; at < key.length; at++) {
      key[at] = (byte) Integer.parseInt(arguments[3].substring(2 * at, 2 * at + 2), 16);
    }
    Operations operations = new Operations(location, new Kms(key));
    Map<String, String> properties =
        Map.of("format-version", "3", "encryption.key-id", KEY_ID, "encryption.data-key-length", String.valueOf(key.length),
            "write.format.default", format.name().toLowerCase(), "write.delete.format.default", format.name().toLowerCase());
    operations.commit(null, TableMetadata.newTableMetadata(SCHEMA, SPEC, SortOrder.unsorted(), location, properties));
    Table table = new BaseTable(operations, arguments[1]);
    AppendFiles append = table.newAppend();
    append.appendFile(data(table, format, "a", 0, 5));
    append.appendFile(data(table, format, "b", 5, 8));
    append.commit();
    table.newAppend().appendFile(data(table, format, "a", 8, 12)).commit();
    DeleteFile deletes = deletes(table, format, "a", 1, 9);
    operations.deleteKeys.put(deletes.location(), deletes.keyMetadata());
    table.newRowDelta().addDeletes(deletes).commit();
    for (Snapshot each : table.snapshots()) {
      System.out.println("snapshot\t" + each.snapshotId());
      try (CloseableIterable<Record> rows = IcebergGenerics.read(table).useSnapshot(each.snapshotId()).build()) {
        rows.forEach(row -> System.out.println(row.get(0) + "\t" + row.get(1) + "\t" + row.get(2)));
      }
    }
  }

  private static DataFile data(Table table, FileFormat format, String k, int start, int end) throws IOException {
    DataWriter<Record> writer =
        new GenericFileWriterFactory.Builder(table).dataFileFormat(format).dataSchema(SCHEMA).build()
            .newDataWriter(files(table, format).newOutputFile(SPEC, of(k)), SPEC, of(k));
    try (Closeable closes = writer) {
      for (long id = start; id < end; id++) {
        writer.write(row(SCHEMA, id, k, "value " + id));
      }
    }
    return writer.toDataFile();
  }

  private static DeleteFile deletes(Table table, FileFormat format, String k, long... ids) throws IOException {
    Schema by = SCHEMA.select("id");
    EqualityDeleteWriter<Record> writer =
        new GenericFileWriterFactory.Builder(table).deleteFileFormat(format).equalityFieldIds(new int[] {1}).equalityDeleteRowSchema(by)
            .build().newEqualityDeleteWriter(files(table, format).newOutputFile(SPEC, of(k)), SPEC, of(k));
    try (Closeable closes = writer) {
      for (long id : ids) {
        writer.write(row(by, id));
      }
    }
    return writer.toDeleteFile();
  }

  private static OutputFileFactory files(Table table, FileFormat format) {
    return OutputFileFactory.builderFor(table, 0, 0).format(format).operationId(UUID.randomUUID().toString()).build();
  }

  private static PartitionData of(String k) {
    PartitionData partition = new PartitionData(SPEC.partitionType());
    partition.set(0, k);
    return partition;
  }

  private static Record row(Schema schema, Object... values) {
    Record made = GenericRecord.create(schema);
    for (int at = 0; at < values.length; at++) {
      made.set(at, values[at]);
    }
    return made;
  }

  /** A KMS of one key, which wraps as Iceberg's own in-memory one does. */
  private record Kms(byte[] key) implements KeyManagementClient {
    @Override
    public ByteBuffer wrapKey(ByteBuffer secret, String id) {
      return ByteBuffer.wrap(new Ciphers.AesGcmEncryptor(key).encrypt(ByteBuffers.toByteArray(secret), null));
    }

    @Override
    public ByteBuffer unwrapKey(ByteBuffer wrapped, String id) {
      return ByteBuffer.wrap(new Ciphers.AesGcmDecryptor(key).decrypt(ByteBuffers.toByteArray(wrapped), null));
    }

    @Override
    public void initialize(Map<String, String> properties) {}
  }

  /** A table in a folder whose commits carry the keys that its manager made, as those of Hive's catalog do. */
  private static final class Operations extends HadoopTableOperations {
    private final KeyManagementClient kms;
    private final Map<String, ByteBuffer> deleteKeys = new HashMap<>(); // Its reader of rows asks for delete files by their names alone.
    private EncryptionManager manager;

    Operations(String location, KeyManagementClient kms) {
      super(new Path(location), new HadoopFileIO(new Configuration()), new Configuration(), LockManagers.defaultLockManager());
      this.kms = kms;
    }

    @Override
    public EncryptionManager encryption() {
      if (manager == null) {
        TableMetadata now = current();
        manager = EncryptionUtil.createEncryptionManager(now.encryptionKeys(), now.properties(), kms);
      }
      return manager;
    }

    @Override
    public FileIO io() {
      return current() == null ? super.io() : EncryptingFileIO.combine(new Files(), encryption());
    }

    @Override
    public void commit(TableMetadata base, TableMetadata made) {
      if (base == null) {
        super.commit(base, made);
        return;
      }
      TableMetadata.Builder builder = TableMetadata.buildFrom(made);
      for (EncryptedKey each : EncryptionUtil.encryptionKeys(encryption()).values()) {
        builder.addEncryptionKey(each);
      }
      super.commit(base, builder.build());
    }

    private final class Files extends HadoopFileIO {
      Files() {
        super(new Configuration());
      }

      @Override
      public InputFile newInputFile(String path) {
        InputFile plain = super.newInputFile(path);
        ByteBuffer key = deleteKeys.get(path);
        return key == null ? plain : encryption().decrypt(EncryptedFiles.encryptedInput(plain, key));
      }
    }
  }
}
