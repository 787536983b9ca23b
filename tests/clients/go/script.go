// The script of work for the Go clients: ADAPTER BOOTSTRAP PREFIX BASE_MS STEPS FOREIGN_TOPIC [VARIANT].
//
// Steps, records and output are those of ../python/script.py; franz.go and sarama.go are the clients.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	largeBytes  = 900 * 1024
	settleMax   = 15 * time.Second
	readMax     = 20 * time.Second
	stayTime    = time.Second // at the end of a partition, where nothing comes
	noTimestamp = int64(-1)
)

// A record as it was written or read; nil bytes are null.
type record struct {
	key, value []byte
	headers    []header
	timestamp  int64
	offset     int64
}

type header struct {
	key   string
	value []byte
}

type how struct {
	codec      string
	acks       int
	idempotent bool
}

// Holes in a topic that was compacted.
var holes = []int64{0, 19, 22, 61, 79, 98}

// What the steps need of a client. produce returns no offsets where acks is 0.
type client interface {
	produce(topic string, partition int32, records []record, how how) ([]int64, error)
	consume(topic string, partition int32, firstOffset int64, count int) ([]record, error)
	// Reads what is committed until nothing has come for a while; position -1: the client cannot tell.
	readCommitted(topic string, partition int32) (found []record, position int64, err error)
	offsets(topic string, partition int32) ([]int64, error)
	offsetAt(topic string, partition int32, timestamp int64) (offset int64, found bool, err error)
	create(topic string, partitions int32, configs map[string]string) error
	describe(topic string) ([]int32, error)
	configs(topic string) (map[string]string, error)
	delete(topic string) error
	topics() ([]string, error)
	close()
}

type script struct {
	client       client
	prefix       string
	baseMs       int64
	steps        []string
	foreignTopic string
}

func main() {
	adapter, bootstrap, variant := os.Args[1], os.Args[2], ""
	if len(os.Args) > 7 {
		variant = os.Args[7]
	}
	baseMs, err := strconv.ParseInt(os.Args[4], 10, 64)
	check(err)
	made, module, err := newClient(adapter, bootstrap, variant)
	check(err)
	fmt.Printf("{\"client\": %q, \"version\": %q}\n", adapter, versionOf(module))
	s := script{made, os.Args[3], baseMs, strings.Split(os.Args[5], ","), os.Args[6]}
	for _, step := range s.steps {
		start := time.Now()
		records, err := s.run(step)
		if err != nil {
			fmt.Fprintf(os.Stderr, "step %s: %v\n", step, err)
			os.Exit(1)
		}
		fmt.Printf("{\"step\": %q, \"records\": %d, \"ms\": %d}\n", step, records, time.Since(start).Milliseconds())
	}
	made.close()
}

