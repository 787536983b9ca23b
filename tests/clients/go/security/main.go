// Logins of franz-go. Cases come on the input, a JSON line each, and are done some at a time; what became of each goes to
// the output. ../../test_security.py is the other end, README.md has the words.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const (
	atOnce  = 12
	pause   = 50 * time.Millisecond
	callMax = 10 * time.Second
)

type told struct {
	Case     string
	Topic    string
	Token    string
	Seconds  float64
	Settings struct {
		Brokers   []string
		CaFile    string `json:"ca_file"`
		CertFile  string `json:"cert_file"`
		KeyFile   string `json:"key_file"`
		Mechanism string `json:"sasl_mechanism"`
		User      string
		Password  string
	}
}

func main() {
	say(map[string]any{"client": os.Args[1], "version": version()})
	lines := bufio.NewScanner(os.Stdin)
	places := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for lines.Scan() {
		var one told
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			panic(err)
		}
		places <- struct{}{}
		all.Add(1)
		go func() {
			tell(one)
			<-places
			all.Done()
		}()
	}
	all.Wait()
}

func tell(one told) {
	start := time.Now()
	kind, text := "", ""
	if err := produce(one); err != nil {
		kind, text = kindOf(err), err.Error()
	}
	said := map[string]any{"case": one.Case, "error": kind, "text": text[:min(300, len(text))]}
	said["ms"] = time.Since(start).Milliseconds()
	say(said)
}

func kindOf(err error) string {
	var ofKafka *kerr.Error
	if errors.As(err, &ofKafka) {
		return ofKafka.Message
	}
	var ofNet *net.OpError
	if errors.As(err, &ofNet) {
		return ofNet.Op
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return strings.TrimPrefix(fmt.Sprintf("%T", err), "*")
		}
		err = inner
	}
}

func options(one told) ([]kgo.Opt, error) {
	settings := one.Settings
	found := []kgo.Opt{
		kgo.SeedBrokers(settings.Brokers...),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RecordDeliveryTimeout(callMax),
		kgo.DialTimeout(callMax / 2),
	}
	if settings.CaFile != "" {
		pem, err := os.ReadFile(settings.CaFile)
		if err != nil {
			return nil, err
		}
		config := &tls.Config{RootCAs: x509.NewCertPool()}
		config.RootCAs.AppendCertsFromPEM(pem)
		if settings.CertFile != "" {
			own, err := tls.LoadX509KeyPair(settings.CertFile, settings.KeyFile)
			if err != nil {
				return nil, err
			}
			config.Certificates = append(config.Certificates, own)
		}
		found = append(found, kgo.DialTLSConfig(config))
	}
	switch settings.Mechanism {
	case "PLAIN":
		found = append(found, kgo.SASL(plain.Auth{User: settings.User, Pass: settings.Password}.AsMechanism()))
	case "SCRAM-SHA-256":
		found = append(found, kgo.SASL(scram.Auth{User: settings.User, Pass: settings.Password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		found = append(found, kgo.SASL(scram.Auth{User: settings.User, Pass: settings.Password}.AsSha512Mechanism()))
	case "OAUTHBEARER":
		found = append(found, kgo.SASL(oauth.Auth{Token: one.Token}.AsMechanism()))
	}
	return found, nil
}

func produce(one told) error {
	given, err := options(one)
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(given...)
	if err != nil {
		return err
	}
	defer client.Close()
	limited, cancel := context.WithTimeout(context.Background(), callMax)
	defer cancel()
	if err := client.Ping(limited); err != nil { // says at once what a record would wait for
		return err
	}
	send := func() error {
		record := &kgo.Record{Topic: one.Topic, Value: []byte(one.Case)}
		return client.ProduceSync(context.Background(), record).FirstErr()
	}
	err = send()
	end := time.Now().Add(time.Duration(one.Seconds * float64(time.Second)))
	for err == nil && time.Now().Before(end) {
		time.Sleep(pause)
		err = send()
	}
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
