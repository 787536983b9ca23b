package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// franz-go; a client per call of produce and consume, as their settings are fixed at its making.
type franz struct {
	bootstrap string
	admin     *kadm.Client
}

func newFranz(bootstrap string) (client, error) {
	made, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return nil, err
	}
	return &franz{bootstrap, kadm.NewClient(made)}, nil
}

func (f *franz) close() {
	f.admin.Close()
}

func limited() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), readMax)
	_ = cancel // it ends by its deadline or with the process
	return ctx
}

var franzCodecs = map[string]kgo.CompressionCodec{
	"":       kgo.NoCompression(),
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func (f *franz) produce(topic string, partition int32, records []record, how how) ([]int64, error) {
	acks := map[int]kgo.Acks{0: kgo.NoAck(), 1: kgo.LeaderAck(), -1: kgo.AllISRAcks()}[how.acks]
	options := []kgo.Opt{
		kgo.SeedBrokers(f.bootstrap),
		kgo.AllowAutoTopicCreation(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(franzCodecs[how.codec]),
		kgo.ProducerLinger(5 * time.Millisecond),
		kgo.RequiredAcks(acks),
		kgo.MetadataMinAge(50 * time.Millisecond),
	}
	if !how.idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	producer, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	var sent []*kgo.Record
	for _, one := range records {
		made := &kgo.Record{Topic: topic, Partition: partition, Key: one.key, Value: one.value}
		if one.timestamp != noTimestamp {
			made.Timestamp = time.UnixMilli(one.timestamp)
		}
		for _, header := range one.headers {
			made.Headers = append(made.Headers, kgo.RecordHeader{Key: header.key, Value: header.value})
		}
		sent = append(sent, made)
	}
	if err := producer.ProduceSync(limited(), sent...).FirstErr(); err != nil {
		return nil, err
	}
	var offsets []int64
	for _, one := range sent {
		offsets = append(offsets, one.Offset)
	}
	return offsets, nil
}

func (f *franz) consume(topic string, partition int32, firstOffset int64, count int) ([]record, error) {
	start := kgo.NewOffset().AtStart()
	if firstOffset > 0 {
		start = kgo.NewOffset().At(firstOffset)
	}
	consumer, err := kgo.NewClient(
		kgo.SeedBrokers(f.bootstrap),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: start}}),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.MetadataMinAge(50*time.Millisecond), // a topic that is still being made must not cost its 5 s
	)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	var found []record
	ctx := limited()
	for len(found) < count {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return nil, fmt.Errorf("%d of %d records: %w", len(found), count, err)
		}
		for _, failed := range fetches.Errors() {
			return nil, failed.Err
		}
		fetches.EachRecord(func(one *kgo.Record) { found = append(found, fromFranz(one)) })
	}
	return found, nil
}

// Its position is what it would commit for what it has given out, so an empty batch at the end does not show in it.
func (f *franz) readCommitted(topic string, partition int32) ([]record, int64, error) {
	consumer, err := kgo.NewClient(
		kgo.SeedBrokers(f.bootstrap),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().AtStart()}}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(100*time.Millisecond),
	)
	if err != nil {
		return nil, 0, err
	}
	defer consumer.Close()
	var found []record
	for {
		ctx, cancel := context.WithTimeout(context.Background(), stayTime)
		fetches := consumer.PollFetches(ctx)
		cancel()
		if errors.Is(fetches.Err0(), context.DeadlineExceeded) {
			return found, -1, nil
		}
		for _, failed := range fetches.Errors() {
			return nil, 0, failed.Err
		}
		fetches.EachRecord(func(one *kgo.Record) { found = append(found, fromFranz(one)) })
	}
}

func fromFranz(one *kgo.Record) record {
	made := record{key: one.Key, value: one.Value, timestamp: one.Timestamp.UnixMilli(), offset: one.Offset}
	for _, header_ := range one.Headers {
		made.headers = append(made.headers, header{header_.Key, header_.Value})
	}
	return made
}

func (f *franz) offsets(topic string, partition int32) ([]int64, error) {
	starts, err := f.admin.ListStartOffsets(limited(), topic)
	if err != nil {
		return nil, err
	}
	ends, err := f.admin.ListEndOffsets(limited(), topic)
	if err != nil {
		return nil, err
	}
	start, _ := starts.Lookup(topic, partition)
	end, _ := ends.Lookup(topic, partition)
	return []int64{start.Offset, end.Offset}, errors.Join(start.Err, end.Err)
}

// kadm answers the end offset, with no timestamp, where no record is that young.
func (f *franz) offsetAt(topic string, partition int32, timestamp int64) (int64, bool, error) {
	listed, err := f.admin.ListOffsetsAfterMilli(limited(), timestamp, topic)
	if err != nil {
		return 0, false, err
	}
	found, _ := listed.Lookup(topic, partition)
	return found.Offset, found.Timestamp >= 0, found.Err
}

func (f *franz) create(topic string, partitions int32, configs map[string]string) error {
	wanted := map[string]*string{}
	for name, value := range configs {
		wanted[name] = &value
	}
	_, err := f.admin.CreateTopic(limited(), partitions, 1, wanted, topic)
	return err
}

func (f *franz) describe(topic string) ([]int32, error) {
	listed, err := f.admin.ListTopics(limited(), topic)
	if err != nil {
		return nil, err
	}
	if err := listed[topic].Err; err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
		return nil, err
	}
	return listed[topic].Partitions.Numbers(), nil
}

func (f *franz) configs(topic string) (map[string]string, error) {
	described, err := f.admin.DescribeTopicConfigs(limited(), topic)
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, one := range described {
		for _, config := range one.Configs {
			found[config.Key] = config.MaybeValue()
		}
	}
	return found, nil
}

func (f *franz) delete(topic string) error {
	_, err := f.admin.DeleteTopic(limited(), topic)
	return err
}

func (f *franz) topics() ([]string, error) {
	listed, err := f.admin.ListTopics(limited())
	return slices.Clone(listed.Names()), err
}
