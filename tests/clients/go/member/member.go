// The members of groups for the Go clients: ADAPTER BOOTSTRAP [VARIANT]. Commands come on the input, events go to the
// output; ../../python/group_script.py is the other end, README.md has the words.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	partitions    = 4
	heartbeatEach = 300 * time.Millisecond
	callMax       = 20 * time.Second
)

// What a command needs of a member; what happens to it, it says by itself.
type member interface {
	commit(offsets map[int32]int64) error
	committed() (map[int32]int64, error)
	seek(offsets map[int32]int64) error
	leave() error
}

// What a member was told when it joined.
type settings map[string]string

func (s settings) session() time.Duration {
	ms, err := strconv.Atoi(s["session"])
	check(err)
	return time.Duration(ms) * time.Millisecond
}

// Says what happens to one member.
type speaker struct{ name string }

var spoken sync.Mutex

func (s speaker) say(event string, what map[string]any) {
	line := map[string]any{"member": s.name, "event": event}
	for key, value := range what {
		line[key] = value
	}
	text, err := json.Marshal(line)
	check(err)
	spoken.Lock()
	defer spoken.Unlock()
	fmt.Printf("%s\n", text)
}

func (s speaker) partitions(event string, numbers []int32) {
	s.say(event, map[string]any{"partitions": append([]int32{}, numbers...)})
}

func (s speaker) record(partition int32, offset int64, value []byte) {
	s.say("record", map[string]any{"partition": partition, "offset": offset, "value": string(value)})
}

func (s speaker) failed(err error) {
	s.say("error", map[string]any{"text": err.Error()})
}

func main() {
	adapter, bootstrap, variant := os.Args[1], os.Args[2], ""
	if len(os.Args) > 3 {
		variant = os.Args[3]
	}
	modules := map[string]string{"franz-go": "github.com/twmb/franz-go", "sarama": "github.com/IBM/sarama"}
	fmt.Printf("{\"client\": %q, \"version\": %q}\n", adapter, versionOf(modules[adapter]))
	members := map[string]member{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		told := settings{}
		for _, one := range words[2:] {
			key, value, _ := strings.Cut(one, "=")
			told[key] = value
		}
		speaker := speaker{words[1]}
		if words[0] == "join" {
			made, err := join(adapter, bootstrap, variant, told, speaker)
			if err != nil {
				speaker.failed(err)
			}
			members[words[1]] = made
		} else {
			obey(members[words[1]], words[0], told, speaker)
		}
	}
}

func join(adapter, bootstrap, variant string, told settings, speaker speaker) (member, error) {
	if adapter == "sarama" {
		return joinSarama(bootstrap, variant, told, speaker)
	}
	return joinFranz(bootstrap, told, speaker)
}

func obey(member member, word string, told settings, speaker speaker) {
	var err error
	switch word {
	case "commit":
		err = member.commit(offsetsOf(told["at"]))
	case "seek":
		err = member.seek(offsetsOf(told["to"]))
	case "leave":
		err = member.leave()
	case "committed":
		var found map[int32]int64
		if found, err = member.committed(); err == nil {
			speaker.say("committed", map[string]any{"offsets": found})
			return
		}
	default:
		err = fmt.Errorf("no such command: %s", word)
	}
	if err != nil {
		speaker.failed(err)
		return
	}
	speaker.say("done", nil)
}

func offsetsOf(text string) map[int32]int64 {
	found := map[int32]int64{}
	for _, place := range strings.Split(text, ",") {
		partition, offset, _ := strings.Cut(place, ":")
		number, err := strconv.ParseInt(partition, 10, 32)
		check(err)
		found[int32(number)], err = strconv.ParseInt(offset, 10, 64)
		check(err)
	}
	return found
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
