/* Made config-answers.jsonl: java -cp "JARS/*" ConfigAnswers.java > config-answers.jsonl, against a new broker with

process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:39193
listeners=PLAINTEXT://127.0.0.1:39192,CONTROLLER://127.0.0.1:39193
controller.listener.names=CONTROLLER
log.dirs=/var/lib/kafka/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
log.roll.hours=24
log.retention.minutes=600
log.index.size.max.bytes=8192
log.flush.scheduler.interval.ms=12345
some.unknown=5
group.consumer.session.timeout.ms=46000
sasl.jaas.config=secret
log.cleaner.min.cleanable.ratio=0.000001
*/
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.config.ConfigResource;
import java.util.*;
import java.util.stream.*;
public class ConfigAnswers {
  static Admin a;
  static String q(String s){ return s==null?"null":"\""+s.replace("\\","\\\\").replace("\"","\\\"").replace("\n","\\n")+"\""; }
  static ConfigResource res(String t,String n){ return new ConfigResource(ConfigResource.Type.valueOf(t),n); }
  static void describe(String label,String t,String n,boolean docs) {
    try {
      Config c=a.describeConfigs(List.of(res(t,n)), new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(docs)).all().get().get(res(t,n));
      StringBuilder b=new StringBuilder("{\"describe\":"+q(label)+",\"type\":"+q(t)+",\"name\":"+q(n)+",\"entries\":[");
      boolean f=true;
      for (ConfigEntry e: c.entries()) {
        if(!f)b.append(","); f=false;
        b.append("["+q(e.name())+","+q(e.value())+","+q(e.source().name())+","+e.isSensitive()+","+e.isReadOnly()+","+q(e.type().name())+",[");
        boolean g=true;
        for (ConfigEntry.ConfigSynonym s: e.synonyms()) { if(!g)b.append(","); g=false; b.append("["+q(s.name())+","+q(s.value())+","+q(s.source().name())+"]"); }
        b.append("]]");
      }
      System.out.println(b.append("]}"));
    } catch(Exception e) { System.out.println("{\"describe\":"+q(label)+",\"error\":"+q(String.valueOf(e.getCause()))+"}"); }
  }
  static void alter(String t,String n,String... ops) {
    String r;
    try {
      List<AlterConfigOp> l=new ArrayList<>();
      for(String o:ops){ String[] p=o.split("~",-1); l.add(new AlterConfigOp(new ConfigEntry(p[1],p.length>2?(p[2].equals("NULL")?null:p[2]):null),AlterConfigOp.OpType.valueOf(p[0]))); }
      a.incrementalAlterConfigs(Map.of(res(t,n),l)).all().get(); r="null";
    } catch(Exception e){ r=q(String.valueOf(e.getCause())); }
    System.out.println("{\"alter\":["+q(t)+","+q(n)+"],\"ops\":["+Arrays.stream(ops).map(ConfigAnswers::q).collect(Collectors.joining(","))+"],\"error\":"+r+"}");
  }
  public static void main(String[] x) throws Exception {
    a=Admin.create(Map.of("bootstrap.servers","127.0.0.1:39192"));
    for(int i=0;i<60;i++){ try{ a.describeCluster().nodes().get(); break;}catch(Exception e){Thread.sleep(500);} }
    a.createTopics(List.of(new NewTopic("t",1,(short)1),new NewTopic("u",1,(short)1).configs(Map.of("segment.bytes","2097152","cleanup.policy","compact,delete")))).all().get();
    Thread.sleep(1000);
    describe("start","BROKER","1",true); describe("start","BROKER","",true); describe("start","TOPIC","t",true); describe("start","TOPIC","u",true); describe("start","GROUP","g",true);
    // topics: values
    for(String s: List.of("SET~retention.ms~x","SET~retention.ms~-2","SET~retention.ms~ 7 ","SET~retention.ms~NULL","SET~retention.ms~99999999999999999999","SET~segment.bytes~99999999999","SET~cleanup.policy~foo","SET~cleanup.policy~","SET~cleanup.policy~delete,delete","SET~cleanup.policy~ delete , compact ","SET~cleanup.policy~delete,","SET~cleanup.policy~NULL","SET~cleanup.policy~none",
      "SET~compression.type~foo","SET~compression.type~GZIP","SET~compression.gzip.level~0","SET~compression.gzip.level~10","SET~compression.lz4.level~18","SET~compression.zstd.level~23","SET~message.timestamp.type~foo","SET~message.timestamp.type~createtime","SET~min.cleanable.dirty.ratio~1.5","SET~min.cleanable.dirty.ratio~x","SET~min.cleanable.dirty.ratio~1e-3","SET~min.insync.replicas~0","SET~preallocate~yes","SET~preallocate~TRUE","SET~unclean.leader.election.enable~maybe",
      "SET~leader.replication.throttled.replicas~foo","SET~leader.replication.throttled.replicas~*","SET~leader.replication.throttled.replicas~0:1,1:1","SET~leader.replication.throttled.replicas~","SET~follower.replication.throttled.replicas~a:b","SET~min.compaction.lag.ms~10,SET","SET~max.compaction.lag.ms~0","SET~message.format.version~2.8","SET~message.downconversion.enable~true","SET~remote.storage.enable~true","SET~local.retention.ms~5","SET~local.retention.ms~-3","SET~remote.log.copy.disable~true","SET~max.decompressed.message.bytes~2147483647","SET~internal.segment.bytes~1000","SET~internal.segment.bytes~x","SET~retention.bytes~-2","SET~flush.ms~-1","SET~max.message.bytes~-1","SET~max.message.bytes~","SET~retention.ms~",
      "APPEND~retention.ms~5","SUBTRACT~retention.ms~5","DELETE~retention.ms","DELETE~nope","DELETE~segment.ms","APPEND~nope~5","APPEND~cleanup.policy~foo","APPEND~cleanup.policy~compact","APPEND~cleanup.policy~compact,delete","SUBTRACT~cleanup.policy~compact","SUBTRACT~cleanup.policy~delete","SUBTRACT~cleanup.policy~delete,compact","APPEND~cleanup.policy~compact","SUBTRACT~cleanup.policy~foo","APPEND~cleanup.policy~","APPEND~cleanup.policy~NULL","SUBTRACT~cleanup.policy~NULL","SET~~5","SET~errors.deadletterqueue.group.enable~true"))
      alter("TOPIC","t",s);
    alter("TOPIC","t","SET~min.compaction.lag.ms~10","SET~max.compaction.lag.ms~5");
    alter("TOPIC","t","SET~local.retention.ms~100","SET~retention.ms~50");
    alter("TOPIC","t","SET~local.retention.bytes~100","SET~retention.bytes~50");
    alter("TOPIC","t","SET~retention.ms~5","SET~nope~5");
    alter("TOPIC","t","SET~remote.log.copy.disable~true","SET~remote.log.delete.on.disable~true");
    describe("after","TOPIC","t",true);
    for(String s: List.of("SET~cleanup.policy~delete","SUBTRACT~cleanup.policy~delete","APPEND~cleanup.policy~compact","APPEND~leader.replication.throttled.replicas~1:1","SUBTRACT~leader.replication.throttled.replicas~1:1")) { alter("TOPIC","u",s); }
    describe("after","TOPIC","u",true);
    // broker
    for(String n: List.of("1",""))
      for(String s: List.of("SET~log.segment.bytes~1","SET~log.segment.bytes~2000000","SET~log.segment.bytes~x","SET~node.id~5","SET~num.io.threads~3","SET~num.io.threads~100","SET~num.io.threads~0","SET~num.network.threads~4","SET~some.unknown~6","SET~unknown.too~6","SET~log.retention.ms~1000","SET~log.retention.hours~3","SET~log.roll.ms~5000000","SET~listeners~PLAINTEXT://127.0.0.1:39192,CONTROLLER://127.0.0.1:39193,X://:1","SET~ssl.keystore.password~abc","SET~ssl.keystore.location~/nope","SET~listener.name.plaintext.ssl.keystore.type~PKCS12","SET~max.connections~50","SET~max.connections~-1","SET~max.connections.per.ip.overrides~foo","SET~auto.create.topics.enable~false","SET~min.insync.replicas~2","SET~message.max.bytes~2000000","SET~log.cleanup.policy~compact","APPEND~log.cleanup.policy~delete","SUBTRACT~log.cleanup.policy~compact","APPEND~log.segment.bytes~5","APPEND~metric.reporters~foo","SET~log.cleaner.threads~2","SET~log.cleaner.threads~5","SET~compression.type~lz4","SET~compression.type~foo","SET~unclean.leader.election.enable~true","DELETE~log.segment.bytes","DELETE~node.id","DELETE~nope","SET~follower.replication.throttled.rate~1000","SET~leader.replication.throttled.rate~x","SET~producer.id.expiration.ms~100000","SET~transaction.partition.verification.enable~false","SET~log.flush.interval.ms~77","SET~group.coordinator.cached.buffer.max.bytes~5","SET~cordoned.log.dirs~/nope","SET~log.message.timestamp.type~LogAppendTime","SET~log.cleaner.io.max.bytes.per.second~1000000","SET~config.providers~x","SET~group.consumer.assignment.interval.ms~2000","SET~log.segment.bytes~NULL","SET~principal.builder.class~foo","SET~sasl.enabled.mechanisms~PLAIN","SET~listener.name.plaintext.max.connections~7"))
        alter("BROKER",n,s);
    alter("BROKER","77","SET~log.segment.bytes~2000000"); alter("BROKER","x","SET~log.segment.bytes~2000000");
    alter("BROKER","1","SET~log.retention.ms~5","SET~log.retention.ms~6");
    alter("BROKER","1","SET~log.segment.bytes~3000000"); alter("BROKER","","SET~log.segment.bytes~4000000");
    Thread.sleep(1500);
    describe("after","BROKER","1",true); describe("after","BROKER","",true); describe("dynamic","TOPIC","t",true);
    for(String s: List.of("SET~consumer.session.timeout.ms~50000","SET~consumer.session.timeout.ms~1","SET~consumer.session.timeout.ms~100000","SET~consumer.session.timeout.ms~x","SET~nope~1","SET~share.auto.offset.reset~earliest","SET~share.auto.offset.reset~foo","SET~share.auto.offset.reset~by_duration:PT1H","SET~share.auto.offset.reset~by_duration:x","SET~share.isolation.level~foo","SET~consumer.heartbeat.interval.ms~60000","SET~consumer.heartbeat.interval.ms~1","SET~share.record.lock.duration.ms~1000","SET~share.delivery.count.limit~100","SET~streams.num.standby.replicas~5","SET~share.partition.max.record.locks~100000","SET~consumer.assignment.interval.ms~99999","APPEND~consumer.session.timeout.ms~5","DELETE~nope","SET~streams.rack.aware.assignment.tags~a,b","SET~streams.assignor.name~foo","SET~streams.task.offset.interval.ms~1"))
      alter("GROUP","g",s);
    alter("GROUP","","SET~consumer.session.timeout.ms~50000");
    Thread.sleep(1000);
    describe("after","GROUP","g",true);
    // create with configs
    for (Map<String,String> m: List.of(Map.of("nope","1"),Map.of("segment.bytes","1"),Map.of("cleanup.policy",""),Map.of("min.compaction.lag.ms","10","max.compaction.lag.ms","5"),Map.of("remote.storage.enable","true"))) {
      String r="null"; try{ a.createTopics(List.of(new NewTopic("bad",1,(short)1).configs(m)), new CreateTopicsOptions().validateOnly(true)).all().get(); }catch(Exception e){ r=q(String.valueOf(e.getCause())); }
      System.out.println("{\"create\":"+q(m.toString())+",\"error\":"+r+"}");
    }
    a.close();
  }
}
