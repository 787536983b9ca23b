// Serves one broker of franz-go's kfake on a port of loopback until SIGTERM: kfake PORT [DIRECTORY].
// Without a directory it keeps everything in memory.
package main

import (
	"log"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	port, err := strconv.Atoi(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	options := []kfake.Opt{kfake.Ports(port), kfake.AllowAutoTopicCreation()}
	if len(os.Args) > 2 {
		options = append(options, kfake.DataDir(os.Args[2]))
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	cluster, err := kfake.NewCluster(options...)
	if err != nil {
		log.Fatal(err)
	}
	<-stop
	cluster.Close()
}
