// Posts a file with net/http: its bytes, and from a reader of unknown length.
package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	url, token := os.Args[1], os.Args[2]
	body, err := os.ReadFile(os.Args[3])
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: &http.Transport{}}
	for _, reader := range []io.Reader{bytes.NewReader(body), io.MultiReader(bytes.NewReader(body))} {
		request, err := http.NewRequest("POST", url, reader)
		if err != nil {
			panic(err)
		}
		request.Header.Set("Authorization", "Bearer "+token)
		request.Header.Set("Content-Type", "application/x-ndjson")
		answer, err := client.Do(request)
		if err != nil {
			panic(err)
		}
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		fmt.Println("net/http", answer.StatusCode)
	}
}
