package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/net/http2"
)

// push sends notifications with Go's own client and prints the number of each answer, and the answers to some invalid
// requests.
func push(arguments []string) error {
	flags := flag.NewFlagSet("push", flag.ContinueOnError)
	port := flags.Int("port", 0, "the port of APNs on localhost")
	authority := flags.String("authority", "", "the authority to trust, PEM")
	key := flags.String("key", "", "the p8 file of the key ABC123DEFG of the team TEAM123456")
	count := flags.Int("count", 1000, "the number of notifications")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	trusted, err := os.ReadFile(*authority)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(trusted) {
		return errors.New("no certificate in " + *authority)
	}
	token, err := providerToken(*key)
	if err != nil {
		return err
	}
	client := &http.Client{
		Transport: &http2.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}, Timeout: 60 * time.Second,
	}
	send := func(path, body string, change func(http.Header)) (string, error) {
		request, err := http.NewRequest("POST", fmt.Sprintf("https://localhost:%d%s", *port, path), strings.NewReader(body))
		if err != nil {
			return "", err
		}
		request.Header.Set("authorization", "bearer "+token)
		request.Header.Set("apns-topic", "com.example.app")
		request.Header.Set("apns-push-type", "alert")
		change(request.Header)
		response, err := client.Do(request)
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			return "", err
		}
		var reason struct{ Reason string }
		if len(text) > 0 {
			if err := json.Unmarshal(text, &reason); err != nil {
				return "", err
			}
		}
		if response.Header.Get("apns-id") == "" {
			return "", errors.New("an answer without apns-id")
		}
		return strings.TrimSpace(fmt.Sprint(response.StatusCode, " ", reason.Reason)), nil
	}
	const payload = `{"aps":{"alert":"Hello"}}`
	device := func(number int) string { return fmt.Sprintf("/3/device/%064x", number) }
	none := func(http.Header) {}

	type result struct {
		answer string
		err    error
	}
	results, numbers := make(chan result), make(chan int)
	for sender := 0; sender < 100; sender++ {
		go func() {
			for number := range numbers {
				answer, err := send(device(number), payload, none)
				results <- result{answer, err}
			}
		}()
	}
	go func() {
		for number := 0; number < *count; number++ {
			numbers <- number
		}
		close(numbers)
	}()
	answers := map[string]int{}
	for number := 0; number < *count; number++ {
		result := <-results
		if result.err != nil {
			return result.err
		}
		answers[result.answer]++
	}

	mistakes := map[string]string{}
	for name, mistake := range map[string]struct {
		path, body string
		change     func(http.Header)
	}{
		"no token":      {"/3/device/", payload, none},
		"no topic":      {device(1), payload, func(h http.Header) { h.Del("apns-topic") }},
		"no payload":    {device(1), "", none},
		"large payload": {device(1), `{"aps":{"alert":"` + string(bytes.Repeat([]byte("x"), 4096)) + `"}}`, none},
		"priority 7":    {device(1), payload, func(h http.Header) { h.Set("apns-priority", "7") }},
		"unknown type":  {device(1), payload, func(h http.Header) { h.Set("apns-push-type", "nonsense") }},
	} {
		if mistakes[name], err = send(mistake.path, mistake.body, mistake.change); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"answers": answers, "mistakes": mistakes})
}

func providerToken(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return "", errors.New("no PEM in " + path)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return "", err
	}
	key, isElliptic := parsed.(*ecdsa.PrivateKey)
	if !isElliptic {
		return "", errors.New("no key for ES256 in " + path)
	}
	encode := base64.RawURLEncoding.EncodeToString
	signed := encode([]byte(`{"alg":"ES256","kid":"ABC123DEFG"}`)) + "." +
		encode([]byte(fmt.Sprintf(`{"iss":"TEAM123456","iat":%d}`, time.Now().Unix())))
	digest := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
	if err != nil {
		return "", err
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return signed + "." + encode(signature), nil
}
