/* Made transaction-steps.jsonl: java -cp "CLASSES:JARS/*" TransactionSteps 50 60 | grep "^{" > transaction-steps.jsonl, with kafka_2.13 4.4.0 and what it needs.

Walks through the decisions of Kafka's TransactionCoordinator: requests by chance, of right and of wrong producers. Appends to its log succeed,
fail or wait as a step says; markers are written when a step says so; a step loads what has been written, as a coordinator does that takes over.
Each line is one step: what was done, what was answered meanwhile, the records appended, the markers wanted, and the state of each id after it. */
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.util.*;
import java.util.concurrent.*;
import kafka.coordinator.transaction.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.message.AddPartitionsToTxnResponseData;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.TransactionResult;
import org.apache.kafka.common.utils.*;
import org.apache.kafka.common.utils.internals.*;
import org.apache.kafka.coordinator.transaction.*;
import org.apache.kafka.server.common.*;
import org.apache.kafka.server.util.Scheduler;
import scala.*;
import scala.runtime.BoxedUnit;

public class TransactionSteps {
  static long now = 1_000_000_000_000L, nextId = 1000;
  static boolean noIds;
  static short level = 2;
  static Random chance;
  static String outcome = "ok"; // of appends: ok, an error, or hold
  static List<String> answers = new ArrayList<>(), records = new ArrayList<>(), markers = new ArrayList<>();
  static Map<String, String> stored = new LinkedHashMap<>(); // by id the last committed value
  static Map<String, Object[]> held = new LinkedHashMap<>(); // metadata, transit, callback, is completion
  static Map<String, TxnTransitMetadata> completions = new LinkedHashMap<>();
  static Manager manager; static TransactionCoordinator coordinator; static int epoch = 0;

  static String hex(byte[] b) { return HexFormat.of().formatHex(b); }
  static String q(String s) { return s == null ? "null" : "\"" + s + "\""; }

  static class Manager extends TransactionStateManager {
    Manager(Time time) { super(1, null, null, null, new TransactionConfig(604800000, 900000, 1, (short) 1, 100, 100, 1, 10000, 3600000, false, 30000), time, new Metrics()); }
    @Override public TransactionVersion transactionVersionLevel() { return TransactionVersion.fromFeatureLevel(level); }
    @Override public void appendTransactionToLog(String id, int e, TxnTransitMetadata to, Function1<Errors, BoxedUnit> done, Function1<Errors, java.lang.Object> retry, RequestLocal l) {
      append(id, to, done);
    }
  }
  static void append(String id, TxnTransitMetadata to, Function1<Errors, BoxedUnit> done) {
    String value = hex(TransactionLog.valueToBytes(to, TransactionVersion.fromFeatureLevel(level)));
    records.add("[" + q(id) + "," + q(value) + "]");
    TransactionMetadata metadata = metadata(id);
    if (outcome.equals("hold")) { held.put(id, new Object[]{metadata, to, done, value}); return; }
    settle(id, metadata, to, done, value, outcome);
  }
  static void settle(String id, TransactionMetadata metadata, TxnTransitMetadata to, Function1<Errors, BoxedUnit> done, String value, String how) {
    if (how.equals("ok")) { metadata.completeTransitionTo(to); stored.put(id, value); done.apply(Errors.NONE); }
    else { metadata.pendingState(Optional.empty()); done.apply(Errors.valueOf(how)); }
  }
  static TransactionMetadata metadata(String id) { return manager.getTransactionMetadata(id).orElse(null); }

  static class Markers extends TransactionMarkerChannelManager {
    Markers() { super(null, null, null, null, null); }
    @Override public void start() {}
    @Override public void addTxnMarkersToSend(int e, TransactionResult result, TransactionMetadata metadata, TxnTransitMetadata to) { want(result, metadata, to); }
  }
  static void want(TransactionResult result, TransactionMetadata metadata, TxnTransitMetadata to) {
    completions.put(metadata.transactionalId(), to);
    markers.add("[" + q(metadata.transactionalId()) + "," + metadata.producerId() + "," + metadata.producerEpoch() + "," + (result == TransactionResult.COMMIT) + ","
        + metadata.clientTransactionVersion().featureLevel() + "," + places(metadata.topicPartitions()) + "]");
  }
  static String places(Set<TopicPartition> p) {
    List<String> l = new ArrayList<>(); for (TopicPartition t : p) l.add("[" + q(t.topic()) + "," + t.partition() + "]");
    Collections.sort(l); return "[" + String.join(",", l) + "]";
  }
  static void answer(int step, Errors e, long id, int epoch) { answers.add("[" + step + "," + q(e.name()) + "," + id + "," + epoch + "]"); }

