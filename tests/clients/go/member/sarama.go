package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// A member of sarama; the variant is the Kafka version that it is told to speak. A goroutine takes part in one session
// after another, as sarama wants it.
type saramaMember struct {
	bootstrap    []string
	config       *sarama.Config
	group, topic string
	consumer     sarama.ConsumerGroup
	speaker      speaker
	left         chan struct{}

	lock      sync.Mutex
	session   sarama.ConsumerGroupSession
	stop      context.CancelFunc // ends the session
	positions map[int32]int64    // what is read next
	sought    chan struct{}      // closed when a session begins after a seek
}

var saramaStrategies = map[string]func() sarama.BalanceStrategy{
	"range":       sarama.NewBalanceStrategyRange,
	"roundrobin":  sarama.NewBalanceStrategyRoundRobin,
	"sticky":      sarama.NewBalanceStrategySticky,
	"cooperative": sarama.NewBalanceStrategyCooperativeSticky,
}

func joinSarama(bootstrap, variant string, told settings, speaker speaker) (member, error) {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	var err error
	if variant != "" {
		if config.Version, err = sarama.ParseKafkaVersion(variant); err != nil {
			return nil, err
		}
	}
	group := &config.Consumer.Group
	group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{saramaStrategies[told["assignor"]]()}
	group.Rebalance.Retry.Backoff = 100 * time.Millisecond
	group.Session.Timeout = told.session()
	group.Heartbeat.Interval = heartbeatEach
	group.InstanceId = told["instance"]
	config.Consumer.MaxWaitTime = 100 * time.Millisecond
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	made := &saramaMember{
		bootstrap: []string{bootstrap}, config: config, group: told["group"], topic: told["topic"], speaker: speaker,
		left: make(chan struct{}), positions: map[int32]int64{},
	}
	if made.consumer, err = sarama.NewConsumerGroup(made.bootstrap, made.group, config); err != nil {
		return nil, err
	}
	go made.live()
	return made, nil
}

func (s *saramaMember) live() {
	defer close(s.left)
	for {
		ctx, cancel := context.WithCancel(context.Background())
		s.lock.Lock()
		s.stop = cancel
		s.lock.Unlock()
		err := s.consumer.Consume(ctx, []string{s.topic}, s)
		cancel()
		if errors.Is(err, sarama.ErrClosedConsumerGroup) {
			return
		}
		if err != nil {
			s.speaker.failed(err)
			return
		}
	}
}

// Setup, Cleanup and ConsumeClaim are what sarama calls in a session.
func (s *saramaMember) Setup(session sarama.ConsumerGroupSession) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.session = session
	if s.sought == nil {
		return nil
	}
	// sarama has no seek: a session starts at what is marked, where that can be moved either way.
	for partition, offset := range s.positions {
		session.MarkOffset(s.topic, partition, offset, "")
		session.ResetOffset(s.topic, partition, offset, "")
	}
	close(s.sought)
	s.sought = nil
	return nil
}

func (s *saramaMember) Cleanup(sarama.ConsumerGroupSession) error {
	return nil
}

func (s *saramaMember) ConsumeClaim(_ sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	s.speaker.partitions("assigned", []int32{claim.Partition()})
	defer s.speaker.partitions("revoked", []int32{claim.Partition()})
	for one := range claim.Messages() {
		s.lock.Lock()
		s.positions[one.Partition] = one.Offset + 1
		s.lock.Unlock()
		s.speaker.record(one.Partition, one.Offset, one.Value)
	}
	return nil
}

func (s *saramaMember) commit(offsets map[int32]int64) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	for partition, offset := range offsets {
		s.session.MarkOffset(s.topic, partition, offset, "")
	}
	s.session.Commit() // what goes wrong shows in what is committed
	return nil
}

func (s *saramaMember) committed() (map[int32]int64, error) {
	admin, err := sarama.NewClusterAdmin(s.bootstrap, s.config)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	answer, err := admin.ListConsumerGroupOffsets(s.group, map[string][]int32{s.topic: allPartitions()})
	if err != nil {
		return nil, err
	}
	found := map[int32]int64{}
	for partition, block := range answer.Blocks[s.topic] {
		if block.Err != sarama.ErrNoError {
			return nil, block.Err
		}
		if block.Offset >= 0 {
			found[partition] = block.Offset
		}
	}
	return found, nil
}

func allPartitions() []int32 {
	var all []int32
	for partition := range int32(partitions) {
		all = append(all, partition)
	}
	return all
}

func (s *saramaMember) seek(offsets map[int32]int64) error {
	sought := make(chan struct{})
	s.lock.Lock()
	maps.Copy(s.positions, offsets)
	s.sought = sought
	s.stop()
	s.lock.Unlock()
	select {
	case <-sought:
		return nil
	case <-time.After(callMax):
		return fmt.Errorf("no new session in %v", callMax)
	}
}

func (s *saramaMember) leave() error {
	err := s.consumer.Close() // it leaves the group unless it has an instance id
	<-s.left
	return err
}
