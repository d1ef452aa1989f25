// Clients and servers with Go's own HTTP/2 (golang.org/x/net/http2), for tests: `serve` and `frames` act as APNs, and
// `push` as a provider that talks to APNs itself.
package main

import (
	"fmt"
	"os"
)

func main() {
	commands := map[string]func([]string) error{"serve": serve, "frames": serveFrames, "push": push}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: foreign serve|frames|push [options]")
		os.Exit(64)
	}
	if err := commands[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
