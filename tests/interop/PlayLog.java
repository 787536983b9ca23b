// Plays one partition's log with Kafka's own UnifiedLog: a command on each line of standard input, an answer on each of
// standard output.
//   java -cp JARS PlayLog.java        JARS: those of kafka-storage 4.4
// Commands, their fields divided by spaces:
//   open DIRECTORY NOW VERIFIES       begin anew in an empty directory
//   append ORIGIN NOW GUARD VERSION BATCH     ORIGIN: CLIENT or COORDINATOR; GUARD: number of a verification or -
//   verify NOW ID EPOCH SEQUENCE SUPPORTS_EPOCH_BUMP
//   high_watermark OFFSET, start OFFSET, truncate NOW OFFSET, roll, expire NOW, reopen NOW
// An answer is what came of it and then the state, divided by " | ": "appended FIRST LAST", "verification NUMBER" (- for
// none), "refused CODE" or "done"; end, high watermark, last stable offset; producers, each as
// id:epoch:sequence:timestamp:coordinator epoch:first offset; aborted transactions, each as id:first offset.

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ScheduledFuture;
import java.util.stream.Collectors;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public class PlayLog {
    static long now;
    static final Time TIME = (Time) Proxy.newProxyInstance(Time.class.getClassLoader(), new Class<?>[] {Time.class},
        (proxy, method, given) ->
            method.getName().equals("milliseconds") ? (Object) now : method.invoke(Time.SYSTEM, given));
    // What is due at once is done at once: a thread that flushes a log which has been closed takes its directory out.
    static final KafkaScheduler SCHEDULER = new KafkaScheduler(1, true, "playing-") {
        @Override
        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            if (delayMs > 0)
                return super.schedule(name, task, delayMs, periodMs);
            task.run();
            return null;
        }
    };
    static final List<Errors> UNEXPECTED = List.of(Errors.UNKNOWN_SERVER_ERROR, Errors.KAFKA_STORAGE_ERROR);
    static final int EXPIRATION_MS = 1000;  // producer.id.expiration.ms
    static UnifiedLog log;
    static boolean verifies;
    static List<VerificationGuard> guards;

    public static void main(String[] arguments) throws Exception {
        SCHEDULER.startup();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String outcome;
            try {
                outcome = carryOut(line.split(" "));
            } catch (Throwable failure) {
                outcome = "refused " + Errors.forException(failure).code();
                if (UNEXPECTED.contains(Errors.forException(failure)))
                    failure.printStackTrace();
            }
            System.out.println(outcome + " | " + state());
            System.out.flush();
        }
        System.exit(0);
    }

    static String carryOut(String[] field) throws Exception {
        long given = field.length > 1 && field[1].matches("\\d+") ? Long.parseLong(field[1]) : 0;
        switch (field[0]) {
            case "open":
                now = Long.parseLong(field[2]);
                verifies = Boolean.parseBoolean(field[3]);
                guards = new ArrayList<>();
                log = open(new File(field[1]), 0);
                return "done";
            case "append":
                now = Long.parseLong(field[2]);
                AppendOrigin origin = AppendOrigin.valueOf(field[1]);
                VerificationGuard guard =
                    field[3].equals("-") ? VerificationGuard.SENTINEL : guards.get(Integer.parseInt(field[3]));
                ByteBuffer batch = ByteBuffer.wrap(HexFormat.of().parseHex(field[5]));
                LogAppendInfo appended = log.appendAsLeader(MemoryRecords.readableRecords(batch), 0, origin,
                    RequestLocal.noCaching(), guard, Short.parseShort(field[4]));
                return "appended " + appended.firstOffset() + " " + appended.lastOffset();
            case "verify":
                now = given;
                VerificationGuard made = log.maybeStartTransactionVerification(Long.parseLong(field[2]),
                    Integer.parseInt(field[4]), Short.parseShort(field[3]), Boolean.parseBoolean(field[5]));
                if (made == VerificationGuard.SENTINEL)
                    return "verification -";
                if (!guards.contains(made))
                    guards.add(made);
                return "verification " + guards.indexOf(made);
            case "high_watermark":
                log.updateHighWatermark(given);
                return "done";
            case "start":
                log.maybeIncrementLogStartOffset(given, LogStartOffsetIncrementReason.ClientRecordDeletion);
                return "done";
            case "truncate":
                now = given;
                log.truncateTo(Long.parseLong(field[2]));
                log.updateHighWatermark(log.highWatermark());  // else the last stable offset is that of before
                return "done";
            case "roll":
                log.roll();
                return "done";
            case "expire":
                now = given;
                log.removeExpiredProducers(now);
                return "done";
            case "reopen":
                now = given;
                long start = log.logStartOffset(), highWatermark = log.highWatermark();
                File directory = log.dir();
                log.close();
                for (File file : directory.listFiles((folder, name) -> name.matches("\\d+\\.(time)?index")))
                    if (file.length() > 1000)  // none has so much in it, and as it is it would count as full
                        Files.write(file.toPath(), new byte[0]);
                log = open(directory, start);
                log.updateHighWatermark(highWatermark);
                return "done";
            default:
                throw new IllegalArgumentException(field[0]);
        }
    }

    static UnifiedLog open(File directory, long start) throws Exception {
        LogConfig config = new LogConfig(Map.of("message.timestamp.after.max.ms", "9223372036854775807"));
        return UnifiedLog.create(directory, config, start, 0, SCHEDULER, new BrokerTopicStats(), TIME, 900_000,
            new ProducerStateManagerConfig(EXPIRATION_MS, verifies), 600_000, new LogDirFailureChannel(10), true,
            Optional.empty());
    }

    static String state() {
        String offsets = log.logEndOffset() + " " + log.highWatermark() + " " + log.lastStableOffset();
        String producers = log.activeProducers().stream()
            .sorted((one, other) -> Long.compare(one.producerId(), other.producerId()))
            .map(each -> each.producerId() + ":" + each.producerEpoch() + ":" + each.lastSequence() + ":"
                + each.lastTimestamp() + ":" + each.coordinatorEpoch() + ":" + each.currentTxnStartOffset())
            .collect(Collectors.joining(" "));
        String aborted = log.collectAbortedTransactions(log.logStartOffset(), log.logEndOffset()).stream()
            .map(each -> each.producerId() + ":" + each.firstOffset())
            .collect(Collectors.joining(" "));
        return offsets + " | " + producers + " | " + aborted;
    }
}
