package main

import (
	"context"
	"flag"
	"io"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/http2"
)

// serve is Go's own server. After so many notifications it shuts down gracefully, with GOAWAY, and starts again with
// another stream limit.
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
	handler := http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		id := request.Header.Get("apns-id")
		if _, err := io.Copy(io.Discard, request.Body); err != nil {
			return
		}
		account.arrived(request.URL.Path, id)
		time.Sleep(time.Duration(random.upTo(int64(o.late))))
		if account.accept(request.URL.Path)%every == 0 {
			select {
			case restart <- struct{}{}:
			default:
			}
		}
		w.Header().Set("apns-id", id)
	})
	listener, err := o.listen()
	if err != nil {
		return err
	}
	announce(o.port)
	go untilStopped(account)
	limits := []uint32{1000, 17, 1, 100, 3}
	for number := 0; ; number++ {
		server := &http.Server{Handler: handler, TLSConfig: config.Clone()}
		// The first limit is met by all; the lowest ones by few.
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
		if listener, err = o.listen(); err != nil {
			return err
		}
	}
}
