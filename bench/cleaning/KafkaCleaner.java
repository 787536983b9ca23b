// Times passes of Kafka's own cleaner, one for each line on standard input; CleanLogs.java finds the classes.
//   java -cp JARS:CLASSES KafkaCleaner      JARS: those of kafka 3.9, or of kafka-storage 4.x
// A line is fields divided by tabs: the log directory, the partition's directory in it, the time, the bytes of the map of
// keys, and settings as name=value. The answer is one line: nanoseconds of the pass alone, nanoseconds of CPU of the whole
// JVM meanwhile (compilers and collector too), and the next first dirty offset.

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.lang.reflect.Proxy;
import java.util.HashMap;
import java.util.Map;
import java.util.function.Consumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;

public class KafkaCleaner {
    // As a broker with one cleaner thread has them: log.cleaner.io.buffer.size in two, max.message.bytes, the load factor.
    static final int BUFFER_BYTES = 512 * 1024 / 2, BUFFER_BYTES_MAX = 1024 * 1024 + 12;
    static final double LOAD_FACTOR = 0.9;

    public static void main(String[] arguments) throws Exception {
        CleanLogs.SCHEDULER.startup();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(clean(line.split("\t")));
            System.out.flush();
        }
        System.exit(0);
    }

    static String clean(String[] fields) throws Exception {
        File root = new File(fields[0]).getAbsoluteFile();
        CleanLogs.now = Long.parseLong(fields[2]);
        Map<String, String> settings = new HashMap<>();
        for (int i = 4; i < fields.length; i++)
            settings.put(fields[i].split("=")[0], fields[i].split("=")[1]);
        Object log = CleanLogs.open(new File(root, fields[1]), new LogConfig(settings), 0);
        try {
            CleanLogs.call(log, "updateHighWatermark", CleanLogs.call(log, "logEndOffset"));
            Object manager = CleanLogs.manager(root, (TopicPartition) CleanLogs.call(log, "topicPartition"), log);
            Object stats = CleanLogs.make(CleanLogs.LOG + "PreCleanStats");
            Object found = CleanLogs.unwrapped(CleanLogs.call(manager, "grabFilthiestCompactedLog", CleanLogs.TIME, stats));
            Object cleaner = cleaner(Integer.parseInt(fields[3]));
            long cpu = cpu(), start = System.nanoTime();
            Object pair = CleanLogs.call(cleaner, "doClean", found, CleanLogs.now);
            long took = System.nanoTime() - start, busy = cpu() - cpu;
            Object end = CleanLogs.SCALA ? CleanLogs.call(pair, "_1") : ((Map.Entry<?, ?>) pair).getKey();
            return took + "\t" + busy + "\t" + end;
        } finally {
            CleanLogs.call(log, "close");
        }
    }

    static Object cleaner(int mapBytes) throws Exception {
        Object done = CleanLogs.SCALA
            ? Proxy.newProxyInstance(KafkaCleaner.class.getClassLoader(), new Class<?>[] {CleanLogs.find("scala.Function1")}, (proxy, method, given) -> null)
            : (Consumer<TopicPartition>) ignored -> { };
        Object throttler = CleanLogs.make("org.apache.kafka.storage.internals.utils.Throttler", Double.MAX_VALUE, 300L, "cleaner-io", "bytes", CleanLogs.TIME);
        return CleanLogs.make(CleanLogs.LOG + "Cleaner", 0, new SkimpyOffsetMap(mapBytes), BUFFER_BYTES, BUFFER_BYTES_MAX,
            LOAD_FACTOR, throttler, CleanLogs.TIME, done);
    }

    static long cpu() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }
}
