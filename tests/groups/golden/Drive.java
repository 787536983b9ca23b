package org.apache.kafka.coordinator.group;

import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.node.*;
import java.io.*;
import java.lang.reflect.Proxy;
import java.net.InetAddress;
import java.nio.ByteBuffer;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.requests.*;
import org.apache.kafka.common.utils.*;
import org.apache.kafka.coordinator.common.runtime.*;
import org.apache.kafka.coordinator.group.generated.*;
import org.apache.kafka.coordinator.group.metrics.GroupCoordinatorMetricsShard;
import org.apache.kafka.coordinator.group.modern.consumer.ConsumerGroup;
import org.apache.kafka.coordinator.group.modern.share.ShareGroupConfig;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.timeline.SnapshotRegistry;

/** Drives GroupMetadataManager of Kafka: one JSON command a line in, one JSON answer a line out. */
public class Drive {
    static final ObjectMapper JSON = new ObjectMapper();
    static long now = 1000;
    static final Time TIME = (Time) Proxy.newProxyInstance(Drive.class.getClassLoader(), new Class<?>[]{Time.class}, (p, m, a) -> {
        switch (m.getName()) { case "milliseconds": case "hiResClockMs": return now; case "nanoseconds": return now * 1000000L;
            case "hashCode": return 1; case "equals": return false; case "toString": return "time"; default: throw new UnsupportedOperationException(m.getName()); }});

    record T(String name, Uuid id, List<List<String>> racks) implements CoordinatorMetadataImage.TopicMetadata {
        public int partitionCount() { return racks.size(); }
        public List<String> partitionRacks(int i) { return new ArrayList<>(racks.get(i)); }
    }
    static class Image implements CoordinatorMetadataImage {
        final Map<String, T> byName = new LinkedHashMap<>(); final Map<Uuid, T> byId = new HashMap<>(); long version;
        public Set<Uuid> topicIds() { return byId.keySet(); }
        public Set<String> topicNames() { return byName.keySet(); }
        public Optional<TopicMetadata> topicMetadata(String n) { return Optional.ofNullable(byName.get(n)); }
        public Optional<TopicMetadata> topicMetadata(Uuid n) { return Optional.ofNullable(byId.get(n)); }
        public CoordinatorMetadataDelta emptyDelta() { return CoordinatorMetadataDelta.EMPTY; }
        public long version() { return version; }
        public boolean isEmpty() { return byId.isEmpty(); }
    }
    record Due(long at, long seq, String key, CoordinatorTimer.TimeoutOperation<CoordinatorRecord> op) {}
    static long seq;
    static class Timer implements CoordinatorTimer<CoordinatorRecord> {
        final Map<String, Due> due = new HashMap<>();
        public void schedule(String k, long d, TimeUnit u, boolean r, TimeoutOperation<CoordinatorRecord> op) { due.put(k, new Due(now + u.toMillis(d), seq++, k, op)); }
        public void schedule(String k, long d, TimeUnit u, boolean r, long b, TimeoutOperation<CoordinatorRecord> op) { schedule(k, d, u, r, op); }
        public void scheduleIfAbsent(String k, long d, TimeUnit u, boolean r, TimeoutOperation<CoordinatorRecord> op) { if (!due.containsKey(k)) schedule(k, d, u, r, op); }
        public void cancel(String k) { due.remove(k); }
        public boolean isScheduled(String k) { return due.containsKey(k); }
    }
    @SuppressWarnings({"unchecked", "rawtypes"})
    static class Executor implements CoordinatorExecutor<CoordinatorRecord> {
        final Map<String, Runnable> tasks = new LinkedHashMap<>();
        public <R> boolean schedule(String k, TaskRunnable<R> run, TaskOperation<CoordinatorRecord, R> op) {
            if (tasks.containsKey(k)) return false;
            tasks.put(k, () -> { try { R r = run.run(); tasks.remove(k); apply(op.onComplete(r, null)); } catch (Throwable t) { throw new RuntimeException(t); } });
            return true;
        }
        public boolean isScheduled(String k) { return tasks.containsKey(k); }
        public void cancel(String k) { tasks.remove(k); }
    }
    static GroupMetadataManager manager; static Timer timer; static Executor executor; static Image image; static GroupCoordinatorConfig config;
    static ArrayNode rows; static final GroupCoordinatorRecordSerde SERDE = new GroupCoordinatorRecordSerde();

