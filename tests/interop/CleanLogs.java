// Cleans logs with Kafka's own cleaner, one pass for each line on standard input:
//   java -cp JARS CleanLogs.java        JARS: those of kafka 3.9, or of kafka-storage 4.x
// A line is fields divided by tabs: the log directory, the partition's directory in it, the time, the most keys the map
// may hold, and settings as name=value. The checkpoint in the log directory says where the dirty part begins.
// The answer is one line: "clean" if there is nothing to clean, "cleaned" with the first dirty offset that it took, the
// first that may not be cleaned, clean and cleanable bytes, whether it was late, and the next first dirty offset, or
// "failed" and why. What differs between the releases is where classes are and what Scala makes of arguments.

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.StringJoiner;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;

public class CleanLogs {
    static final String STORAGE = "org.apache.kafka.storage.internals.log.";
    static final boolean SCALA = find("kafka.log.LogCleanerManager") != null;
    static final String LOG = SCALA ? "kafka.log." : STORAGE;
    static final List<String> TOLD =
        List.of("firstDirtyOffset", "firstUncleanableOffset", "cleanBytes", "cleanableBytes", "needCompactionNow");
    static long now;
    static final Time TIME = (Time) Proxy.newProxyInstance(Time.class.getClassLoader(), new Class<?>[] {Time.class},
        (proxy, method, given) ->
            method.getName().equals("milliseconds") ? (Object) now : method.invoke(Time.SYSTEM, given));
    static final KafkaScheduler SCHEDULER = new KafkaScheduler(1, true, "cleaning-");
    static final LogDirFailureChannel FAILURES = new LogDirFailureChannel(10);

    public static void main(String[] arguments) throws Exception {
        SCHEDULER.startup();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer;
            try {
                answer = clean(line.split("\t"));
            } catch (Throwable failure) {
                Throwable cause = failure;
                while (cause instanceof InvocationTargetException)
                    cause = cause.getCause();
                answer = "failed\t" + cause.toString().replaceAll("\\s+", " ");
                if (arguments.length > 0)
                    cause.printStackTrace();
            }
            System.out.println(answer);
            System.out.flush();
        }
        System.exit(0);
    }

    static String clean(String[] fields) throws Exception {
        File root = new File(fields[0]).getAbsoluteFile(), directory = new File(root, fields[1]);
        now = Long.parseLong(fields[2]);
        Map<String, String> settings = new HashMap<>();
        for (int i = 4; i < fields.length; i++)
            settings.put(fields[i].split("=")[0], fields[i].split("=")[1]);
        long start = Long.parseLong(settings.getOrDefault("log.start", "0"));
        long highWatermark = Long.parseLong(settings.getOrDefault("high.watermark", "-1"));
        settings.remove("log.start");
        settings.remove("high.watermark");
        Object log = open(directory, new LogConfig(settings), start);
        try {
            call(log, "updateHighWatermark", highWatermark < 0 ? call(log, "logEndOffset") : highWatermark);
            TopicPartition partition = (TopicPartition) call(log, "topicPartition");
            Object manager = manager(root, partition, log);
            Object found = unwrapped(call(manager, "grabFilthiestCompactedLog", TIME, make(LOG + "PreCleanStats")));
            if (found == null)
                return "clean";
            Object pair = call(cleaner(Integer.parseInt(fields[3])), "doClean", found, now);
            Object end = SCALA ? call(pair, "_1") : ((Map.Entry<?, ?>) pair).getKey();
            StringJoiner answer = new StringJoiner("\t").add("cleaned");
            for (String name : TOLD)
                answer.add(call(found, name).toString());
            return answer.add(end.toString()).toString();
        } finally {
            call(log, "close");
        }
    }

    static Object open(File directory, LogConfig config, long start) throws Exception {
        ProducerStateManagerConfig producers = new ProducerStateManagerConfig(86_400_000, false);
        if (!SCALA)
            return invoke(find(LOG + "UnifiedLog"), null, "create",
                directory, config, start, 0L, SCHEDULER,
                make("org.apache.kafka.storage.log.metrics.BrokerTopicStats"), TIME, 900_000, producers, 600_000,
                FAILURES, true, Optional.empty());
        return call(module("kafka.log.UnifiedLog$"), "apply", directory, config, start, 0L, SCHEDULER,
            make("kafka.server.BrokerTopicStats", false), TIME, 900_000, producers, 600_000, FAILURES,
            true, module("scala.None$"), true, new ConcurrentHashMap<String, Object>(), false,
            call(module("kafka.log.UnifiedLog$"), "apply$default$17"));
    }

    static Object manager(File root, TopicPartition partition, Object log) throws Exception {
        String name = LOG + "LogCleanerManager";
        if (!SCALA)
            return make(name, List.of(root), new ConcurrentHashMap<>(Map.of(partition, log)), FAILURES);
        Object pool = make("kafka.utils.Pool", module("scala.None$")), none = module("scala.collection.immutable.Nil$");
        call(pool, "put", partition, log);
        return make(name, call(none, "$colon$colon", root), pool, FAILURES);
    }

    static Object cleaner(int keys) throws Exception {
        SkimpyOffsetMap map = new SkimpyOffsetMap(24 * (2 * keys));
        Object isDone = (Consumer<TopicPartition>) ignored -> { };
        if (SCALA)
            isDone = Proxy.newProxyInstance(CleanLogs.class.getClassLoader(), new Class<?>[] {find("scala.Function1")},
                (proxy, method, given) -> null);
        Object throttler = make("org.apache.kafka.storage.internals.utils.Throttler", Double.MAX_VALUE, 300L,
            "cleaner-io", "bytes", TIME);
        return make(LOG + "Cleaner", 0, map, 512 * 1024, 1024 * 1024, 0.5, throttler, TIME, isDone);
    }

    static Object unwrapped(Object option) throws Exception {
        return (boolean) call(option, SCALA ? "isDefined" : "isPresent") ? call(option, "get") : null;
    }

    static Class<?> find(String name) {
        try {
            return Class.forName(name);
        } catch (ClassNotFoundException missing) {
            return null;
        }
    }

    static Object module(String name) throws Exception {
        return find(name).getField("MODULE$").get(null);
    }

    static Object make(String name, Object... arguments) throws Exception {
        for (Constructor<?> constructor : find(name).getDeclaredConstructors()) {
            if (fit(constructor.getParameterTypes(), arguments)) {
                constructor.setAccessible(true);
                return constructor.newInstance(arguments);
            }
        }
        throw new NoSuchMethodException(name);
    }

    static Object call(Object target, String name, Object... arguments) throws Exception {
        return invoke(target.getClass(), target, name, arguments);
    }

    static Object invoke(Class<?> type, Object target, String name, Object... arguments) throws Exception {
        for (Class<?> at = type; at != null; at = at.getSuperclass()) {
            for (Method method : at.getDeclaredMethods()) {
                if (method.getName().equals(name) && fit(method.getParameterTypes(), arguments)) {
                    method.setAccessible(true);
                    return method.invoke(target, arguments);
                }
            }
        }
        throw new NoSuchMethodException(type + "." + name);
    }

    static final Map<Class<?>, Class<?>> BOXES = Map.of(
        int.class, Integer.class, long.class, Long.class, double.class, Double.class, boolean.class, Boolean.class);

    static boolean fit(Class<?>[] types, Object[] arguments) {
        boolean fits = types.length == arguments.length;
        for (int i = 0; fits && i < types.length; i++)
            fits = BOXES.getOrDefault(types[i], types[i]).isInstance(arguments[i]);
        return fits;
    }
}
