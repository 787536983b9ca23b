import java.util.List;
import java.util.Map;
import java.util.Set;

/** What the steps need of a client; one implementation per generation of Kafka's API, in a folder of its own. */
interface Client extends AutoCloseable {
    /** Returns the offsets of the acknowledgements, null where acks is 0. */
    List<Long> produce(String topic, int partition, List<Record> records, String codec, int acks, boolean idempotent)
            throws Exception;

    List<Record> consume(String topic, int partition, long firstOffset, int count) throws Exception;

    /** What was read of a partition up to its end, and where the consumer was after it had stayed there for a while. */
    record Whole(List<Record> records, long position) {}

    /** Reads what is committed up to the end, and stays there. */
    default Whole readCommitted(String topic, int partition) throws Exception {
        throw new UnsupportedOperationException("readCommitted");
    }

    /** Returns the earliest and the end offset. */
    List<Long> offsets(String topic, int partition) throws Exception;

    /** Returns null where no record is that young. */
    default Long offsetAt(String topic, int partition, long timestamp) throws Exception {
        throw new UnsupportedOperationException("offsetAt");
    }

    default void create(String topic, int partitions, Map<String, String> configs) throws Exception {
        throw new UnsupportedOperationException("create");
    }

    List<Integer> describe(String topic) throws Exception;

    default Map<String, String> configs(String topic) throws Exception {
        throw new UnsupportedOperationException("configs");
    }

    default void delete(String topic) throws Exception {
        throw new UnsupportedOperationException("delete");
    }

    default Set<String> topics() throws Exception {
        throw new UnsupportedOperationException("topics");
    }
}
