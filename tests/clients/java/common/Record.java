import java.util.List;

/** A record as it was written or read; timestamp and offset are null where nobody set them or the client sees none. */
record Record(byte[] key, byte[] value, List<Header> headers, Long timestamp, Long offset) {
    static final int READ_MS_MAX = 20_000;
    static final int STAY_MS = 1_000; // at the end of a partition, where nothing comes

    record Header(String key, byte[] value) {}

    Record(byte[] key, byte[] value) {
        this(key, value, List.of(), null, null);
    }

    Record withHeaders(Header... given) {
        return new Record(key, value, List.of(given), timestamp, offset);
    }

    Record withTimestamp(long given) {
        return new Record(key, value, headers, given, offset);
    }
}
