// Transactions of franz-go: ADAPTER BOOTSTRAP. Commands come on the input, what became of them goes to the output;
// ../../test_transactions.py is the other end, README.md has the words.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const callMax = 20 * time.Second

type settings map[string]string

func main() {
	bootstrap := strings.Split(os.Args[2], ",")
	say(map[string]any{"client": os.Args[1], "version": version()})
	producers := map[string]*kgo.Client{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		told := settings{}
		for _, one := range words[2:] {
			key, value, _ := strings.Cut(one, "=")
			told[key] = value
		}
		var err error
		switch words[0] {
		case "copy":
			go copyForEver(bootstrap, told)
			continue
		case "open":
			producers[words[1]], err = opened(bootstrap, told)
		default:
			err = obey(producers[words[1]], words[0], told)
		}
		if err != nil {
			say(map[string]any{"event": "error", "text": err.Error()})
		} else {
			say(map[string]any{"event": "done"})
		}
	}
}

// How a broker is found again soon.
func near(bootstrap []string) []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(bootstrap...),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		kgo.MetadataMinAge(20 * time.Millisecond),
		kgo.AlwaysRetryEOF(), // a broker that is killed right after a connection came is no missing SASL
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}
}

func transactional(bootstrap []string, id, timeoutMs string) []kgo.Opt {
	ms, err := strconv.Atoi(timeoutMs)
	if err != nil {
		panic(err)
	}
	return append(near(bootstrap), kgo.TransactionalID(id), kgo.TransactionTimeout(time.Duration(ms)*time.Millisecond))
}

func limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), callMax)
}

func opened(bootstrap []string, told settings) (*kgo.Client, error) {
	client, err := kgo.NewClient(transactional(bootstrap, told["id"], told["timeout"])...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := limited()
	defer cancel()
	_, _, err = client.ProducerID(ctx) // what the first record would ask for
	return client, err
}

func obey(client *kgo.Client, word string, told settings) error {
	ctx, cancel := limited()
	defer cancel()
	switch word {
	case "begin":
		return client.BeginTransaction()
	case "commit":
		return client.EndTransaction(ctx, kgo.TryCommit)
	case "abort":
		return client.EndTransaction(ctx, kgo.TryAbort)
	case "close":
		client.Close()
		return nil
	case "send":
		var records []*kgo.Record
		for _, value := range strings.Split(told["values"], ",") {
			records = append(records, &kgo.Record{Topic: told["topic"], Value: []byte(value)})
		}
		return client.ProduceSync(ctx, records...).FirstErr()
	}
	return fmt.Errorf("no such command: %s", word)
}

// Copies a topic, each poll in a transaction that also commits how far it has read, until the program ends. Every third
// transaction is aborted, and its records read again; after an error it begins anew.
func copyForEver(bootstrap []string, told settings) {
	for transactions := 0; ; {
		err := copyUntilError(bootstrap, told, &transactions)
		say(map[string]any{"event": "again", "text": err.Error()})
	}
}

func copyUntilError(bootstrap []string, told settings, transactions *int) error {
	options := append(transactional(bootstrap, told["id"], "20000"),
		kgo.ConsumerGroup(told["group"]),
		kgo.ConsumeTopics(told["from"]),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.HeartbeatInterval(300*time.Millisecond),
	)
	session, err := kgo.NewGroupTransactSession(options...)
	if err != nil {
		return err
	}
	defer session.Close()
	for {
		fetches := session.PollRecords(context.Background(), 20)
		for _, failed := range fetches.Errors() {
			return failed.Err
		}
		if fetches.Empty() {
			continue
		}
		*transactions++
		if err := copyOnce(session, fetches, told["to"], *transactions%3 != 2); err != nil {
			return err
		}
	}
}

func copyOnce(session *kgo.GroupTransactSession, fetches kgo.Fetches, target string, commits bool) error {
	if err := session.Begin(); err != nil {
		return err
	}
	ctx, cancel := limited()
	defer cancel()
	results := kgo.AbortingFirstErrPromise(session.Client())
	fetches.EachRecord(func(one *kgo.Record) {
		record := &kgo.Record{Topic: target, Partition: one.Partition, Value: one.Value}
		session.Produce(ctx, record, results.Promise())
	})
	written := results.Err() == nil
	wanted := kgo.TransactionEndTry(commits && written)
	committed, err := session.End(ctx, wanted) // it goes back to what is committed if not
	event := map[bool]string{true: "committed", false: "aborted"}[committed]
	say(map[string]any{"event": event, "records": fetches.NumRecords()})
	return err
}

var spoken sync.Mutex

func say(what map[string]any) {
	text, err := json.Marshal(what)
	if err != nil {
		panic(err)
	}
	spoken.Lock()
	defer spoken.Unlock()
	fmt.Printf("%s\n", text)
}

func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, one := range info.Deps {
		if one.Path == "github.com/twmb/franz-go" {
			return strings.TrimPrefix(one.Version, "v")
		}
	}
	return ""
}