  static String states() {
    List<String> l = new ArrayList<>();
    for (String id : IDS) { TransactionMetadata m = metadata(id); if (m == null) continue;
      l.add("[" + q(id) + "," + m.producerId() + "," + m.producerEpoch() + "," + m.lastProducerEpoch() + "," + q(m.state().stateName()) + "," + m.txnTimeoutMs() + "," + m.txnStartTimestamp() + ","
          + m.txnLastUpdateTimestamp() + "," + places(m.topicPartitions()) + "," + m.pendingTransitionInProgress() + "]"); }
    return "[" + String.join(",", l) + "]";
  }
  static final String[] IDS = {"a", "b"};
  static final String[] ERRORS = {"COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "UNKNOWN_SERVER_ERROR"};

  static void load(Map<String, String> from) {
    held.clear(); completions.clear(); stored.clear(); stored.putAll(from);
    ConcurrentMap<String, TransactionMetadata> all = new ConcurrentHashMap<>();
    for (Map.Entry<String, String> e : from.entrySet()) {
      TransactionLog.ReadResult r = TransactionLog.read(ByteBuffer.wrap(TransactionLog.keyToBytes(e.getKey())), ByteBuffer.wrap(HexFormat.of().parseHex(e.getValue())));
      all.put(e.getKey(), ((TransactionLog.TxnRecord) r).metadata());
    }
    manager.addLoadedTransactionsToCache(0, ++epoch, all);
    for (String id : from.keySet()) { TransactionMetadata m = all.get(id);
      if (m.state() == TransactionState.PREPARE_COMMIT) want(TransactionResult.COMMIT, m, m.prepareComplete(now));
      if (m.state() == TransactionState.PREPARE_ABORT) want(TransactionResult.ABORT, m, m.prepareComplete(now)); }
  }
  static String map(Map<String, String> m) { List<String> l = new ArrayList<>(); m.forEach((k, v) -> l.add("[" + q(k) + "," + q(v) + "]")); return "[" + String.join(",", l) + "]"; }

  static int pick(int... weights) { int sum = 0; for (int w : weights) sum += w; int n = chance.nextInt(sum); for (int i = 0; i < weights.length; i++) { n -= weights[i]; if (n < 0) return i; } return 0; }

  static void step(int number) throws Exception {
    String id = IDS[pick(3, 1)]; TransactionMetadata m = metadata(id);
    now += chance.nextInt(50);
    outcome = new String[]{"ok", "hold", ERRORS[chance.nextInt(3)]}[pick(14, 1, 1)];
    noIds = chance.nextInt(12) == 0;
    long pid = m == null ? 5 : m.producerId(); int e = m == null ? 0 : m.producerEpoch();
    if (m != null && pick(5, 1) == 1) pid = chance.nextBoolean() ? m.prevProducerId() : pid + 1;
    int wrong = pick(10, 4, 1); if (wrong == 1) e -= 1; if (wrong == 2) e += 1;
    if (m != null && pid == m.prevProducerId() && pid != m.producerId() && chance.nextBoolean()) e = 32766;
    if (e > 32767) e = 32767;
    String op;
    int kind = pick(3, 8, 2, 10, 5, 2, 2, 1, 1, m == null ? 1 : 0);
    if (m == null && chance.nextInt(10) < 7) kind = 0;
    int key = number;
    try { switch (kind) {
      case 0: case 9: {
        boolean expects = chance.nextBoolean(); int timeout = new int[]{60000, 1000, 0, 900001, -1}[pick(8, 3, 1, 1, 1)];
        boolean two = chance.nextInt(30) == 0, keep = chance.nextInt(30) == 0;
        if (e < 0) { expects = false; }
        op = "\"init\",\"id\":" + q(id) + ",\"timeout\":" + timeout + ",\"two_phase\":" + two + ",\"keep\":" + keep + ",\"expected\":" + (expects ? "[" + pid + "," + e + "]" : "null");
        head(op);
        coordinator.handleInitProducerId(id, timeout, two, keep, expects ? Option.apply(new ProducerIdAndEpoch(pid, (short) e)) : Option.empty(),
            r -> { answer(key, r.error(), r.producerId(), r.producerEpoch()); return BoxedUnit.UNIT; }, RequestLocal.noCaching());
        break; }
      case 1: {
        Set<TopicPartition> p = somePartitions(); int version = level == 2 && chance.nextInt(3) > 0 ? 2 : 0;
        op = "\"add\",\"id\":" + q(id) + ",\"producer\":[" + pid + "," + e + "],\"version\":" + version + ",\"partitions\":" + places(p);
        head(op);
        coordinator.handleAddPartitionsToTransaction(id, pid, (short) e, p, err -> { answer(key, err, -1, -1); return BoxedUnit.UNIT; }, TransactionVersion.fromFeatureLevel((short) version), RequestLocal.noCaching());
        break; }
      case 2: {
        Set<TopicPartition> p = somePartitions();
        op = "\"verify\",\"id\":" + q(id) + ",\"producer\":[" + pid + "," + e + "],\"partitions\":" + places(p);
        head(op);
        coordinator.handleVerifyPartitionsInTransaction(id, pid, (short) e, p, r -> {
          for (AddPartitionsToTxnResponseData.AddPartitionsToTxnTopicResult t : r.topicResults()) for (AddPartitionsToTxnResponseData.AddPartitionsToTxnPartitionResult x : t.resultsByPartition())
            answers.add("[" + q(t.name()) + "," + x.partitionIndex() + "," + q(Errors.forCode(x.partitionErrorCode()).name()) + "]");
          Collections.sort(answers); return BoxedUnit.UNIT; });
        break; }
      case 3: {
        boolean commit = chance.nextBoolean(); int version = level == 2 && chance.nextInt(4) > 0 ? 2 : 0;
        op = "\"end\",\"id\":" + q(id) + ",\"producer\":[" + pid + "," + e + "],\"version\":" + version + ",\"commit\":" + commit;
        head(op);
        coordinator.handleEndTransaction(id, pid, (short) e, commit ? TransactionResult.COMMIT : TransactionResult.ABORT, TransactionVersion.fromFeatureLevel((short) version),
            (err, i, ep) -> { answer(key, err, ((Number) i).longValue(), ((Number) ep).intValue()); return BoxedUnit.UNIT; }, RequestLocal.noCaching());
        break; }
      case 4: {
        String which = null; for (String c : completions.keySet()) if (!held.containsKey(c)) which = c;
        op = "\"markers\",\"id\":" + q(which);
        head(op);
        if (which != null) { TransactionMetadata x = metadata(which); for (TopicPartition t : new ArrayList<>(x.topicPartitions())) x.removePartition(t);
          if (outcome.equals("ok") || outcome.equals("hold")) { TxnTransitMetadata to = completions.remove(which); append(which, to, err -> BoxedUnit.UNIT); } }
        break; }
      case 5: {
        String which = held.isEmpty() ? null : held.keySet().iterator().next(); String how = outcome.equals("hold") ? "ok" : outcome;
        boolean isCompletion = which != null && ((TxnTransitMetadata) held.get(which)[1]).txnState().name().startsWith("COMPLETE");
        if (isCompletion) how = "ok";
        op = "\"release\",\"id\":" + q(which) + ",\"how\":" + q(how);
        head(op);
        if (which != null) { Object[] h = held.remove(which); outcome = "ok"; settle(which, (TransactionMetadata) h[0], (TxnTransitMetadata) h[1], (Function1<Errors, BoxedUnit>) h[2], (String) h[3], how); }
        break; }
      case 6: {
        now += chance.nextInt(90000);
        op = "\"timeouts\"";
        head(op);
        coordinator.abortTimedOutTransactions(x -> (err, i, ep) -> BoxedUnit.UNIT);
        break; }
      case 7: {
        Map<String, String> from = new LinkedHashMap<>(stored);
        if (chance.nextInt(4) == 0) level = 2; // never back: a value of version 0 cannot be written of a client of version 2
        op = "\"load\",\"level\":" + level + ",\"records\":" + map(from);
        head(op); load(from);
        break; }
      default: {
        op = "\"describe\",\"id\":" + q(id); head(op);
        var d = coordinator.handleDescribeTransactions(id);
        answers.add("[" + q(Errors.forCode(d.errorCode()).name()) + "," + q(d.transactionState()) + "," + d.producerId() + "," + d.producerEpoch() + "," + d.transactionTimeoutMs() + "," + d.transactionStartTimeMs() + "]");
      } } }
    catch (IllegalStateException | IllegalArgumentException x) { answer(key, Errors.UNKNOWN_SERVER_ERROR, -1, -1); }
    tail();
  }
  static Set<TopicPartition> somePartitions() { Set<TopicPartition> p = new TreeSet<>(Comparator.comparing(TopicPartition::toString)); int n = 1 + chance.nextInt(3); for (int i = 0; i < n; i++) p.add(new TopicPartition(chance.nextBoolean() ? "t" : "u", chance.nextInt(3))); return new LinkedHashSet<>(p); }
  static String line;
  static void head(String op) { line = "{\"op\":" + op + ",\"now\":" + now + ",\"append\":" + q(outcome) + ",\"next_id\":" + (noIds ? "null" : String.valueOf(nextId)); }
  static void tail() {
    System.out.println(line + ",\"answers\":[" + String.join(",", answers) + "],\"appended\":[" + String.join(",", records) + "],\"markers\":[" + String.join(",", markers) + "],\"after\":" + states() + "}");
    answers.clear(); records.clear(); markers.clear();
  }
  @SuppressWarnings("unchecked")
  static <T> T stub(Class<T> c) { return (T) Proxy.newProxyInstance(c.getClassLoader(), new Class<?>[]{c}, (o, method, a) -> { if (method.getName().equals("milliseconds")) return now; return null; }); }

  public static void main(String[] x) throws Exception {
    var f = sun.misc.Unsafe.class.getDeclaredField("theUnsafe"); f.setAccessible(true);
    Markers m = (Markers) ((sun.misc.Unsafe) f.get(null)).allocateInstance(Markers.class);
    Time time = stub(Time.class);
    manager = new Manager(time);
    TransactionConfig config = new TransactionConfig();
    coordinator = new TransactionCoordinator(config, stub(Scheduler.class), () -> new ProducerIdManager() {
      public long generateProducerId() throws Exception { if (noIds) throw Errors.COORDINATOR_LOAD_IN_PROGRESS.exception(); return nextId++; } }, manager, m, time, new LogContext());
    coordinator.startup(() -> 1, false);
    int walks = Integer.parseInt(x[0]), steps = Integer.parseInt(x[1]);
    for (int walk = 0; walk < walks; walk++) {
      chance = new Random(walk); nextId = 1000; level = (short) (walk % 3 == 0 ? 0 : 2); outcome = "ok"; noIds = false;
      Map<String, String> from = new LinkedHashMap<>();
      if (walk % 2 == 1) { // near the last epoch
        int e = 32762 + chance.nextInt(6); TransactionState s = List.of(TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_COMMIT).get(chance.nextInt(4));
        if (e >= 32767) e = 32766;
        Set<TopicPartition> p = s == TransactionState.ONGOING || s == TransactionState.PREPARE_ABORT ? Set.of(new TopicPartition("t", 0)) : Set.of();
        from.put("a", hex(TransactionLog.valueToBytes(new TxnTransitMetadata(7, 7, -1, (short) e, (short) -1, 60000, s, new HashSet<>(p), s == TransactionState.EMPTY ? -1 : now, now, TransactionVersion.fromFeatureLevel(level)), TransactionVersion.fromFeatureLevel(level))));
      }
      head("\"walk\",\"level\":" + level + ",\"records\":" + map(from)); load(from); tail();
      for (int i = 0; i < steps; i++) step(i);
    }
  }
}
