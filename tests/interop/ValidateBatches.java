// What Kafka's leader makes of produced batches: one case per line of the file in, one answer per line out.
// Lines that end with a release in angle brackets are of that release only: classes have moved and changed.

import java.io.BufferedReader;
import java.io.FileReader;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression; // <3.9>
import org.apache.kafka.common.compress.Compression; // <4.4>
import org.apache.kafka.common.errors.CorruptRecordException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.CompressionType; // <2.8>
import org.apache.kafka.common.record.CompressionType; // <3.9>
import org.apache.kafka.common.record.internal.CompressionType; // <4.4>
import org.apache.kafka.common.record.MemoryRecords; // <2.8>
import org.apache.kafka.common.record.MemoryRecords; // <3.9>
import org.apache.kafka.common.record.internal.MemoryRecords; // <4.4>
import org.apache.kafka.common.record.RecordBatch; // <2.8>
import org.apache.kafka.common.record.RecordBatch; // <3.9>
import org.apache.kafka.common.record.internal.RecordBatch; // <4.4>
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.BufferSupplier; // <3.9>
import org.apache.kafka.common.utils.internals.BufferSupplier; // <4.4>
import org.apache.kafka.common.utils.PrimitiveRef; // <3.9>
import org.apache.kafka.common.utils.internals.PrimitiveRef; // <4.4>
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.MetadataVersion; // <3.9>
import org.apache.kafka.storage.internals.log.AppendOrigin; // <3.9>
import org.apache.kafka.storage.internals.log.AppendOrigin; // <4.4>
import org.apache.kafka.storage.internals.log.LogValidator; // <3.9>
import org.apache.kafka.storage.internals.log.LogValidator; // <4.4>
import org.apache.kafka.storage.internals.log.RecordValidationException; // <3.9>
import org.apache.kafka.storage.internals.log.RecordValidationException; // <4.4>
import kafka.common.RecordValidationException; // <2.8>
import kafka.log.LogValidator; // <2.8>

public class ValidateBatches {
    static final TopicPartition PARTITION = new TopicPartition("t", 0);

    public static void main(String[] arguments) throws Exception {
        try (BufferedReader in = new BufferedReader(new FileReader(arguments[0]))) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                try {
                    System.out.println("stored " + run(line.split(" ")));
                } catch (Throwable thrown) {
                    Throwable failure = thrown;
                    if (thrown instanceof RecordValidationException)
                        failure = ((RecordValidationException) thrown).invalidException();
                    String words = failure.getClass().getSimpleName() + ": " + failure.getMessage();
                    System.out.println("refused " + Errors.forException(failure).code() + " " + words.replace("\n", " "));
                }
            }
        }
    }

    // hex, codec or producer, timestamp type, before.max.ms, after.max.ms, compacted, max.decompressed.message.bytes,
    // next offset, leader epoch, now
    static String run(String[] field) throws Exception {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(HexFormat.of().parseHex(field[0])));
        TimestampType timestampType = TimestampType.forName(field[2]);
        long before = Long.parseLong(field[3]), after = Long.parseLong(field[4]);
        boolean compacted = Boolean.parseBoolean(field[5]);
        long nextOffset = Long.parseLong(field[7]);
        int leaderEpoch = Integer.parseInt(field[8]);
        long now = Long.parseLong(field[9]);

        // UnifiedLog.analyzeAndValidateRecords
        CompressionType source = CompressionType.NONE;
        for (RecordBatch batch : records.batches()) {
            if (batch.magic() >= 2 && batch.baseOffset() != 0)
                throw new InvalidRecordException(null);
            if (batch.sizeInBytes() > 1048588)
                throw new RecordTooLargeException((String) null);
            if (!batch.isValid())
                throw new CorruptRecordException((String) null);
            if (CompressionType.forId(batch.compressionType().id) != CompressionType.NONE)
                source = batch.compressionType();
        }
        CompressionType target = field[1].equals("producer") ? source : CompressionType.forName(field[1]);
        Time time = (Time) Proxy.newProxyInstance(ValidateBatches.class.getClassLoader(), new Class<?>[] {Time.class},
            (proxy, method, given) -> method.getName().equals("milliseconds") ? now : method.invoke(Time.SYSTEM, given));
        kafka.common.LongRef offset = new kafka.common.LongRef(nextOffset); // <2.8>
        kafka.message.CompressionCodec[] codecs = { // <2.8>
            kafka.message.CompressionCodec.getCompressionCodec(source.id), // <2.8>
            kafka.message.CompressionCodec.getCompressionCodec(target.id)}; // <2.8>
        LogValidator.ValidationAndOffsetAssignResult done = source == CompressionType.NONE && target == CompressionType.NONE // <2.8>
            ? LogValidator.assignOffsetsNonCompressed(records, PARTITION, offset, now, compacted, timestampType, // <2.8>
                after, leaderEpoch, kafka.log.AppendOrigin.Client$.MODULE$, (byte) 2, STATS) // <2.8>
            : LogValidator.validateMessagesAndAssignOffsetsCompressed(records, PARTITION, offset, time, now, codecs[0], // <2.8>
                codecs[1], compacted, (byte) 2, timestampType, after, leaderEpoch, kafka.log.AppendOrigin.Client$.MODULE$, // <2.8>
                kafka.api.KAFKA_2_8_IV1$.MODULE$, STATS); // <2.8>
        MemoryRecords stored = done.validatedRecords(); // <2.8>
        PrimitiveRef.LongRef offset = PrimitiveRef.ofLong(nextOffset); // <3.9>
        PrimitiveRef.LongRef offset = PrimitiveRef.ofLong(nextOffset); // <4.4>
        MemoryRecords stored = new LogValidator(records, PARTITION, time, source, Compression.of(target).build(), compacted, // <3.9>
            (byte) 2, timestampType, before, after, leaderEpoch, AppendOrigin.CLIENT, MetadataVersion.latestProduction() // <3.9>
        ).validateMessagesAndAssignOffsets(offset, METRICS, BufferSupplier.create()).validatedRecords; // <3.9>
        MemoryRecords stored = new LogValidator(records, PARTITION, time, source, Compression.of(target).build(), compacted, // <4.4>
            (byte) 2, timestampType, before, after, leaderEpoch, AppendOrigin.CLIENT, Integer.parseInt(field[6]) // <4.4>
        ).validateMessagesAndAssignOffsets(offset, METRICS, BufferSupplier.create()).validatedRecords(); // <4.4>
        ByteBuffer buffer = stored.buffer();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return HexFormat.of().formatHex(bytes);
    }

    static final kafka.server.BrokerTopicStats STATS = new kafka.server.BrokerTopicStats(); // <2.8>
    static final LogValidator.MetricsRecorder METRICS = new Metrics(); // <3.9>
    static final LogValidator.MetricsRecorder METRICS = new Metrics(); // <4.4>
    static class Metrics implements LogValidator.MetricsRecorder { // <3.9>
        public void recordInvalidMagic() {} // <3.9>
        public void recordInvalidOffset() {} // <3.9>
        public void recordInvalidSequence() {} // <3.9>
        public void recordInvalidChecksums() {} // <3.9>
        public void recordNoKeyCompactedTopic() {} // <3.9>
    } // <3.9>
    static class Metrics implements LogValidator.MetricsRecorder { // <4.4>
        public void recordInvalidMagic() {} // <4.4>
        public void recordInvalidOffset() {} // <4.4>
        public void recordInvalidSequence() {} // <4.4>
        public void recordInvalidChecksums() {} // <4.4>
        public void recordNoKeyCompactedTopic() {} // <4.4>
    } // <4.4>
}
