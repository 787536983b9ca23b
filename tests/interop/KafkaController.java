// Kafka's own controller without a quorum: the managers that decide, driven by lines of text. See kafka_controller.py.
//
// A line is `operation [version [hex]]`; the answer is a line `hex,hex,...|hex`: the records that were written (as they
// stand in the metadata log) and the response, or `!ERROR message`. Records take effect at once.
package org.apache.kafka.controller;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.message.AlterPartitionReassignmentsRequestData;
import org.apache.kafka.common.message.AlterPartitionRequestData;
import org.apache.kafka.common.message.BrokerHeartbeatRequestData;
import org.apache.kafka.common.message.BrokerHeartbeatResponseData;
import org.apache.kafka.common.message.BrokerRegistrationRequestData;
import org.apache.kafka.common.message.BrokerRegistrationResponseData;
import org.apache.kafka.common.message.ElectLeadersRequestData;
import org.apache.kafka.common.message.ListPartitionReassignmentsRequestData;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.metadata.BrokerRegistrationChangeRecord;
import org.apache.kafka.common.metadata.ConfigRecord;
import org.apache.kafka.common.metadata.FeatureLevelRecord;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.RegisterBrokerRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.common.metadata.UnregisterBrokerRecord;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.metadata.BrokerHeartbeatReply;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.metadata.VersionRange;
import org.apache.kafka.metadata.placement.StripedReplicaPlacer;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.timeline.SnapshotRegistry;

public class KafkaController {
    static class StoppedClock implements Time {
        long nowMs;

        public long milliseconds() {
            return nowMs;
        }

        public long nanoseconds() {
            return TimeUnit.MILLISECONDS.toNanos(nowMs);
        }

        public void sleep(long ms) {
            throw new UnsupportedOperationException();
        }
    }

    static class Features implements ClusterFeatureSupportDescriber {
        public Iterator<Map.Entry<Integer, Map<String, VersionRange>>> brokerSupported() {
            return List.<Map.Entry<Integer, Map<String, VersionRange>>>of().iterator();
        }

        public Iterator<Map.Entry<Integer, Map<String, VersionRange>>> controllerSupported() {
            return brokerSupported();
        }
    }

    static final HexFormat HEX = HexFormat.of();

    final StoppedClock clock = new StoppedClock();
    final ConfigurationControlManager configs;
    final FeatureControlManager features;
    final ClusterControlManager cluster;
    final ReplicationControlManager replication;
    long nextOffset = 0;
    List<ApiMessageAndVersion> written = List.of();

    KafkaController(String clusterId, long sessionTimeoutMs) {
        SnapshotRegistry registry = new SnapshotRegistry(new org.apache.kafka.common.utils.internals.LogContext());
        features = new FeatureControlManager.Builder()
            .setSnapshotRegistry(registry)
            .setQuorumFeatures(new QuorumFeatures(0, QuorumFeatures.defaultSupportedFeatureMap(true), List.of(0)))
            .setClusterFeatureSupportDescriber(new Features())
            .build();
        configs = new ConfigurationControlManager.Builder()
            .setSnapshotRegistry(registry)
            .setFeatureControl(features)
            .setKafkaConfigSchema(kafka.server.KafkaRaftServer.configSchema())
            .setStaticConfig(Map.of("process.roles", "controller", "node.id", "0"))
            .build();
        cluster = new ClusterControlManager.Builder()
            .setClusterId(clusterId)
            .setTime(clock)
            .setSnapshotRegistry(registry)
            .setSessionTimeoutNs(TimeUnit.MILLISECONDS.toNanos(sessionTimeoutMs))
            .setReplicaPlacer(new StripedReplicaPlacer(new Random(0)))
            .setFeatureControlManager(features)
            .setBrokerShutdownHandler((id, isClean, records) -> replication().handleBrokerShutdown(id, isClean, records))
            .build();
        replication = new ReplicationControlManager.Builder()
            .setSnapshotRegistry(registry)
            .setConfigurationControl(configs)
            .setClusterControl(cluster)
            .setFeatureControl(features)
            .build();
        cluster.activate();
    }

    ReplicationControlManager replication() {
        return replication;
    }

    void replay(ApiMessage record) {
        long offset = nextOffset++;
        if (record instanceof RegisterBrokerRecord r) cluster.replay(r, offset);
        else if (record instanceof UnregisterBrokerRecord r) cluster.replay(r);
        else if (record instanceof BrokerRegistrationChangeRecord r) cluster.replay(r);
        else if (record instanceof TopicRecord r) replication.replay(r);
        else if (record instanceof PartitionRecord r) replication.replay(r);
        else if (record instanceof PartitionChangeRecord r) replication.replay(r);
        else if (record instanceof ConfigRecord r) configs.replay(r);
        else if (record instanceof FeatureLevelRecord r) features.replay(r);
        else throw new IllegalArgumentException(record.toString());
    }

