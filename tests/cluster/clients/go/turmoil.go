// franz-go as ../../turmoil.py wants it: BOOTSTRAP TOPIC; see Process there for what is said.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	common := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(os.Args[1], ",")...),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		kgo.MetadataMinAge(20 * time.Millisecond),
		kgo.AlwaysRetryEOF(), // a broker that is killed right after a connection came is no missing SASL
	}
	topic := os.Args[2]
	var producer *kgo.Client
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		words := strings.Fields(in.Text())
		if words[0] == "send" {
			if producer == nil {
				producer = made(append(common, kgo.RecordPartitioner(kgo.ManualPartitioner())))
			}
			var records []*kgo.Record
			for i := 1; i < len(words); i += 2 {
				records = append(records, &kgo.Record{Topic: topic, Partition: int32(number(words[i])), Value: []byte(words[i+1])})
			}
			for _, result := range producer.ProduceSync(context.Background(), records...) {
				check(result.Err)
				fmt.Println("ack", result.Record.Partition, string(result.Record.Value), result.Record.Offset)
			}
		} else {
			read(common, topic, words)
		}
		fmt.Println("done")
	}
	if producer != nil {
		producer.Close()
	}
}

func read(common []kgo.Opt, topic string, words []string) {
	offsets := map[int32]kgo.Offset{}
	missing := 0
	for i := 1; i < len(words); i += 2 {
		offsets[int32(number(words[i]))] = kgo.NewOffset().AtStart()
		missing += number(words[i+1])
	}
	consumer := made(append(common, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets})))
	defer consumer.Close()
	for missing > 0 {
		fetches := consumer.PollFetches(context.Background())
		for _, failed := range fetches.Errors() {
			check(failed.Err)
		}
		fetches.EachRecord(func(one *kgo.Record) {
			fmt.Println("got", one.Partition, one.Offset, string(one.Value))
			missing--
		})
	}
}

func made(options []kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(options...)
	check(err)
	return client
}

func number(text string) int {
	found, err := strconv.Atoi(text)
	check(err)
	return found
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
