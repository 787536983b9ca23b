/* Made producer-steps.jsonl: java -cp "CLASSES:JARS/*" ProducerSteps 50 60 | grep "^{" > producer-steps.jsonl, with kafka-storage 4.4.0 and what it needs.

Walks through what a partition's leader takes of idempotent and transactional producers: batches and markers by chance, right and wrong ones, appended to
a real log of Kafka's. Each line is one step: what was done, what came of it, the last stable offset, and all that is known of each producer after it. */
import java.io.File;
import java.lang.reflect.Proxy;
import java.nio.file.Files;
import java.util.*;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.record.*;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.*;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public class ProducerSteps {
  static Random chance; static UnifiedLog log; static IdentityHashMap<VerificationGuard, Integer> names; static List<VerificationGuard> guards;
  static int pick(int... w) { int sum = 0; for (int x : w) sum += x; int n = chance.nextInt(sum); for (int i = 0; i < w.length; i++) { n -= w[i]; if (n < 0) return i; } return 0; }
  static final long[] IDS = {7, 8};

  static String states() {
    List<String> l = new ArrayList<>();
    for (long id : IDS) { ProducerStateEntry e = log.producerStateManager().activeProducers().get(id); if (e == null) continue;
      List<String> b = new ArrayList<>();
      for (BatchMetadata m : e.batchMetadata()) b.add("[" + m.lastSeq() + "," + m.lastOffset() + "," + m.offsetDelta() + "]");
      l.add("[" + id + "," + e.producerEpoch() + "," + e.coordinatorEpoch() + "," + e.lastTimestamp() + "," + e.currentTxnFirstOffset().orElse(-1) + ",[" + String.join(",", b) + "]]"); }
    return "[" + String.join(",", l) + "]";
  }
  static String line;
  static void tail(String result) {
    System.out.println("{" + line + ",\"result\":" + result + ",\"end\":" + log.logEndOffset() + ",\"high_watermark\":" + log.highWatermark() + ",\"stable\":" + log.lastStableOffset() + ",\"after\":" + states() + "}");
  }
  static String append(MemoryRecords records, AppendOrigin origin, VerificationGuard guard, short version) {
    try { LogAppendInfo i = log.appendAsLeader(records, 0, origin, RequestLocal.noCaching(), guard, version); return "[" + i.firstOffset() + "," + i.lastOffset() + "]"; }
    catch (Exception e) { return "\"" + Errors.forException(e).name() + "\""; }
  }

  static void step() throws Exception {
    long id = IDS[pick(3, 1)]; ProducerStateEntry e = log.producerStateManager().activeProducers().get(id);
    int epoch = e == null ? 0 : e.producerEpoch(); switch (pick(12, 3, 3)) { case 1: epoch++; break; case 2: epoch--; }
    epoch = Math.max(0, Math.min(epoch, 32767));
    boolean changed = e == null || epoch != e.producerEpoch();
    int last = -1; if (e != null) for (BatchMetadata m : e.batchMetadata()) last = m.lastSeq();
    int sequence = changed ? 0 : last == Integer.MAX_VALUE ? 0 : last + 1;
    switch (pick(12, 2, 2, 1)) { case 1: sequence = Math.max(0, sequence - 1 - chance.nextInt(3)); break; case 2: sequence += 1 + chance.nextInt(2); break; case 3: sequence = Integer.MAX_VALUE - chance.nextInt(3); }
    if (sequence < 0) sequence = 0;
    int count = 1 + chance.nextInt(3);
    switch (pick(14, 5, 7, 3, 1)) {
      case 0: {
        boolean txn = chance.nextInt(4) > 0;
        if (e != null && !e.batchMetadata().isEmpty() && chance.nextInt(6) == 0) { BatchMetadata m = new ArrayList<>(e.batchMetadata()).get(chance.nextInt(e.batchMetadata().size())); sequence = m.firstSeq(); count = m.offsetDelta() + 1; epoch = e.producerEpoch(); }
        Integer name = null; VerificationGuard guard = VerificationGuard.SENTINEL;
        if (!guards.isEmpty() && chance.nextInt(4) > 0) { guard = guards.get(Math.max(0, guards.size() - 1 - pick(5, 1))); name = names.get(guard); }
        SimpleRecord[] r = new SimpleRecord[count]; for (int i = 0; i < count; i++) r[i] = new SimpleRecord(1000 + i, "k".getBytes(), "v".getBytes());
        MemoryRecords m = txn ? MemoryRecords.withTransactionalRecords(Compression.NONE, id, (short) epoch, sequence, r) : MemoryRecords.withIdempotentRecords(Compression.NONE, id, (short) epoch, sequence, r);
        line = "\"op\":\"batch\",\"producer\":[" + id + "," + epoch + "],\"sequence\":" + sequence + ",\"count\":" + count + ",\"txn\":" + txn + ",\"guard\":" + name;
        tail(append(m, AppendOrigin.CLIENT, guard, (short) 0)); break; }
      case 1: {
        boolean bumps = chance.nextBoolean();
        line = "\"op\":\"verify\",\"producer\":[" + id + "," + epoch + "],\"sequence\":" + sequence + ",\"bumps\":" + bumps;
        VerificationGuard g;
        try { g = log.maybeStartTransactionVerification(id, sequence, (short) epoch, bumps); } catch (Exception x) { tail("\"" + Errors.forException(x).name() + "\""); break; }
        if (g != VerificationGuard.SENTINEL && !names.containsKey(g)) { names.put(g, guards.size()); guards.add(g); }
        tail(g == VerificationGuard.SENTINEL ? "null" : String.valueOf(names.get(g))); break; }
      case 2: {
        boolean commit = chance.nextBoolean(); int by = chance.nextInt(3); short version = (short) (chance.nextBoolean() ? 2 : 0);
        if (version == 2 && chance.nextBoolean() && e != null) epoch = Math.min(e.producerEpoch() + 1, 32767);
        line = "\"op\":\"marker\",\"producer\":[" + id + "," + epoch + "],\"commit\":" + commit + ",\"by\":" + by + ",\"version\":" + version;
        tail(append(MemoryRecords.withEndTransactionMarker(5000L, id, (short) epoch, new EndTransactionMarker(commit ? ControlRecordType.COMMIT : ControlRecordType.ABORT, by)), AppendOrigin.COORDINATOR, VerificationGuard.SENTINEL, version)); break; }
      case 3: {
        long to = log.highWatermark() + chance.nextInt((int) (log.logEndOffset() - log.highWatermark()) + 1);
        line = "\"op\":\"advance\",\"to\":" + to; log.updateHighWatermark(to); tail("null"); break; }
      case 4: {
        long to = log.logStartOffset() + (log.highWatermark() > log.logStartOffset() ? chance.nextInt((int) (log.highWatermark() - log.logStartOffset())) : 0);
        line = "\"op\":\"delete\",\"to\":" + to; log.maybeIncrementLogStartOffset(to, LogStartOffsetIncrementReason.ClientRecordDeletion); tail("null"); break; }
    }
  }
  @SuppressWarnings("unchecked")
  static <T> T stub(Class<T> c) { return (T) Proxy.newProxyInstance(c.getClassLoader(), new Class<?>[]{c}, (o, m, a) -> null); }

  public static void main(String[] x) throws Exception {
    File top = Files.createTempDirectory("producer-steps").toFile();
    for (int walk = 0; walk < Integer.parseInt(x[0]); walk++) {
      chance = new Random(walk); names = new IdentityHashMap<>(); guards = new ArrayList<>();
      File dir = new File(top, "t-" + walk); dir.mkdirs();
      boolean verifies = walk % 3 > 0;
      log = UnifiedLog.create(dir, new LogConfig(Map.of()), 0, 0, stub(Scheduler.class), new BrokerTopicStats(), Time.SYSTEM, 900000, new ProducerStateManagerConfig(Integer.MAX_VALUE, verifies), 600000, new LogDirFailureChannel(1), true, Optional.empty());
      line = "\"op\":\"walk\",\"verifies\":" + verifies; tail("null");
      if (walk % 5 == 4) { // near the last epoch and sequence number
        line = "\"op\":\"verify\",\"producer\":[7,32765],\"sequence\":0,\"bumps\":false"; VerificationGuard g = log.maybeStartTransactionVerification(7, 0, (short) 32765, false); names.put(g, 0); guards.add(g); tail("0");
        line = "\"op\":\"batch\",\"producer\":[7,32765],\"sequence\":2147483645,\"count\":1,\"txn\":true,\"guard\":0";
        tail(append(MemoryRecords.withTransactionalRecords(Compression.NONE, 7, (short) 32765, 2147483645, new SimpleRecord(1000, "k".getBytes(), "v".getBytes())), AppendOrigin.CLIENT, g, (short) 0)); }
      for (int i = 0; i < Integer.parseInt(x[1]); i++) step();
    }
  }
}
