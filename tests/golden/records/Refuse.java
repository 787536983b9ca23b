// Made the answers in refuse.jsonl.gz: one case per line in, one answer per line out, fields of both in run() and main().
//   mvn dependency:copy-dependencies -DoutputDirectory=lib    with org.apache.kafka:kafka-storage:3.9.2 as the dependency
//   javac -cp 'lib/*' Refuse.java && java -cp 'lib/*:.' Refuse < cases > answers

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.CorruptRecordException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.requests.ProduceResponse;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

public class Refuse {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                System.out.println(run(line.split(" ")));
            } catch (Throwable thrown) {
                Throwable failure = thrown;
                List<ProduceResponse.RecordError> recordErrors = List.of();
                if (thrown instanceof RecordValidationException) {
                    failure = ((RecordValidationException) thrown).invalidException();
                    recordErrors = ((RecordValidationException) thrown).recordErrors();
                }
                // E, error code, exception, message, then index:message per record error
                StringBuilder answer = new StringBuilder("E\t" + Errors.forException(failure).code() + "\t"
                    + failure.getClass().getSimpleName() + "\t" + failure.getMessage());
                for (ProduceResponse.RecordError error : recordErrors)
                    answer.append("\t" + error.batchIndex + ":" + error.message);
                System.out.println(answer.toString().replace("\n", " "));
            }
        }
    }

    // hex or -, magic, codec or producer, timestamp type, before.max.ms, after.max.ms, compacted, max.message.bytes,
    // origin, first offset, leader epoch, now
    static String run(String[] field) throws Exception {
        byte[] bytes = HexFormat.of().parseHex(field[0].equals("-") ? "" : field[0]);
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(bytes));
        int maxMessageBytes = Integer.parseInt(field[7]);
        AppendOrigin origin = AppendOrigin.valueOf(field[8]);
        int leaderEpoch = Integer.parseInt(field[10]);
        long now = Long.parseLong(field[11]);

        // UnifiedLog.analyzeAndValidateRecords
        CompressionType source = CompressionType.NONE;
        int validBytes = 0;
        for (RecordBatch batch : records.batches()) {
            if (batch.magic() >= 2 && origin == AppendOrigin.CLIENT && batch.baseOffset() != 0)
                throw new InvalidRecordException(null);
            if (batch.sizeInBytes() > maxMessageBytes)
                throw new RecordTooLargeException((String) null);
            if (!batch.isValid())
                throw new CorruptRecordException((String) null);
            validBytes += batch.sizeInBytes();
            if (CompressionType.forId(batch.compressionType().id) != CompressionType.NONE)
                source = batch.compressionType();
        }
        if (validBytes == 0)
            return "N";

        records = MemoryRecords.readableRecords(ByteBuffer.wrap(bytes, 0, validBytes).slice());
        CompressionType target = field[2].equals("producer") ? source : CompressionType.forName(field[2]);
        Time time = (Time) Proxy.newProxyInstance(Refuse.class.getClassLoader(), new Class<?>[] {Time.class},
            (proxy, method, given) -> method.getName().equals("milliseconds") ? now : method.invoke(Time.SYSTEM, given));
        PrimitiveRef.LongRef offset = PrimitiveRef.ofLong(Long.parseLong(field[9]));
        LogValidator.ValidationResult result = new LogValidator(records, new TopicPartition("t", 0), time, source,
            Compression.of(target).build(), Boolean.parseBoolean(field[6]), Byte.parseByte(field[1]),
            TimestampType.forName(field[3]), Long.parseLong(field[4]), Long.parseLong(field[5]), leaderEpoch, origin,
            MetadataVersion.latestProduction()
        ).validateMessagesAndAssignOffsets(offset, METRICS, BufferSupplier.create());
        if (result.messageSizeMaybeChanged)
            for (RecordBatch batch : result.validatedRecords.batches())
                if (batch.sizeInBytes() > maxMessageBytes)
                    throw new RecordTooLargeException((String) null);
        ByteBuffer buffer = result.validatedRecords.buffer();
        byte[] stored = new byte[buffer.remaining()];
        buffer.get(stored);
        // A, stored bytes, next offset, max timestamp, whether rebuilt
        return "A\t" + HexFormat.of().formatHex(stored) + "\t" + offset.value + "\t" + result.maxTimestampMs + "\t"
            + result.messageSizeMaybeChanged;
    }

    static final LogValidator.MetricsRecorder METRICS = new LogValidator.MetricsRecorder() {
        public void recordInvalidMagic() {}
        public void recordInvalidOffset() {}
        public void recordInvalidSequence() {}
        public void recordInvalidChecksums() {}
        public void recordNoKeyCompactedTopic() {}
    };
}
