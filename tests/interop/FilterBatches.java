// Filters batches as a cleaner does, with Kafka's MemoryRecords.filterTo, by what each line of a file says of them.
//   java -cp JARS FilterBatches.java FILE            JARS: kafka-clients and what it needs
// A line: the batches (hex), now, delete.retention.ms, end of the offset map, whether tombstones of v0 and v1 stay,
// the offset before which the last batch stays, of each batch whether it may go (0, 1), PRODUCER:LAST OFFSET:EPOCH,...,
// KEY=OFFSET,...; divided by tabs. Answered with what is left (hex), or with what went wrong.
// What a filter must decide is that of LogCleaner.cleanInto. For releases before 4.4 the packages have other names.

import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.OptionalLong;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecords.FilterResult;
import org.apache.kafka.common.record.internal.MemoryRecords.RecordFilter;
import org.apache.kafka.common.record.internal.MemoryRecords.RecordFilter.BatchRetention;
import org.apache.kafka.common.record.internal.MemoryRecords.RecordFilter.BatchRetentionResult;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.internals.BufferSupplier;

public class FilterBatches {
    public static void main(String[] arguments) throws Exception {
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String answer;
            try {
                answer = filtered(line.split("\t", -1));
            } catch (Throwable failure) {
                answer = "error: " + failure;
            }
            System.out.println(answer);
        }
    }

    static String filtered(String[] fields) throws Throwable {
        ByteBuffer input = ByteBuffer.wrap(HexFormat.of().parseHex(fields[0]));
        ByteBuffer output = ByteBuffer.allocate(4 * input.remaining() + 100_000);
        MemoryRecords records = MemoryRecords.readableRecords(input);
        Filter filter = new Filter(fields);
        FilterResult result = null;
        for (Method method : MemoryRecords.class.getMethods()) {
            try {
                if (method.getName().equals("filterTo") && method.getParameterCount() == 4)
                    result = (FilterResult) method.invoke(records, filter, output, BufferSupplier.NO_CACHING, Integer.MAX_VALUE);
                else if (method.getName().equals("filterTo"))
                    result = (FilterResult) method.invoke(records, new TopicPartition("a", 0), filter, output, Integer.MAX_VALUE,
                        BufferSupplier.NO_CACHING);
            } catch (java.lang.reflect.InvocationTargetException failure) {
                throw failure.getCause();
            }
        }
        if (result.outputBuffer() != output)
            throw new IllegalStateException("the room was not enough");
        output.flip();
        byte[] left = new byte[output.remaining()];
        output.get(left);
        return HexFormat.of().formatHex(left);
    }

    static class Filter extends RecordFilter {
        final long end, uncleanable;
        final boolean keepsOldTombstones;
        final String mayGo;
        final Map<Long, String[]> producers = new HashMap<>();
        final Map<String, Long> latest = new HashMap<>();
        int number = 0;
        boolean dropsAll;

        Filter(String[] fields) {
            super(Long.parseLong(fields[1]), Long.parseLong(fields[2]));
            end = Long.parseLong(fields[3]);
            keepsOldTombstones = fields[4].equals("1");
            uncleanable = Long.parseLong(fields[5]);
            mayGo = fields[6];
            for (String producer : fields[7].isEmpty() ? new String[0] : fields[7].split(","))
                producers.put(Long.parseLong(producer.split(":")[0]), producer.split(":"));
            for (String key : fields[8].isEmpty() ? new String[0] : fields[8].split(","))
                latest.put(key.split("=")[0], Long.parseLong(key.split("=")[1]));
        }

        @Override
        protected BatchRetentionResult checkBatchRetention(RecordBatch batch) {
            boolean goes = mayGo.charAt(number++) == '1';
            dropsAll = goes && (!batch.isControlBatch() || isOver(batch));
            BatchRetention retention = dropsAll ? BatchRetention.DELETE : BatchRetention.DELETE_EMPTY;
            String[] last = batch.hasProducerId() ? producers.get(batch.producerId()) : null;
            if (last != null) {
                long lastOffset = Long.parseLong(last[1]);
                if (lastOffset >= 0 ? batch.lastOffset() == lastOffset
                        : batch.isControlBatch() && batch.producerEpoch() == Short.parseShort(last[2]))
                    retention = BatchRetention.RETAIN_EMPTY;
            }
            if (batch.nextOffset() == uncleanable)
                retention = BatchRetention.RETAIN_EMPTY;
            return new BatchRetentionResult(retention, goes && batch.isControlBatch());
        }

        @Override
        protected boolean shouldRetainRecord(RecordBatch batch, Record record) {
            if (dropsAll)
                return false;
            if (batch.isControlBatch() || record.offset() >= end)
                return true;
            if (!record.hasKey())
                return false;
            byte[] key = new byte[record.keySize()];
            record.key().duplicate().get(key);
            if (record.offset() < latest.getOrDefault(HexFormat.of().formatHex(key), -1L))
                return false;
            return record.hasValue() || (batch.magic() < 2 ? keepsOldTombstones : !isOver(batch));
        }

        boolean isOver(RecordBatch batch) {
            OptionalLong horizon = batch.deleteHorizonMs();
            return horizon.isPresent() && horizon.getAsLong() <= currentTime;
        }
    }
}
