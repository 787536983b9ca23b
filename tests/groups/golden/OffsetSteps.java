/* Made offset-steps.jsonl: java -cp "CLASSES:JARS/*" org.apache.kafka.coordinator.group.OffsetSteps 60 50 > offset-steps.jsonl, with kafka_2.13 4.4.0 and what it needs.

Walks through what Kafka's GroupCoordinatorShard makes of offsets: plain commits and those of three transactions, their ends, groups, offsets and topics
that are deleted, offsets that expire, members of both protocols, a coordinator that reads its log anew. Each line is one step: what was asked, what was
answered, the records written, and then all groups and offsets, as shown to who wants stable ones and who does not. Topic ids are 1 to 9 for "t", 11 to
19 for "u", one more with each topic of the name. */
package org.apache.kafka.coordinator.group;

import java.lang.reflect.Proxy;
import java.util.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.*;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.TransactionResult;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.internals.LogContext;
import org.apache.kafka.coordinator.common.runtime.*;
import org.apache.kafka.coordinator.group.generated.*;
import org.apache.kafka.coordinator.group.metrics.*;
import org.apache.kafka.coordinator.group.modern.share.ShareGroupConfig;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.timeline.SnapshotRegistry;

public class OffsetSteps {
    static final long START = 1_000_000_000_000L;
    static final String[] GROUPS = {"g", "h", "m", "c"}, TOPICS = {"t", "u"};
    static final GroupCoordinatorRecordSerde SERDE = new GroupCoordinatorRecordSerde();
    static long now; static Random chance; static Map<String, Integer> made = new HashMap<>();
    record Entry(long producer, CoordinatorRecord record, TransactionResult end) {}
    static List<Entry> log; static GroupCoordinatorShard shard; static SnapshotRegistry registry; static int offset;
    static List<String> written = new ArrayList<>(), answers = new ArrayList<>();

    @SuppressWarnings("unchecked")
    static <T> T stub(Class<T> c) {
        return (T) Proxy.newProxyInstance(c.getClassLoader(), new Class<?>[]{c}, (o, m, a) -> {
            Class<?> r = m.getReturnType();
            if (m.getName().equals("milliseconds")) return now;
            return r == boolean.class ? (Object) false : r == long.class ? (Object) 0L : r == int.class ? (Object) 0 : null; });
    }
    static AuthorizableRequestContext context(int version) {
        return (AuthorizableRequestContext) Proxy.newProxyInstance(OffsetSteps.class.getClassLoader(), new Class<?>[]{AuthorizableRequestContext.class},
            (o, m, a) -> m.getName().equals("requestVersion") ? (Object) version : m.getReturnType() == int.class ? (Object) 0 : null);
    }
    static Uuid id(String topic) { return new Uuid(0x4d4d4d4d4d4d4d4dL, made.get(topic)); }
    static String q(String s) { return s == null ? "null" : "\"" + s + "\""; }
    static String hex(byte[] b) { return b == null ? "null" : "\"" + HexFormat.of().formatHex(b) + "\""; }
    static String row(CoordinatorRecord r) { return hex(SERDE.serializeKey(r)) + "," + hex(SERDE.serializeValue(r)); }

    static void begin() {
        registry = new SnapshotRegistry(new LogContext()); offset = 0;
        Map<String, Object> props = new HashMap<>(Map.of("offsets.retention.minutes", "1", "group.consumer.max.session.timeout.ms", "2000000000"));
        GroupCoordinatorConfig config = GroupCoordinatorConfig.fromProps(props);
        ShareGroupConfig share = new ShareGroupConfig(new AbstractConfig(new ConfigDef(GroupCoordinatorConfig.CONFIG_DEF), props, false) {
            @Override public Object get(String k) { try { return super.get(k); } catch (ConfigException e) { return ShareGroupConfig.CONFIG_DEF.defaultValues().get(k); } } });
        shard = (GroupCoordinatorShard) new GroupCoordinatorShard.Builder(config, new GroupConfigManager(config, share)).withAuthorizerPlugin(Optional.empty()).withLogContext(new LogContext()).withSnapshotRegistry(registry)
            .withTime(stub(Time.class)).withTimer(stub(CoordinatorTimer.class)).withExecutor(stub(CoordinatorExecutor.class))
            .withCoordinatorMetrics(new GroupCoordinatorMetrics()).withTopicPartition(new TopicPartition("__consumer_offsets", 0)).build();
        for (Entry e : log) replay(e);
        shard.onLoaded(CoordinatorMetadataImage.EMPTY);
        registry.idempotentCreateSnapshot(offset);
    }
    static void replay(Entry e) {
        if (e.end != null) shard.replayEndTransactionMarker(e.producer, (short) 0, e.end);
        else shard.replay(offset, e.producer, (short) 0, e.record);
        offset++;
    }
    static void append(Entry e) {
        log.add(e); replay(e);
        written.add("[" + e.producer + "," + (e.end != null ? q(e.end.name()) + ",null" : row(e.record)) + "]");
        registry.idempotentCreateSnapshot(offset);
    }
    static <T> T carryOut(CoordinatorResult<T, CoordinatorRecord> result, long producer) {
        for (CoordinatorRecord r : result.records()) append(new Entry(producer, r, null));
        return result.response();
    }
    static void answer(String topic, int partition, int code) { answers.add("[" + q(topic) + "," + partition + "," + q(Errors.forCode((short) code).name()) + "]"); }

