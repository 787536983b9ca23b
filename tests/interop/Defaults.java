import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.Map;
import java.util.Properties;

/** Prints the defaults of a broker's settings, one name=value a line, of whichever release is on the class path. */
public class Defaults {
    public static void main(String[] arguments) throws Exception {
        Class<?> config = Class.forName("kafka.server.KafkaConfig");
        try {
            print(definition(Class.forName("kafka.server.KafkaConfig$").getField("MODULE$").get(null)));
        } catch (ClassNotFoundException | NoSuchMethodException none) { // 0.8: no definitions, only values
            Properties needed = new Properties();
            needed.put("zookeeper.connect", "localhost:1");
            needed.put("broker.id", "1");
            Object made = config.getConstructor(Properties.class).newInstance(needed);
            for (String[] each : OF_0_8) {
                System.out.println(each[0] + "=" + config.getMethod(each[1]).invoke(made));
            }
        }
    }

    static final String[][] OF_0_8 = {
        {"delete.topic.enable", "deleteTopicEnable"},
        {"log.cleaner.enable", "logCleanerEnable"},
        {"log.segment.bytes", "logSegmentBytes"},
        {"message.max.bytes", "messageMaxBytes"},
        {"num.partitions", "numPartitions"},
        {"offsets.retention.minutes", "offsetsRetentionMinutes"},
        {"replica.lag.time.max.ms", "replicaLagTimeMaxMs"},
        {"unclean.leader.election.enable", "uncleanLeaderElectionEnable"},
    };

    static Object definition(Object companion) throws Exception {
        for (Method method : companion.getClass().getDeclaredMethods()) {
            if (method.getName().endsWith("configDef") && method.getParameterCount() == 0) {
                method.setAccessible(true);
                return method.invoke(companion);
            }
        }
        throw new NoSuchMethodException("configDef");
    }

    static void print(Object definition) throws Exception {
        Field kept = definition.getClass().getDeclaredField("configKeys");
        kept.setAccessible(true);
        for (Map.Entry<?, ?> entry : ((Map<?, ?>) kept.get(definition)).entrySet()) {
            Field field = entry.getValue().getClass().getDeclaredField("defaultValue");
            field.setAccessible(true);
            Object value = field.get(entry.getValue());
            if (value == null || value.getClass() != Object.class) { // that one stands for "must be given"
                System.out.println(entry.getKey() + "=" + value);
            }
        }
    }
}
