package main

import (
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

// record is a server's account. The device token identifies a notification, because each job of a test has its own.
type record struct {
	mutex sync.Mutex

	Requests   int `json:"requests"`
	Accepted   int `json:"accepted"`
	Distinct   int `json:"distinct"`
	ChangedIDs int `json:"changedIDs"`
	GoAways    int `json:"goAways"`
	Resets     int `json:"resets"`
	Cuts       int `json:"cuts"`
	Settings   int `json:"settings"`
	Restarts   int `json:"restarts"`
	// Violations of the protocol by the client.
	Violations []string `json:"violations"`

	ids      map[string]string
	accepted map[string]int
}

func newRecord() *record {
	return &record{Violations: []string{}, ids: map[string]string{}, accepted: map[string]int{}}
}

// arrived records a complete request, whatever its answer, and returns the number of requests so far.
func (r *record) arrived(path, id string) int {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.Requests++
	if !strings.HasPrefix(path, "/3/device/") || id == "" {
		r.Violations = append(r.Violations, fmt.Sprintf("a request for %q with the apns-id %q", path, id))
	}
	if first, isKnown := r.ids[path]; isKnown && first != id {
		r.ChangedIDs++
	}
	r.ids[path] = id
	return r.Requests
}

// accept records that a notification was accepted.
func (r *record) accept(path string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.Accepted++
	r.accepted[path]++
	r.Distinct = len(r.accepted)
}

func (r *record) count(counter *int) {
	r.mutex.Lock()
	*counter++
	r.mutex.Unlock()
}

func (r *record) violation(format string, arguments ...any) {
	r.mutex.Lock()
	r.Violations = append(r.Violations, fmt.Sprintf(format, arguments...))
	r.mutex.Unlock()
}

// options are common to all servers.
type options struct {
	certificate, key string
	port             int
	late             time.Duration
	seed             int64
}

func parse(name string, arguments []string, more func(*flag.FlagSet)) (*options, error) {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	o := &options{}
	flags.StringVar(&o.certificate, "certificate", "", "the server's certificate, PEM")
	flags.StringVar(&o.key, "key", "", "its key, PEM")
	flags.IntVar(&o.port, "port", 0, "the port on 127.0.0.1")
	flags.DurationVar(&o.late, "late", 20*time.Millisecond, "the longest time before an answer")
	flags.Int64Var(&o.seed, "seed", 1, "where the randomness starts")
	more(flags)
	return o, flags.Parse(arguments)
}

func (o *options) tls() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(o.certificate, o.key)
	return &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}}, err
}

func (o *options) listen() (net.Listener, error) {
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", o.port))
	if err == nil {
		o.port = listener.Addr().(*net.TCPAddr).Port
	}
	return listener, err
}

func announce(port int) { fmt.Printf("{\"port\":%d}\n", port) }

// untilStopped waits for SIGTERM, then prints the account.
func untilStopped(r *record) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	<-signals
	r.mutex.Lock()
	defer r.mutex.Unlock()
	text, err := json.Marshal(r)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(string(text))
	os.Exit(0)
}

// dice is a source of random numbers for several goroutines.
type dice struct {
	mutex  sync.Mutex
	random *rand.Rand
}

func (d *dice) upTo(n int64) int64 {
	if n <= 0 {
		return 0
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.random.Int63n(n)
}

func newDice(seed int64) *dice { return &dice{random: rand.New(rand.NewSource(seed))} }