    static void reset(JsonNode settings) {
        timer = new Timer(); executor = new Executor(); image = new Image(); now = 1000; seq = 0;
        Map<String, Object> props = new HashMap<>();
        settings.fields().forEachRemaining(e -> props.put(e.getKey(), e.getValue().asText()));
        config = GroupCoordinatorConfig.fromProps(props);
        SnapshotRegistry registry = new SnapshotRegistry(new org.apache.kafka.common.utils.internals.LogContext());
        ShareGroupConfig share = new ShareGroupConfig(new org.apache.kafka.common.config.AbstractConfig(new org.apache.kafka.common.config.ConfigDef(GroupCoordinatorConfig.CONFIG_DEF) , props, false) { @Override public Object get(String k) { if (ShareGroupConfig.CONFIG_DEF.configKeys().containsKey(k)) return ShareGroupConfig.CONFIG_DEF.defaultValues().get(k); return super.get(k); } });
        manager = new GroupMetadataManager.Builder().withSnapshotRegistry(registry).withTime(TIME).withTimer(timer).withExecutor(executor)
            .withConfig(config).withGroupConfigManager(new GroupConfigManager(config, share)).withMetadataImage(image)
            .withGroupCoordinatorMetricsShard(new GroupCoordinatorMetricsShard(registry, Map.of(), new TopicPartition("__consumer_offsets", 0)) {
                @Override public void record(String s) {} @Override public void record(String s, double d) {} }).build();
    }
    static void replay(CoordinatorRecord r) {
        Object k = r.key(); Object v = r.value() == null ? null : r.value().message();
        if (k instanceof ConsumerGroupMemberMetadataKey) manager.replay((ConsumerGroupMemberMetadataKey) k, (ConsumerGroupMemberMetadataValue) v);
        else if (k instanceof ConsumerGroupMetadataKey) manager.replay((ConsumerGroupMetadataKey) k, (ConsumerGroupMetadataValue) v);
        else if (k instanceof ConsumerGroupPartitionMetadataKey) manager.replay((ConsumerGroupPartitionMetadataKey) k, (ConsumerGroupPartitionMetadataValue) v);
        else if (k instanceof ConsumerGroupTargetAssignmentMemberKey) manager.replay((ConsumerGroupTargetAssignmentMemberKey) k, (ConsumerGroupTargetAssignmentMemberValue) v);
        else if (k instanceof ConsumerGroupTargetAssignmentMetadataKey) manager.replay((ConsumerGroupTargetAssignmentMetadataKey) k, (ConsumerGroupTargetAssignmentMetadataValue) v);
        else if (k instanceof ConsumerGroupCurrentMemberAssignmentKey) manager.replay((ConsumerGroupCurrentMemberAssignmentKey) k, (ConsumerGroupCurrentMemberAssignmentValue) v);
        else if (k instanceof ConsumerGroupRegularExpressionKey) manager.replay((ConsumerGroupRegularExpressionKey) k, (ConsumerGroupRegularExpressionValue) v);
        else if (k instanceof GroupMetadataKey) manager.replay((GroupMetadataKey) k, (GroupMetadataValue) v);
        else throw new IllegalStateException(k.toString());
    }
    static void apply(CoordinatorResult<?, CoordinatorRecord> result) {
        ArrayNode batch = JSON.createArrayNode();
        for (CoordinatorRecord r : result.records()) {
            if (result.replayRecords()) replay(r);
            ArrayNode row = batch.addArray();
            row.add(HexFormat.of().formatHex(SERDE.serializeKey(r)));
            byte[] v = SERDE.serializeValue(r);
            if (v == null) row.addNull(); else row.add(HexFormat.of().formatHex(v));
        }
        rows.add(batch);
        if (result.appendFuture() != null) result.appendFuture().complete(null);
    }
    static void settle() { while (!executor.tasks.isEmpty()) executor.tasks.values().iterator().next().run(); }

