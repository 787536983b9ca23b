package main

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A member of franz-go, of the classic and of the consumer protocol; its client polls in a goroutine.
type franz struct {
	client       *kgo.Client
	group, topic string
}

// In the consumer protocol the broker assigns; the client's range and sticky ask for the broker's range and uniform.
var franzBalancers = map[string]func() kgo.GroupBalancer{
	"range":       kgo.RangeBalancer,
	"roundrobin":  kgo.RoundRobinBalancer,
	"sticky":      kgo.StickyBalancer,
	"cooperative": kgo.CooperativeStickyBalancer,
	"uniform":     kgo.StickyBalancer,
}

func joinFranz(bootstrap string, told settings, speaker speaker) (member, error) {
	said := func(event string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, places map[string][]int32) {
			speaker.partitions(event, places[told["topic"]])
		}
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumerGroup(told["group"]),
		kgo.ConsumeTopics(told["topic"]),
		kgo.Balancers(franzBalancers[told["assignor"]]()),
		kgo.SessionTimeout(told.session()),
		kgo.HeartbeatInterval(heartbeatEach),
		kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.OnPartitionsAssigned(said("assigned")),
		kgo.OnPartitionsRevoked(said("revoked")),
		kgo.OnPartitionsLost(said("revoked")),
	}
	if told["protocol"] == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	}
	if instance, found := told["instance"]; found {
		options = append(options, kgo.InstanceID(instance))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	made := &franz{client, told["group"], told["topic"]}
	go made.poll(speaker)
	return made, nil
}

func (f *franz) poll(speaker speaker) {
	for {
		fetches := f.client.PollFetches(context.Background())
		if fetches.IsClientClosed() {
			return
		}
		for _, failed := range fetches.Errors() {
			speaker.failed(failed.Err)
		}
		fetches.EachRecord(func(one *kgo.Record) { speaker.record(one.Partition, one.Offset, one.Value) })
	}
}

func limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), callMax)
}

func (f *franz) commit(offsets map[int32]int64) error {
	ctx, cancel := limited()
	defer cancel()
	var last []*kgo.Record // it commits the offset behind each
	for partition, offset := range offsets {
		last = append(last, &kgo.Record{Topic: f.topic, Partition: partition, Offset: offset - 1, LeaderEpoch: -1})
	}
	return f.client.CommitRecords(ctx, last...)
}

func (f *franz) committed() (map[int32]int64, error) {
	ctx, cancel := limited()
	defer cancel()
	answers, err := kadm.NewClient(f.client).FetchOffsets(ctx, f.group)
	if err != nil {
		return nil, err
	}
	found := map[int32]int64{}
	answers.Each(func(one kadm.OffsetResponse) {
		if one.Err != nil {
			err = one.Err
		} else if one.At >= 0 {
			found[one.Partition] = one.At
		}
	})
	return found, err
}

func (f *franz) seek(offsets map[int32]int64) error {
	wanted := map[int32]kgo.EpochOffset{}
	for partition, offset := range offsets {
		wanted[partition] = kgo.EpochOffset{Epoch: -1, Offset: offset}
	}
	f.client.SetOffsets(map[string]map[int32]kgo.EpochOffset{f.topic: wanted})
	return nil
}

func (f *franz) leave() error {
	ctx, cancel := limited()
	defer cancel()
	defer f.client.Close()
	// One with an instance id stays a member.
	return f.client.LeaveGroupContext(ctx)
}