func newClient(adapter, bootstrap, variant string) (client, string, error) {
	switch adapter {
	case "franz-go":
		made, err := newFranz(bootstrap)
		return made, "github.com/twmb/franz-go", err
	case "sarama":
		made, err := newSarama(bootstrap, variant)
		return made, "github.com/IBM/sarama", err
	}
	return nil, "", fmt.Errorf("no client %q", adapter)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func versionOf(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, one := range info.Deps {
		if one.Path == module {
			return strings.TrimPrefix(one.Version, "v")
		}
	}
	return ""
}

func (s *script) run(step string) (int, error) {
	switch step {
	case "create":
		return 0, s.client.create(s.topic("made"), 3, map[string]string{"retention.ms": "86400000"})
	case "describe":
		return 0, s.describe()
	case "configs":
		found, err := s.client.configs(s.topic("made"))
		return 0, expect(err, "retention.ms", found["retention.ms"], "86400000")
	case "partitions":
		return s.partitions()
	case "acks":
		return s.acks()
	case "nulls":
		records := []record{plain(nil, []byte("v")), plain([]byte("k"), nil), plain([]byte{}, []byte{})}
		return s.writeAndRead(s.topic("nulls"), 0, records, how{acks: -1})
	case "headers":
		return s.headers()
	case "null headers":
		one := plain([]byte("k"), []byte("v"))
		one.headers = []header{{"null", nil}, {"empty", []byte{}}}
		return s.writeAndRead(s.topic("null-headers"), 0, []record{one}, how{acks: -1})
	case "large":
		small := samples("large", 2)
		large := func(seed int) record { return plain([]byte("large"), largeValue(seed)) }
		return s.writeAndRead(s.topic("large"), 0, []record{small[0], large(0), small[1], large(1)}, how{acks: -1})
	case "offsets":
		return 0, s.expectOffsets("none")
	case "timestamps":
		return s.writeAndRead(s.topic("time"), 0, s.timed(), how{acks: -1})
	case "by time":
		return s.byTime()
	case "idempotent":
		topic := s.topic("idempotent")
		count, err := s.writeAndRead(topic, 0, samples("idempotent", 100), how{acks: -1, idempotent: true})
		if err == nil {
			err = s.expectOffsets("idempotent")
		}
		return count, err
	case "foreign":
		return s.foreign()
	case "gaps":
		return s.gaps(s.foreignTopic)
	case "gaps zstd":
		return s.gaps(s.foreignTopic + "-zstd")
	case "holes":
		return s.holes()
	case "committed":
		return s.committed()
	case "end":
		return s.end()
	case "delete":
		return 0, s.delete()
	}
	codec, isCodec := strings.CutPrefix(step, "codec ")
	if !isCodec {
		return 0, fmt.Errorf("no such step")
	}
	return s.writeAndRead(s.topic(codec), 0, samples(codec, 100), how{codec: codec, acks: -1})
}

func plain(key, value []byte) record {
	return record{key: key, value: value, timestamp: noTimestamp}
}

func sampleValue(what string, index int) []byte {
	value := fmt.Appendf(nil, "%s %d ", what, index)
	for j := range index % 64 {
		value = append(value, byte(index*7+j*13))
	}
	return value
}

func samples(what string, count int) []record {
	var made []record
	for index := range count {
		made = append(made, plain(fmt.Appendf(nil, "key-%d", index), sampleValue(what, index)))
	}
	return made
}

func largeValue(seed int) []byte {
	value := make([]byte, largeBytes)
	for j := range value {
		value[j] = byte(j*31 + (j>>8)*17 + seed)
	}
	return value
}

func (s *script) timed() []record {
	made := samples("timestamps", 10)
	for index := range made {
		made[index].timestamp = s.baseMs + 1000*int64(index)
	}
	return made
}

func expect(err error, what string, got, wanted any) error {
	if err == nil && !reflect.DeepEqual(got, wanted) {
		err = fmt.Errorf("%s: got %.300q, wanted %.300q", what, fmt.Sprint(got), fmt.Sprint(wanted))
	}
	return err
}

// Null and empty differ.
func expectBytes(what string, got, wanted []byte) error {
	if (got == nil) != (wanted == nil) || !bytes.Equal(got, wanted) {
		return fmt.Errorf("%s: got %.300q (null: %t), wanted %.300q (null: %t)", what, got, got == nil, wanted, wanted == nil)
	}
	return nil
}

func sequence(first int64, count int) []int64 {
	var numbers []int64
	for index := range count {
		numbers = append(numbers, first+int64(index))
	}
	return numbers
}

func (s *script) topic(name string) string {
	return s.prefix + "-" + name
}

func (s *script) write(topic string, partition int32, records []record, first int64, how how) error {
	offsets, err := s.client.produce(topic, partition, records, how)
	if err != nil || how.acks == 0 {
		return err
	}
	what := fmt.Sprintf("%s-%d: acknowledged offsets", topic, partition)
	return expect(nil, what, offsets, sequence(first, len(records)))
}

func (s *script) read(topic string, partition int32, records []record, first int64) error {
	got, err := s.client.consume(topic, partition, first, len(records))
	if err != nil {
		return err
	}
	var offsets []int64
	for _, one := range got {
		offsets = append(offsets, one.offset)
	}
	what := fmt.Sprintf("%s-%d: offsets read", topic, partition)
	if err := expect(nil, what, offsets, sequence(first, len(records))); err != nil {
		return err
	}
	for index, wanted := range records {
		if err := s.compare(fmt.Sprintf("%s-%d: offset %d", topic, partition, offsets[index]), got[index], wanted); err != nil {
			return err
		}
	}
	return nil
}

func (s *script) compare(place string, got, wanted record) error {
	if err := expectBytes(place+": key", got.key, wanted.key); err != nil {
		return err
	}
	if err := expectBytes(place+": value", got.value, wanted.value); err != nil {
		return err
	}
	if wanted.timestamp != noTimestamp && slices.Contains(s.steps, "timestamps") && got.timestamp != wanted.timestamp {
		return fmt.Errorf("%s: timestamp: got %d, wanted %d", place, got.timestamp, wanted.timestamp)
	}
	if !slices.Contains(s.steps, "headers") {
		return nil
	}
	if err := expect(nil, place+": count of headers", len(got.headers), len(wanted.headers)); err != nil {
		return err
	}
	for index, one := range wanted.headers {
		if err := expect(nil, place+": header name", got.headers[index].key, one.key); err != nil {
			return err
		}
		if err := expectBytes(place+": header "+one.key, got.headers[index].value, one.value); err != nil {
			return err
		}
	}
	return nil
}

func (s *script) writeAndRead(topic string, partition int32, records []record, how how) (int, error) {
	if err := s.write(topic, partition, records, 0, how); err != nil {
		return 0, err
	}
	return len(records), s.read(topic, partition, records, 0)
}

func (s *script) describe() error {
	name, wanted := "none", []int32{0}
	if slices.Contains(s.steps, "create") {
		name, wanted = "made", []int32{0, 1, 2}
	}
	// A broker may tell of a new topic a moment after it has created it.
	deadline := time.Now().Add(settleMax)
	for {
		got, err := s.client.describe(s.topic(name))
		slices.Sort(got)
		if slices.Equal(got, wanted) || time.Now().After(deadline) {
			return expect(err, "partitions of "+name, got, wanted)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (s *script) partitions() (int, error) {
	count := 0
	for partition := range int32(3) {
		records := samples(fmt.Sprintf("partition %d", partition), 5)
		more, err := s.writeAndRead(s.topic("made"), partition, records, how{acks: -1})
		if err != nil {
			return 0, err
		}
		count += more
	}
	return count, nil
}

func (s *script) acks() (int, error) {
	topic, records := s.topic("acks"), samples("acks", 30)
	// Nobody acknowledges the first ten: read them before the next are sent over another connection.
	if err := s.write(topic, 0, records[:10], 0, how{acks: 0}); err != nil {
		return 0, err
	}
	if err := s.read(topic, 0, records[:10], 0); err != nil {
		return 0, err
	}
	if err := s.write(topic, 0, records[10:20], 10, how{acks: 1}); err != nil {
		return 0, err
	}
	if err := s.write(topic, 0, records[20:], 20, how{acks: -1}); err != nil {
		return 0, err
	}
	return len(records), s.read(topic, 0, records, 0)
}

func (s *script) headers() (int, error) {
	var all []byte
	for index := range 256 {
		all = append(all, byte(index))
	}
	records := []record{
		plain([]byte("k0"), []byte("none")),
		plain([]byte("k1"), []byte("text")),
		plain([]byte("k2"), []byte("order")),
		plain([]byte("k3"), []byte("empty")),
	}
	records[1].headers = []header{{"h1", []byte("first")}, {"h1", []byte("second")}}
	records[2].headers = []header{{"z", []byte("1")}, {"a", []byte("2")}, {"z", all}}
	records[3].headers = []header{{"empty", []byte{}}, {"näme", []byte("x")}}
	return s.writeAndRead(s.topic("headers"), 0, records, how{acks: -1})
}

func (s *script) expectOffsets(name string) error {
	got, err := s.client.offsets(s.topic(name), 0)
	return expect(err, name+": earliest and end offset", got, []int64{0, 100})
}

func (s *script) byTime() (int, error) {
	topic := s.topic("time")
	for laterMs, wanted := range map[int64]int64{0: 0, 2500: 3, 3000: 3, 9000: 9, 9001: -1} {
		offset, found, err := s.client.offsetAt(topic, 0, s.baseMs+laterMs)
		if !found {
			offset = -1
		}
		if err := expect(err, fmt.Sprintf("%s: offset at %d ms", topic, laterMs), offset, wanted); err != nil {
			return 0, err
		}
	}
	return 7, s.read(topic, 0, s.timed()[3:], 3)
}

func (s *script) foreign() (int, error) {
	records := samples("foreign", 80)
	for index := range records {
		records[index].headers = []header{{"index", []byte(strconv.Itoa(index))}}
		records[index].timestamp = s.baseMs + int64(index)
	}
	return len(records), s.read(s.foreignTopic, 0, records, 0)
}

// Records of a topic that was compacted, at those of its 120 offsets that are there.
func cleaned(isThere func(offset int) bool) []record {
	var made []record
	for offset := range 120 {
		if isThere(offset) {
			one := plain(fmt.Appendf(nil, "key-%d", offset), sampleValue("cleaned", offset))
			one.offset = int64(offset)
			made = append(made, one)
		}
	}
	return made
}

func left() []record {
	return cleaned(func(at int) bool { return at%3 == 0 && (at >= 20 && at < 60 || at >= 80 && at < 100) })
}

func match(topic string, got, wanted []record) (int, error) {
	offsets := func(records []record) (found []int64) {
		for _, one := range records {
			found = append(found, one.offset)
		}
		return found
	}
	if err := expect(nil, topic+": offsets read", offsets(got), offsets(wanted)); err != nil {
		return 0, err
	}
	for index, one := range wanted {
		place := fmt.Sprintf("%s: offset %d", topic, one.offset)
		if err := errors.Join(expectBytes(place, got[index].key, one.key), expectBytes(place, got[index].value, one.value)); err != nil {
			return 0, err
		}
	}
	return len(wanted), nil
}

func (s *script) gaps(topic string) (int, error) {
	got, err := s.client.consume(topic, 0, 0, len(left()))
	if err != nil {
		return 0, err
	}
	return match(topic, got, left())
}

func (s *script) holes() (int, error) {
	for _, hole := range holes {
		got, err := s.client.consume(s.foreignTopic, 0, hole, 1)
		if err != nil {
			return 0, err
		}
		wanted := slices.DeleteFunc(left(), func(one record) bool { return one.offset < hole })
		if _, err := match(fmt.Sprintf("%s from %d", s.foreignTopic, hole), got[:1], wanted[:1]); err != nil {
			return 0, err
		}
	}
	return len(holes), nil
}

// Twelve transactions: ten offsets each, the last one a marker, every other one aborted.
func (s *script) committed() (int, error) {
	topic := s.foreignTopic + "-txn"
	got, _, err := s.client.readCommitted(topic, 0)
	if err != nil {
		return 0, err
	}
	return match(topic, got, cleaned(func(at int) bool { return at/10%2 == 0 && at%10 != 9 }))
}

// What is behind the last record, an empty batch or an aborted transaction, is behind the consumer too.
func (s *script) end() (int, error) {
	count := 0
	for _, topic := range []string{s.foreignTopic + "-txn", s.foreignTopic} {
		got, position, err := s.client.readCommitted(topic, 0)
		if err == nil && position != -1 {
			err = expect(nil, topic+": position at the end", position, int64(120))
		}
		if err != nil {
			return 0, err
		}
		if topic == s.foreignTopic {
			if count, err = match(topic, got, left()); err != nil {
				return 0, err
			}
		}
	}
	return count, nil
}

func (s *script) delete() error {
	topic, deadline := s.topic("made"), time.Now().Add(settleMax)
	if err := s.client.delete(topic); err != nil {
		return err
	}
	for {
		listed, err := s.client.topics()
		if err != nil || !slices.Contains(listed, topic) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: still listed %v after its deletion", topic, settleMax)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
