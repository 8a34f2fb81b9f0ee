import java.io.File;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;

/** Prints the records of files as a broker's group coordinator reads them. */
public class Positions {
    public static void main(String[] files) throws Exception {
        var serde = new GroupCoordinatorRecordSerde();
        for (var file : files) {
            try (var records = FileRecords.open(new File(file))) {
                for (var batch : records.batches()) {
                    batch.ensureValid();
                    for (var record : batch) {
                        System.out.println(record.offset() + " " + serde.deserialize(record.key(), record.value()));
                    }
                }
            }
        }
    }
}