    static AuthorizableRequestContext context(int api, int version, String clientId) {
        return (AuthorizableRequestContext) Proxy.newProxyInstance(Drive.class.getClassLoader(), new Class<?>[]{AuthorizableRequestContext.class}, (p, m, a) -> {
            switch (m.getName()) { case "clientAddress": return InetAddress.getByAddress(new byte[]{127, 0, 0, 1}); case "requestVersion": return version; case "requestType": return api; case "clientId": return clientId; default: return null; }});
    }
    static String hex(Message m, short version) {
        ByteBufferAccessor a = MessageUtil.toByteBufferAccessor(m, version); ByteBuffer b = a.buffer(); byte[] out = new byte[b.remaining()]; b.get(out); return HexFormat.of().formatHex(out);
    }
    static void answer(ObjectNode out, CompletableFuture<? extends ApiMessage> f, short version) {
        if (f.isDone()) out.put("response", hex(f.join(), version)); else { out.put("waits", true); waiting = f; waitingVersion = version; }
    }
    static void fail(ObjectNode out, Throwable t) {
        Errors e = Errors.forException(t); out.put("error", e.code()); out.put("message", t.getMessage());
        if (e == Errors.UNKNOWN_SERVER_ERROR) { StringWriter w = new StringWriter(); t.printStackTrace(new PrintWriter(w)); out.put("trace", w.toString()); }
    }
    static void request(JsonNode in, ObjectNode out) throws Exception {
        String api = in.get("api").asText(); short v = (short) in.get("version").asInt();
        org.apache.kafka.common.protocol.Readable r = new ByteBufferAccessor(ByteBuffer.wrap(HexFormat.of().parseHex(in.get("request").asText())));
        AuthorizableRequestContext c = context(0, v, in.get("client").asText());
        switch (api) {
            case "ConsumerGroupHeartbeat": {
                ConsumerGroupHeartbeatRequestData d = new ConsumerGroupHeartbeatRequestData(r, v);
                CHECK.check(d, v);
                CoordinatorResult<ConsumerGroupHeartbeatResponseData, CoordinatorRecord> x = manager.consumerGroupHeartbeat(c, d);
                apply(x); out.put("response", hex(x.response(), v)); break; }
            case "JoinGroup": { CompletableFuture<JoinGroupResponseData> f = new CompletableFuture<>();
                apply(manager.classicGroupJoin(c, new JoinGroupRequestData(r, v), f, true)); answer(out, f, v); break; }
            case "SyncGroup": { CompletableFuture<SyncGroupResponseData> f = new CompletableFuture<>();
                apply(manager.classicGroupSync(c, new SyncGroupRequestData(r, v), f)); answer(out, f, v); break; }
            case "Heartbeat": { CoordinatorResult<HeartbeatResponseData, CoordinatorRecord> x = manager.classicGroupHeartbeat(c, new HeartbeatRequestData(r, v)); apply(x); out.put("response", hex(x.response(), v)); break; }
            case "LeaveGroup": { CoordinatorResult<LeaveGroupResponseData, CoordinatorRecord> x = manager.classicGroupLeave(c, new LeaveGroupRequestData(r, v)); apply(x); out.put("response", hex(x.response(), v)); break; }
            default: throw new IllegalArgumentException(api);
        }
    }
    static Uuid uuid(String hex) { ByteBuffer b = ByteBuffer.wrap(HexFormat.of().parseHex(hex)); return new Uuid(b.getLong(), b.getLong()); }
    static void assign(JsonNode in, ObjectNode out) {
        Map<String, org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        Map<Uuid, Map<Integer, String>> inverted = new HashMap<>();
        for (JsonNode m : in.get("members")) {
            List<Uuid> ids = new ArrayList<>(); m.get("topics").forEach(t -> ids.add(uuid(t.asText())));
            Map<Uuid, Set<Integer>> held = new HashMap<>();
            m.get("held").fields().forEachRemaining(e -> { List<Integer> ps = new ArrayList<>(); e.getValue().forEach(x -> ps.add(x.asInt())); held.put(uuid(e.getKey()), new HashSet<>(ps));
                for (int x : ps) inverted.computeIfAbsent(uuid(e.getKey()), k -> new HashMap<>()).put(x, m.get("id").asText()); });
            members.put(m.get("id").asText(), new org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl(Optional.empty(), m.get("instance").isNull() ? Optional.empty() : Optional.of(m.get("instance").asText()), new HashSet<>(ids), new org.apache.kafka.coordinator.group.modern.Assignment(held)));
        }
        Map<Uuid, Integer> counts = new HashMap<>(); in.get("counts").fields().forEachRemaining(e -> counts.put(uuid(e.getKey()), e.getValue().asInt()));
        org.apache.kafka.coordinator.group.api.assignor.PartitionAssignor a = in.get("assignor").asText().equals("range") ? new org.apache.kafka.coordinator.group.assignor.RangeAssignor() : new org.apache.kafka.coordinator.group.assignor.UniformAssignor();
        org.apache.kafka.coordinator.group.api.assignor.GroupAssignment r = a.assign(new org.apache.kafka.coordinator.group.modern.GroupSpecImpl(members, in.get("alike").asBoolean() ? org.apache.kafka.coordinator.group.api.assignor.SubscriptionType.HOMOGENEOUS : org.apache.kafka.coordinator.group.api.assignor.SubscriptionType.HETEROGENEOUS, inverted),
            new org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber() { public int numPartitions(Uuid t) { return counts.getOrDefault(t, -1); } public Set<String> racksForPartition(Uuid t, int p) { return Set.of(); } public Set<Integer> assignablePartitions(Uuid t) { return Set.of(); } });
        ObjectNode shares = out.putObject("shares");
        r.members().forEach((id, ma) -> { ObjectNode s = shares.putObject(id); ma.partitions().forEach((t, ps) -> { ByteBuffer b = ByteBuffer.allocate(16); b.putLong(t.getMostSignificantBits()).putLong(t.getLeastSignificantBits()); ArrayNode x = s.putArray(HexFormat.of().formatHex(b.array())); ps.stream().sorted().forEach(x::add); }); });
    }
    static CompletableFuture<? extends ApiMessage> waiting; static short waitingVersion;
    interface Check { void check(ConsumerGroupHeartbeatRequestData d, int v) throws Exception; }
    static Check CHECK;

