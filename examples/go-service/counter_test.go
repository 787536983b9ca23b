package main

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// startBroker starts a broker for one test, on memory and a free port. It ends when its input does: after the test, and
// with this process in any case. The program is `minibroker` of the PATH, or what the variable MINIBROKER names.
func startBroker(t *testing.T, options ...string) string {
	t.Helper()
	program := os.Getenv("MINIBROKER")
	if program == "" {
		program = "minibroker"
	}
	serve := []string{"serve", "--port", "0", "--memory", "--quiet", "--until-stdin-ends"}
	command := exec.Command(program, append(serve, options...)...)
	command.Stderr = os.Stderr
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		input.Close()
		command.Wait()
	})
	address, err := bufio.NewReader(output).ReadString('\n') // printed when it answers, and not before
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(address)
}

func startCounter(t *testing.T, address string) {
	t.Helper()
	counter, err := NewCounter(address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- counter.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func clientOf(t *testing.T, address string) (*kgo.Client, context.Context) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.ConsumeTopics("counts"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return client, ctx
}

func visit(t *testing.T, ctx context.Context, client *kgo.Client, pages ...string) {
	t.Helper()
	for _, page := range pages {
		if err := client.ProduceSync(ctx, &kgo.Record{Topic: "visits", Key: []byte(page)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

func expect(t *testing.T, ctx context.Context, client *kgo.Client, wanted ...string) {
	t.Helper()
	var found []string
	for len(found) < len(wanted) {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("%v after %v", err, found)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			found = append(found, string(record.Key)+"="+string(record.Value))
		})
	}
	if got, want := strings.Join(found, " "), strings.Join(wanted, " "); got != want {
		t.Fatalf("counts are %s, not %s", got, want)
	}
}

func TestVisitsAreCountedByPage(t *testing.T) {
	address := startBroker(t, "--topic", "visits", "--topic", "counts")
	client, ctx := clientOf(t, address)
	startCounter(t, address)
	visit(t, ctx, client, "/", "/about", "/")
	expect(t, ctx, client, "/=1", "/about=1", "/=2")
}

// struck tells how often the broker's only fault has struck.
func struck(t *testing.T, address string) int {
	t.Helper()
	answer, err := http.Get("http://" + address + "/faults")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var rules []struct{ Strikes int }
	if err := json.NewDecoder(answer.Body).Decode(&rules); err != nil {
		t.Fatal(err)
	}
	return rules[0].Strikes
}

// The broker writes a count and closes the connection instead of an answer; the client may not write it twice.
func TestACountWhoseAnswerIsLostIsWrittenOnce(t *testing.T) {
	lost := "api=Produce,topic=counts,close=after,times=1"
	address := startBroker(t, "--topic", "visits", "--topic", "counts", "--fault", lost)
	client, ctx := clientOf(t, address)
	startCounter(t, address)
	visit(t, ctx, client, "/", "/")
	expect(t, ctx, client, "/=1", "/=2")
	if count := struck(t, address); count != 1 {
		t.Fatalf("the answer was lost %d times", count)
	}
}