    static CoordinatorRecord record(org.apache.kafka.common.protocol.ApiMessage key, org.apache.kafka.common.protocol.ApiMessage value, int version) {
        return CoordinatorRecord.record(key, new ApiMessageAndVersion(value, (short) version));
    }
    static List<CoordinatorRecord> members() {
        List<CoordinatorRecord> l = new ArrayList<>();
        if (chance.nextBoolean()) {
            l.add(record(new GroupMetadataKey().setGroup("m"), new GroupMetadataValue().setProtocolType("consumer").setGeneration(3).setProtocol("range").setLeader("one").setCurrentStateTimestamp(now)
                .setMembers(List.of(new GroupMetadataValue.MemberMetadata().setMemberId("one").setGroupInstanceId(chance.nextBoolean() ? "static" : null).setClientId("client").setClientHost("host").setRebalanceTimeout(2_000_000_000).setSessionTimeout(2_000_000_000)
                    .setSubscription(new byte[]{0, 0, 0, 0, 0, 1, 0, 1, 't', 0, 0, 0, 0}).setAssignment(new byte[0]))), 3));
        } else {
            int epoch = 4 + chance.nextInt(3);
            l.add(record(new ConsumerGroupMemberMetadataKey().setGroupId("c").setMemberId("one"), new ConsumerGroupMemberMetadataValue().setClientId("client").setClientHost("host").setSubscribedTopicNames(List.of("t")).setRebalanceTimeoutMs(2_000_000_000), 0));
            l.add(record(new ConsumerGroupMetadataKey().setGroupId("c"), new ConsumerGroupMetadataValue().setEpoch(6), 0));
            l.add(record(new ConsumerGroupTargetAssignmentMetadataKey().setGroupId("c"), new ConsumerGroupTargetAssignmentMetadataValue().setAssignmentEpoch(6), 0));
            l.add(record(new ConsumerGroupCurrentMemberAssignmentKey().setGroupId("c").setMemberId("one"), new ConsumerGroupCurrentMemberAssignmentValue().setMemberEpoch(epoch).setPreviousMemberEpoch(epoch - 1).setState((byte) 0)
                .setAssignedPartitions(List.of(new ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions().setTopicId(id("t")).setPartitions(List.of(0, 1)).setAssignmentEpochs(List.of(2, epoch)))), 0));
        }
        return l;
    }

    record P(String topic, int partition, long at, String metadata) {}
    static List<P> some() {
        List<P> l = new ArrayList<>(); int n = 1 + chance.nextInt(3);
        for (int i = 0; i < n; i++) l.add(new P(TOPICS[chance.nextInt(2)], chance.nextInt(2), chance.nextInt(1000), i > 0 && chance.nextInt(12) == 0 ? "x".repeat(5000) : chance.nextBoolean() ? "" : "m"));
        l.sort(Comparator.comparing(P::topic)); return l;
    }
    static String places(List<P> l) { List<String> s = new ArrayList<>(); for (P p : l) s.add("[" + q(p.topic) + "," + p.partition + "," + p.at + "," + p.metadata.length() + "]"); return "[" + String.join(",", s) + "]"; }
    static int generation(String group) { int r = chance.nextInt(4); return r == 0 ? -1 : r == 1 ? chance.nextInt(8) : group.equals("m") ? 3 : group.equals("c") ? 4 + chance.nextInt(3) : -1; }

