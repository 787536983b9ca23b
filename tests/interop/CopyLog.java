import java.io.File;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/** Opens a log as a broker does after a crash; "copy" appends what a follower gets of a cleaned leader, and dies. */
class CopyLog {
    public static void main(String[] arguments) throws Exception {
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        LogConfig config = new LogConfig(Map.of(
            "internal.segment.bytes", "3000", "cleanup.policy", "compact", "segment.index.bytes", "480"));
        UnifiedLog log = UnifiedLog.create(
            new File(arguments[1]).getAbsoluteFile(), config, 0, 0, scheduler, new BrokerTopicStats(), Time.SYSTEM,
            900_000, new ProducerStateManagerConfig(86_400_000, false), 600_000, new LogDirFailureChannel(10), false,
            Optional.empty());
        if (arguments[0].equals("copy")) {
            for (long first = 0; first < 2000; first += 20) { // every other ten offsets have been cleaned away
                SimpleRecord[] records = new SimpleRecord[10];
                for (int index = 0; index < 10; index++) {
                    records[index] = new SimpleRecord(1000 + first + index, ("k" + index).getBytes(), new byte[100]);
                }
                log.appendAsFollower(
                    MemoryRecords.withRecords(
                        (byte) 2, first, Compression.NONE, TimestampType.CREATE_TIME, -1, (short) -1, -1, 1, false,
                        records),
                    1);
            }
        }
        System.out.println(log.logEndOffset() + " " + log.numberOfSegments());
        Runtime.getRuntime().halt(0);
    }
}
