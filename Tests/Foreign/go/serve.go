package main

import (
	"context"
	"flag"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// serve runs Go's own server. After a number of notifications it shuts down gracefully, with GOAWAY, and starts again
// with another stream limit.
func serve(arguments []string) error {
	every := 0
	o, err := parse("serve", arguments, func(flags *flag.FlagSet) {
		flags.IntVar(&every, "restart-every", 1000, "notifications between two restarts")
	})
	if err != nil {
		return err
	}
	config, err := o.tls()
	if err != nil {
		return err
	}
	account, random := newRecord(), newDice(o.seed)
	restart := make(chan struct{}, 1)
	// Notifications since the last restart began.
	var since atomic.Int64
	handler := http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		id := request.Header.Get("apns-id")
		if _, err := io.Copy(io.Discard, request.Body); err != nil {
			return
		}
		account.arrived(request.URL.Path, id)
		time.Sleep(time.Duration(random.upTo(int64(o.late))))
		account.accept(request.URL.Path)
		switch count := since.Add(1); {
		case count == int64(every):
			restart <- struct{}{}
		case count > 2*int64(every):
			// Shutdown sends no GOAWAY on a connection that is opened during its call; this header does.
			w.Header().Set("Connection", "close")
		}
		w.Header().Set("apns-id", id)
	})
	listener, err := o.listen()
	if err != nil {
		return err
	}
	announce(o.port)
	go untilStopped(account)
	limits := []uint32{100, 17, 1, 1000, 3}
	for number := 0; ; number++ {
		server := &http.Server{Handler: handler, TLSConfig: config.Clone()}
		if err := http2.ConfigureServer(server, &http2.Server{MaxConcurrentStreams: limits[number%len(limits)]}); err != nil {
			return err
		}
		go func(listener net.Listener) { _ = server.ServeTLS(listener, "", "") }(listener)
		<-restart
		patience, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		if err := server.Shutdown(patience); err != nil {
			account.violation("no graceful end: %v", err)
		}
		cancel()
		account.count(&account.Restarts)
		since.Store(0)
		if listener, err = o.listen(); err != nil {
			return err
		}
	}
}