    static void step() {
        now += chance.nextInt(2000);
        String group = GROUPS[chance.nextInt(4)]; String line; int kind = chance.nextInt(28);
        String member = chance.nextInt(3) == 0 ? "" : chance.nextInt(6) == 0 ? "other" : group.equals("m") || group.equals("c") ? "one" : "";
        String instance = chance.nextInt(10) == 0 ? "static" : null;
        try {
            if (kind < 6) {
                List<P> l = some(); int generation = generation(group), version = 8 + chance.nextInt(2);
                line = "\"commit\",\"group\":" + q(group) + ",\"member\":" + q(member) + ",\"instance\":" + q(instance) + ",\"generation\":" + generation + ",\"version\":" + version + ",\"places\":" + places(l); head(line);
                OffsetCommitRequestData request = new OffsetCommitRequestData().setGroupId(group).setMemberId(member).setGroupInstanceId(instance).setGenerationIdOrMemberEpoch(generation);
                for (String t : TOPICS) { var topic = new OffsetCommitRequestData.OffsetCommitRequestTopic().setName(t).setTopicId(id(t));
                    for (P p : l) if (p.topic.equals(t)) topic.partitions().add(new OffsetCommitRequestData.OffsetCommitRequestPartition().setPartitionIndex(p.partition).setCommittedOffset(p.at).setCommittedMetadata(p.metadata));
                    if (!topic.partitions().isEmpty()) request.topics().add(topic); }
                try { for (var t : carryOut(shard.commitOffset(context(version), request), -1).topics()) for (var p : t.partitions()) answer(t.name(), p.partitionIndex(), p.errorCode()); }
                catch (ApiException e) { for (P p : l) answer(p.topic, p.partition, Errors.forException(e).code()); }
            } else if (kind < 14) {
                List<P> l = some(); int generation = generation(group), version = 3 + chance.nextInt(4), producer = chance.nextInt(3);
                line = "\"txn\",\"group\":" + q(group) + ",\"member\":" + q(member) + ",\"instance\":" + q(instance) + ",\"generation\":" + generation + ",\"version\":" + version + ",\"producer\":" + producer + ",\"places\":" + places(l); head(line);
                TxnOffsetCommitRequestData request = new TxnOffsetCommitRequestData().setGroupId(group).setMemberId(member).setGroupInstanceId(instance).setGenerationIdOrMemberEpoch(generation).setProducerId(producer);
                for (String t : TOPICS) { var topic = new TxnOffsetCommitRequestData.TxnOffsetCommitRequestTopic().setName(t).setTopicId(id(t));
                    for (P p : l) if (p.topic.equals(t)) topic.partitions().add(new TxnOffsetCommitRequestData.TxnOffsetCommitRequestPartition().setPartitionIndex(p.partition).setCommittedOffset(p.at).setCommittedMetadata(p.metadata));
                    if (!topic.partitions().isEmpty()) request.topics().add(topic); }
                try { for (var t : carryOut(shard.commitTransactionalOffset(context(version), request), producer).topics()) for (var p : t.partitions()) answer(t.name(), p.partitionIndex(), p.errorCode()); }
                catch (ApiException e) { for (P p : l) answer(p.topic, p.partition, Errors.forException(e).code()); }
            } else if (kind < 19) {
                int producer = chance.nextInt(3); boolean commit = chance.nextInt(3) > 0;
                head("\"end\",\"producer\":" + producer + ",\"commit\":" + commit);
                append(new Entry(producer, null, commit ? TransactionResult.COMMIT : TransactionResult.ABORT));
            } else if (kind < 21) {
                List<String> l = chance.nextBoolean() ? List.of(group) : List.of("g", "h"); List<String> s = new ArrayList<>(); for (String g : l) s.add(q(g));
                head("\"delete\",\"deleted\":[" + String.join(",", s) + "]");
                for (var r : carryOut(shard.deleteGroups(context(2), l), -1)) answer(r.groupId(), 0, r.errorCode());
            } else if (kind < 23) {
                List<P> l = some(); head("\"offset_delete\",\"group\":" + q(group) + ",\"places\":" + places(l));
                OffsetDeleteRequestData request = new OffsetDeleteRequestData().setGroupId(group);
                for (String t : TOPICS) { var topic = new OffsetDeleteRequestData.OffsetDeleteRequestTopic().setName(t);
                    for (P p : l) if (p.topic.equals(t)) topic.partitions().add(new OffsetDeleteRequestData.OffsetDeleteRequestPartition().setPartitionIndex(p.partition));
                    if (!topic.partitions().isEmpty()) request.topics().add(topic); }
                try { for (var t : carryOut(shard.deleteOffsets(context(0), request), -1).topics()) for (var p : t.partitions()) answer(t.name(), p.partitionIndex(), p.errorCode()); }
                catch (ApiException e) { answer("", -1, Errors.forException(e).code()); }
            } else if (kind < 24) {
                now += chance.nextInt(90_000); head("\"expire\"");
                carryOut(shard.cleanupGroupMetadata(), -1);
            } else if (kind < 25) {
                String t = TOPICS[chance.nextInt(2)]; Uuid before = id(t); made.merge(t, 1, Integer::sum); head("\"anew\",\"topic\":" + q(t));
                carryOut(shard.onTopicsDeleted(List.of(new GroupCoordinatorShard.DeletedTopic(before, t))), -1);
            } else if (kind < 27) {
                List<CoordinatorRecord> l = chance.nextBoolean() ? List.of() : members(); List<String> s = new ArrayList<>(); for (CoordinatorRecord r : l) s.add("[" + row(r) + "]");
                head("\"load\",\"records\":[" + String.join(",", s) + "]");
                for (CoordinatorRecord r : l) log.add(new Entry(-1, r, null));
                begin();
            } else {
                boolean classic = chance.nextBoolean() || !groups().contains("[\"c\",\"Stable\",\"consumer\"]"); List<CoordinatorRecord> l = new ArrayList<>();
                if (classic) l.add(record(new GroupMetadataKey().setGroup("m"), new GroupMetadataValue().setProtocolType("consumer").setGeneration(4).setCurrentStateTimestamp(now).setMembers(List.of()), 3));
                else { l.add(CoordinatorRecord.tombstone(new ConsumerGroupCurrentMemberAssignmentKey().setGroupId("c").setMemberId("one"))); l.add(CoordinatorRecord.tombstone(new ConsumerGroupTargetAssignmentMemberKey().setGroupId("c").setMemberId("one")));
                       l.add(CoordinatorRecord.tombstone(new ConsumerGroupMemberMetadataKey().setGroupId("c").setMemberId("one"))); }
                List<String> s = new ArrayList<>(); for (CoordinatorRecord r : l) s.add("[" + row(r) + "]");
                head("\"load\",\"records\":[" + String.join(",", s) + "]");
                for (CoordinatorRecord r : l) log.add(new Entry(-1, r, null));
                begin();
            }
        } catch (ApiException e) { answers.add(q("failed " + e)); }
        tail();
    }
    static String head;
    static void head(String op) { head = "{\"op\":" + op + ",\"now\":" + (now - START); }
    static void tail() {
        Collections.sort(answers); Collections.sort(written);
        System.out.println(head + ",\"answers\":[" + String.join(",", answers) + "],\"written\":[" + String.join(",", written) + "],\"groups\":" + groups() + ",\"offsets\":" + offsets(false) + ",\"stable\":" + offsets(true) + "}");
        answers.clear(); written.clear();
    }
    static String groups() {
        List<String> l = new ArrayList<>();
        for (var g : shard.listGroups(List.of(), List.of(), offset)) l.add("[" + q(g.groupId()) + "," + q(g.groupState()) + "," + q(g.groupType()) + "]");
        Collections.sort(l); return "[" + String.join(",", l) + "]";
    }
    static String offsets(boolean stable) {
        List<String> l = new ArrayList<>();
        for (String g : GROUPS) {
            var request = new OffsetFetchRequestData.OffsetFetchRequestGroup().setGroupId(g);
            request.setTopics(new ArrayList<>());
            for (String t : TOPICS) request.topics().add(new OffsetFetchRequestData.OffsetFetchRequestTopics().setName(t).setPartitionIndexes(List.of(0, 1)));
            for (var t : shard.fetchOffsets(request, stable ? Long.MAX_VALUE : offset).topics()) for (var p : t.partitions())
                if (p.errorCode() != 0 || p.committedOffset() != -1) l.add("[" + q(g) + "," + q(t.name()) + "," + p.partitionIndex() + "," + p.committedOffset() + "," + q(p.metadata()) + "," + p.errorCode() + "]");
        }
        return "[" + String.join(",", l) + "]";
    }
    public static void main(String[] x) {
        int walks = Integer.parseInt(x[0]), steps = Integer.parseInt(x[1]);
        for (int walk = 0; walk < walks; walk++) {
            chance = new Random(walk); now = START; log = new ArrayList<>(); made.put("t", 1); made.put("u", 11);
            begin(); head("\"walk\""); tail();
            for (int i = 0; i < steps; i++) step();
        }
    }
}
