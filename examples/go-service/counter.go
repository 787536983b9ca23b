// Counter reads visits and writes, for each page, how many there were so far: a small service on franz-go.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Counter has the counts of this run in memory.
type Counter struct {
	client *kgo.Client
	counts map[string]int
}

// NewCounter connects to the brokers; options are added to its own.
func NewCounter(bootstrapServers string, options ...kgo.Opt) (*Counter, error) {
	options = append([]kgo.Opt{
		kgo.SeedBrokers(bootstrapServers),
		kgo.ConsumerGroup("counter"),
		kgo.ConsumeTopics("visits"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.ProducerLinger(0),
	}, options...)
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	return &Counter{client: client, counts: map[string]int{}}, nil
}

// Run works until the context ends, and finishes what it has begun. Counts are written before what was read is committed.
func (counter *Counter) Run(ctx context.Context) error {
	defer counter.client.Close()
	begun := context.WithoutCancel(ctx)
	for {
		fetches := counter.client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err := fetches.Err(); err != nil {
			return err
		}
		var results []*kgo.Record
		fetches.EachRecord(func(visit *kgo.Record) {
			page := string(visit.Key)
			counter.counts[page]++
			count := strconv.Itoa(counter.counts[page])
			results = append(results, &kgo.Record{Topic: "counts", Key: visit.Key, Value: []byte(count)})
		})
		if err := counter.client.ProduceSync(begun, results...).FirstErr(); err != nil {
			return fmt.Errorf("writing counts: %w", err)
		}
		if err := counter.client.CommitUncommittedOffsets(begun); err != nil {
			return fmt.Errorf("committing: %w", err)
		}
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	counter, err := NewCounter(os.Getenv("KAFKA_BOOTSTRAP_SERVERS"))
	if err == nil {
		err = counter.Run(ctx)
	}
	if err != nil {
		log.Fatal(err)
	}
}