    <T> T write(ControllerResult<T> result) {
        written = result.records();
        written.forEach(record -> replay(record.message()));
        return result.response();
    }

    String run(String[] words) {
        written = List.of();
        short version = words.length > 1 ? Short.parseShort(words[1]) : 0;
        byte[] bytes = HEX.parseHex(words.length > 2 ? words[2] : "");
        ByteBufferAccessor body = new ByteBufferAccessor(ByteBuffer.wrap(bytes));
        ApiMessage response = null;
        switch (words[0]) {
            case "replay" -> replay(MetadataRecordSerde.INSTANCE.read(body, bytes.length).message());
            case "advance" -> clock.nowMs += version;
            case "register" -> {
                long epoch = write(cluster.registerBroker(new BrokerRegistrationRequestData(body, version), nextOffset,
                    features.finalizedFeatures(Long.MAX_VALUE), version >= 3)).epoch();
                response = new BrokerRegistrationResponseData().setBrokerEpoch(epoch);
            }
            case "heartbeat" -> response = heartbeat(new BrokerHeartbeatRequestData(body, version));
            case "expire" -> { // true: it has found one, if only an old life of a broker
                while (write(replication.maybeFenceOneStaleBroker()) && written.isEmpty()) { }
            }
            case "unregister" -> write(replication.unregisterBroker(version));
            case "alter" -> {
                AlterPartitionRequestData request = new AlterPartitionRequestData(body, version);
                ControllerRequestContext context = new ControllerRequestContext(
                    new RequestHeaderData().setRequestApiKey((short) 56).setRequestApiVersion(version),
                    KafkaPrincipal.ANONYMOUS, OptionalLong.empty());
                response = write(replication.alterPartition(context, request));
            }
            case "elect" -> response = write(replication.electLeaders(new ElectLeadersRequestData(body, version)));
            case "reassign" -> response = write(
                replication.alterPartitionReassignments(new AlterPartitionReassignmentsRequestData(body, version)));
            case "list" -> response = replication.listPartitionReassignments(
                new ListPartitionReassignmentsRequestData(body, version).topics(), Long.MAX_VALUE);
            case "balance" -> write(replication.maybeBalancePartitionLeaders());
            case "unclean" -> write(replication.maybeElectUncleanLeaders());
            default -> throw new IllegalArgumentException(words[0]);
        }
        List<String> records = new ArrayList<>();
        for (ApiMessageAndVersion record : written) {
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer buffer = ByteBuffer.allocate(MetadataRecordSerde.INSTANCE.recordSize(record, cache));
            MetadataRecordSerde.INSTANCE.write(record, cache, new ByteBufferAccessor(buffer));
            records.add(HEX.formatHex(buffer.array()));
        }
        String answer = "";
        if (response != null) {
            answer = HEX.formatHex(MessageUtil.byteBufferToArray(MessageUtil.toByteBufferAccessor(response, version).buffer()));
        }
        return String.join(",", records) + "|" + answer;
    }

    // As QuorumController does it.
    BrokerHeartbeatResponseData heartbeat(BrokerHeartbeatRequestData request) {
        cluster.trackBrokerHeartbeat(request.brokerId(), request.brokerEpoch());
        cluster.checkBrokerEpoch(request.brokerId(), request.brokerEpoch());
        long registeredAt = cluster.registerBrokerRecordOffset(request.brokerId()).getAsLong();
        BrokerHeartbeatReply reply = write(replication.processBrokerHeartbeat(request, registeredAt));
        if (reply.inControlledShutdown()) {
            cluster.heartbeatManager().maybeUpdateControlledShutdownOffset(request.brokerId(), nextOffset - 1);
        }
        return new BrokerHeartbeatResponseData()
            .setIsCaughtUp(reply.isCaughtUp())
            .setIsFenced(reply.isFenced())
            .setShouldShutDown(reply.shouldShutDown());
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // for what Kafka logs
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        KafkaController controller = null;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("begin")) { // a new cluster
                controller = new KafkaController(words[1], Long.parseLong(words[2]));
                answers.println("|");
                continue;
            }
            try {
                answers.println(controller.run(words));
            } catch (Exception error) {
                answers.println("!" + Errors.forException(error) + " " + error.getMessage());
            }
        }
    }
}
