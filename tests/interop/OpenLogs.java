// Opens partitions' logs as a broker does, with Kafka's UnifiedLog, says what it finds, appends, and closes them in order.
//   java -cp JARS OpenLogs.java clean|recover|append DIRECTORY...       JARS: kafka-storage and what it needs
// clean: the last stop was clean. recover: it was not, everything is scanned. append: as clean, and a few batches more.
// One line per fact: the directory, what is told, and its fields, divided by tabs.

import java.io.File;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;
import java.util.StringJoiner;
import java.util.TreeMap;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.message.AbortedTxn;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.BatchMetadata;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public class OpenLogs {
    static final long NOW = 1_600_000_200_000L; // the hour of the records: else their producers would have expired

    public static void main(String[] arguments) throws Exception {
        String how = arguments[0];
        Time time = (Time) Proxy.newProxyInstance(Time.class.getClassLoader(), new Class<?>[] {Time.class},
            (proxy, method, given) -> method.getName().equals("milliseconds") ? (Object) NOW : method.invoke(Time.SYSTEM, given));
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        LogConfig config = new LogConfig(Map.of(
            "internal.segment.bytes", "1000", "index.interval.bytes", "200", "segment.index.bytes", "480",
            "message.timestamp.after.max.ms", Long.toString(Long.MAX_VALUE)));
        for (int i = 1; i < arguments.length; i++) {
            String[] named = arguments[i].split("=");
            long start = Long.parseLong(named[1]);
            UnifiedLog log = UnifiedLog.create(new File(named[0]).getAbsoluteFile(), config, start, 0L, scheduler, new BrokerTopicStats(),
                time, 900_000, new ProducerStateManagerConfig(86_400_000, false), 600_000, new LogDirFailureChannel(10),
                !how.equals("recover"), Optional.empty());
            tell(named[0], log);
            if (how.equals("append"))
                append(log);
            log.close();
        }
        scheduler.shutdown();
    }

    static void tell(String name, UnifiedLog log) throws Exception {
        log.updateHighWatermark(log.logEndOffset());
        say(name, "bounds", log.logStartOffset(), log.logEndOffset(), log.lastStableOffset(), log.numberOfSegments());
        long offset = log.logStartOffset();
        while (offset < log.logEndOffset()) {
            FetchDataInfo found = log.read(offset, 300, FetchIsolation.LOG_END, true);
            for (RecordBatch batch : found.records.batches()) {
                batch.ensureValid();
                for (Record record : batch) {
                    if (record.offset() < offset)
                        continue;
                    StringJoiner headers = new StringJoiner(" ");
                    for (Header header : record.headers())
                        headers.add(HexFormat.of().formatHex(header.key().getBytes("UTF-8")) + "=" + hex(header.value()));
                    say(name, "record", record.offset(), record.timestamp(), bytes(record.key()), bytes(record.value()),
                        headers, batch.magic(), batch.compressionType().id, batch.timestampType().id, batch.producerId(),
                        batch.baseSequence(), batch.isControlBatch(), batch.partitionLeaderEpoch());
                }
                offset = batch.nextOffset();
            }
        }
        for (AbortedTxn entry : log.collectAbortedTransactions(log.logStartOffset(), log.logEndOffset()))
            say(name, "aborted", entry.producerId(), entry.firstOffset(), entry.lastOffset(), entry.lastStableOffset());
        new TreeMap<>(log.producerStateManager().activeProducers()).forEach((id, producer) ->
            say(name, "producer", id, producer.producerEpoch(),
                producer.batchMetadata().stream().mapToInt(BatchMetadata::lastSeq).max().orElse(-1),
                producer.lastDataOffset(), producer.coordinatorEpoch(), producer.currentTxnFirstOffset().orElse(-1)));
        log.leaderEpochCache().epochEntries().forEach(entry -> say(name, "epoch", entry.epoch(), entry.startOffset()));
    }

    static void append(UnifiedLog log) throws Exception {
        Compression[] codecs = {Compression.NONE, Compression.gzip().build(), Compression.snappy().build(),
            Compression.lz4().build(), Compression.zstd().build()};
        for (int number = 0; number < 10; number++) {
            SimpleRecord[] records = new SimpleRecord[3];
            for (int i = 0; i < records.length; i++)
                records[i] = new SimpleRecord(NOW + 3 * number + i, "kafka".getBytes(), ("wrote " + number + "/" + i + " ".repeat(40)).getBytes());
            log.appendAsLeader(MemoryRecords.withRecords(codecs[number % codecs.length], records), 20);
        }
        log.appendAsLeader(MemoryRecords.withTransactionalRecords(Compression.NONE, 77L, (short) 0, 0,
            new SimpleRecord(NOW, "kafka".getBytes(), "aborted".getBytes())), 20);
        log.appendAsLeader(MemoryRecords.withEndTransactionMarker(NOW, 77L, (short) 0,
            new EndTransactionMarker(ControlRecordType.ABORT, 0)), 20, AppendOrigin.COORDINATOR, RequestLocal.noCaching(),
            VerificationGuard.SENTINEL, (short) 0);
    }

    static String bytes(ByteBuffer buffer) {
        if (buffer == null)
            return "null";
        byte[] copy = new byte[buffer.remaining()];
        buffer.duplicate().get(copy);
        return hex(copy);
    }

    static String hex(byte[] bytes) {
        return bytes == null ? "null" : HexFormat.of().formatHex(bytes);
    }

    static void say(String name, Object... fields) {
        StringJoiner line = new StringJoiner("\t");
        line.add(name);
        for (Object field : fields)
            line.add(String.valueOf(field));
        System.out.println(line);
    }
}