    public static void main(String[] args) throws Exception {
        java.lang.reflect.Method check = GroupCoordinatorService.class.getDeclaredMethod("throwIfConsumerGroupHeartbeatRequestIsInvalid", ConsumerGroupHeartbeatRequestData.class, int.class);
        check.setAccessible(true);
        sun.misc.Unsafe unsafe; java.lang.reflect.Field uf = sun.misc.Unsafe.class.getDeclaredField("theUnsafe"); uf.setAccessible(true); unsafe = (sun.misc.Unsafe) uf.get(null);
        GroupCoordinatorService service = (GroupCoordinatorService) unsafe.allocateInstance(GroupCoordinatorService.class);
        java.lang.reflect.Field af = GroupCoordinatorService.class.getDeclaredField("consumerGroupAssignors"); af.setAccessible(true);
        unsafe.putObject(service, unsafe.objectFieldOffset(af), new LinkedHashSet<>(List.of("uniform", "range")));
        CHECK = (d, v) -> { try { check.invoke(service, d, v); } catch (java.lang.reflect.InvocationTargetException e) { throw (Exception) e.getCause(); } };
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in)); PrintStream o = System.out; 
        for (String line; (line = in.readLine()) != null; ) {
            JsonNode cmd = JSON.readTree(line); ObjectNode out = JSON.createObjectNode(); rows = JSON.createArrayNode();
            try {
                switch (cmd.get("op").asText()) {
                    case "reset": reset(cmd.get("settings")); break;
                    case "topics": {
                        Image old = image; Image n = new Image(); n.version = cmd.get("version").asLong();
                        for (JsonNode t : cmd.get("topics")) { List<List<String>> racks = new ArrayList<>(); for (JsonNode p : t.get("racks")) { List<String> x = new ArrayList<>(); p.forEach(y -> x.add(y.asText())); racks.add(x); }
                            ByteBuffer b = ByteBuffer.wrap(HexFormat.of().parseHex(t.get("id").asText())); T x = new T(t.get("name").asText(), new Uuid(b.getLong(), b.getLong()), racks); n.byName.put(x.name, x); n.byId.put(x.id, x); }
                        Set<Uuid> created = new HashSet<>(), changed = new HashSet<>(), deleted = new HashSet<>();
                        for (T t : n.byId.values()) { if (!old.byId.containsKey(t.id)) { created.add(t.id); changed.add(t.id); } else if (!old.byId.get(t.id).equals(t)) changed.add(t.id); }
                        for (Uuid u : old.byId.keySet()) if (!n.byId.containsKey(u)) deleted.add(u);
                        image = n;
                        manager.onMetadataUpdate(new CoordinatorMetadataDelta() { public Collection<Uuid> createdTopicIds() { return created; } public Collection<Uuid> changedTopicIds() { return changed; } public Set<Uuid> deletedTopicIds() { return deleted; } public CoordinatorMetadataImage image() { return old; } }, n);
                        break; }
                    case "assign": assign(cmd, out); break;
                    case "time": {
                        long to = cmd.get("now").asLong();
                        while (true) { Due d = timer.due.values().stream().min(Comparator.comparingLong(Due::at).thenComparingLong(Due::seq)).orElse(null);
                            if (d == null || d.at > to) break;
                            now = Math.max(now, d.at); timer.due.remove(d.key); apply(d.op.generateRecords()); settle(); }
                        now = to;
                        if (waiting != null && waiting.isDone()) { out.put("response", hex((Message) waiting.join(), waitingVersion)); waiting = null; }
                        break; }
                    case "request": try { request(cmd, out); } catch (Throwable t) { fail(out, t); } settle(); break;
                    case "describe": { try { manager.consumerGroup(cmd.get("group").asText()); } catch (Throwable t) { fail(out, t); break; } ConsumerGroupDescribeResponseData d = new ConsumerGroupDescribeResponseData().setGroups(manager.consumerGroupDescribe(List.of(cmd.get("group").asText()), Long.MAX_VALUE)); out.put("response", hex(d, (short) 1)); break; }
                    case "commit": try { ConsumerGroup g = manager.consumerGroup(cmd.get("group").asText());
                        CommitPartitionValidator cv = g.validateOffsetCommit(cmd.get("member").asText(), null, cmd.get("epoch").asInt(), false, 9);
                        for (JsonNode p : cmd.get("partitions")) { ByteBuffer b = ByteBuffer.wrap(HexFormat.of().parseHex(p.get(1).asText())); try { cv.validate(p.get(0).asText(), new Uuid(b.getLong(), b.getLong()), p.get(2).asInt()); rows.addNull(); } catch (Throwable t) { rows.add(t.getMessage()); } }
                        } catch (Throwable t) { fail(out, t); } break;
                }
            } catch (Throwable t) { StringWriter w = new StringWriter(); t.printStackTrace(new PrintWriter(w)); out.put("crash", w.toString()); }
            out.set("rows", rows); 
            o.println(JSON.writeValueAsString(out)); o.flush();
        }
    }
}
