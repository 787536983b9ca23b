package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"
)

// sarama; the variant is the Kafka version that it is told to speak, its own default without one.
type saramaClient struct {
	bootstrap []string
	version   sarama.KafkaVersion
	client    sarama.Client
	consumer  sarama.Consumer
	admin     sarama.ClusterAdmin
}

func newSarama(bootstrap, variant string) (client, error) {
	version := sarama.MaxVersion
	var err error
	if variant != "" {
		if version, err = sarama.ParseKafkaVersion(variant); err != nil {
			return nil, err
		}
	}
	made := &saramaClient{bootstrap: []string{bootstrap}, version: version}
	config := made.config()
	config.Consumer.MaxWaitTime = 100 * time.Millisecond
	if made.client, err = sarama.NewClient(made.bootstrap, config); err != nil {
		return nil, err
	}
	made.consumer, err = sarama.NewConsumerFromClient(made.client)
	return made, err
}

func (s *saramaClient) config() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = s.version
	return config
}

func (s *saramaClient) close() {
	_ = s.client.Close()
}

var saramaCodecs = map[string]sarama.CompressionCodec{
	"":       sarama.CompressionNone,
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

func (s *saramaClient) produce(topic string, partition int32, records []record, how how) ([]int64, error) {
	config := s.config()
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.RequiredAcks = sarama.RequiredAcks(how.acks)
	config.Producer.Compression = saramaCodecs[how.codec]
	config.Producer.Flush.Frequency = 5 * time.Millisecond
	if how.idempotent {
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1
	}
	producer, err := sarama.NewSyncProducer(s.bootstrap, config)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	var sent []*sarama.ProducerMessage
	for _, one := range records {
		sent = append(sent, toSarama(topic, partition, one))
	}
	if err := producer.SendMessages(sent); err != nil {
		var failed sarama.ProducerErrors
		if errors.As(err, &failed) {
			return nil, failed[0].Err
		}
		return nil, err
	}
	var offsets []int64
	for _, one := range sent {
		offsets = append(offsets, one.Offset)
	}
	return offsets, nil
}

func toSarama(topic string, partition int32, one record) *sarama.ProducerMessage {
	made := &sarama.ProducerMessage{Topic: topic, Partition: partition}
	if one.key != nil {
		made.Key = sarama.ByteEncoder(one.key)
	}
	if one.value != nil {
		made.Value = sarama.ByteEncoder(one.value)
	}
	if one.timestamp != noTimestamp {
		made.Timestamp = time.UnixMilli(one.timestamp)
	}
	for _, header := range one.headers {
		made.Headers = append(made.Headers, sarama.RecordHeader{Key: []byte(header.key), Value: header.value})
	}
	return made
}

func (s *saramaClient) consume(topic string, partition int32, firstOffset int64, count int) ([]record, error) {
	if firstOffset == 0 {
		firstOffset = sarama.OffsetOldest
	}
	reader, err := s.consumer.ConsumePartition(topic, partition, firstOffset)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	var found []record
	deadline := time.After(readMax)
	for len(found) < count {
		select {
		case one := <-reader.Messages():
			found = append(found, fromSarama(one))
		case <-deadline:
			return nil, fmt.Errorf("%s-%d: %d of %d records in %v", topic, partition, len(found), count, readMax)
		}
	}
	return found, nil
}

// It tells of no position.
func (s *saramaClient) readCommitted(topic string, partition int32) ([]record, int64, error) {
	config := s.config()
	config.Consumer.MaxWaitTime = 100 * time.Millisecond
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	consumer, err := sarama.NewConsumer(s.bootstrap, config)
	if err != nil {
		return nil, 0, err
	}
	defer consumer.Close()
	reader, err := consumer.ConsumePartition(topic, partition, sarama.OffsetOldest)
	if err != nil {
		return nil, 0, err
	}
	defer reader.Close()
	var found []record
	for {
		select {
		case one := <-reader.Messages():
			found = append(found, fromSarama(one))
		case <-time.After(stayTime):
			return found, -1, nil
		}
	}
}

func fromSarama(one *sarama.ConsumerMessage) record {
	made := record{key: one.Key, value: one.Value, timestamp: one.Timestamp.UnixMilli(), offset: one.Offset}
	for _, pair := range one.Headers {
		made.headers = append(made.headers, header{string(pair.Key), pair.Value})
	}
	return made
}

func (s *saramaClient) offsets(topic string, partition int32) ([]int64, error) {
	oldest, err := s.client.GetOffset(topic, partition, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	newest, err := s.client.GetOffset(topic, partition, sarama.OffsetNewest)
	return []int64{oldest, newest}, err
}

func (s *saramaClient) offsetAt(topic string, partition int32, timestamp int64) (int64, bool, error) {
	offset, err := s.client.GetOffset(topic, partition, timestamp)
	return offset, offset >= 0, err
}

// The admin client is made at its first use: older versions cannot have one.
func (s *saramaClient) makeAdmin() (sarama.ClusterAdmin, error) {
	var err error
	if s.admin == nil {
		s.admin, err = sarama.NewClusterAdmin(s.bootstrap, s.config())
	}
	return s.admin, err
}

func (s *saramaClient) create(topic string, partitions int32, configs map[string]string) error {
	admin, err := s.makeAdmin()
	if err != nil {
		return err
	}
	wanted := map[string]*string{}
	for name, value := range configs {
		wanted[name] = &value
	}
	return admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1, ConfigEntries: wanted}, false)
}

func (s *saramaClient) describe(topic string) ([]int32, error) {
	if err := s.client.RefreshMetadata(topic); err != nil {
		return nil, err
	}
	found, err := s.client.Partitions(topic)
	return slices.Clone(found), err
}

func (s *saramaClient) configs(topic string) (map[string]string, error) {
	admin, err := s.makeAdmin()
	if err != nil {
		return nil, err
	}
	entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic})
	found := map[string]string{}
	for _, entry := range entries {
		found[entry.Name] = entry.Value
	}
	return found, err
}

func (s *saramaClient) delete(topic string) error {
	admin, err := s.makeAdmin()
	if err != nil {
		return err
	}
	return admin.DeleteTopic(topic)
}

func (s *saramaClient) topics() ([]string, error) {
	admin, err := s.makeAdmin()
	if err != nil {
		return nil, err
	}
	listed, err := admin.ListTopics()
	var names []string
	for name := range listed {
		names = append(names, name)
	}
	return names, err
}
