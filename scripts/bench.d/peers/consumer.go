// A consumer of the bench's jobs in Go, with golang.org/x/net/http2 and redigo, as a backend team would write it.
//
// It does less than a worker, in its favor: it pops many jobs at once without a lease, so that a crash loses them, keeps
// nothing in Redis, retries nothing, and makes one provider token. It has one connection to the server.
//
// On SIGTERM it ends after the last answer, and prints the number of answers by status, and the seconds from the first job
// to the last answer, as a line of JSON.
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
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/gomodule/redigo/redis"
	"golang.org/x/net/http2"
)

type job struct {
	Token    string          `json:"token"`
	Topic    string          `json:"topic"`
	PushType string          `json:"push_type"`
	Priority int             `json:"priority"`
	Payload  json.RawMessage `json:"payload"`
}

// The pause after an empty list.
const pause = 10 * time.Millisecond

func main() {
	if err := consume(); err != nil {
		fmt.Fprintln(os.Stderr, "consumer:", err)
		os.Exit(1)
	}
}

func consume() error {
	redisPort := flag.Int("redis-port", 0, "the port of Redis on 127.0.0.1")
	port := flag.Int("port", 0, "the port of the server on localhost")
	authority := flag.String("authority", "", "the authority to trust, PEM")
	key := flag.String("key", "", "the p8 file of the provider key")
	keyID := flag.String("key-id", "", "the identifier of the key")
	teamID := flag.String("team-id", "", "the identifier of the team")
	window := flag.Int("window", 500, "the number of requests in flight, and of jobs in one pop")
	flag.Parse()

	trusted, err := os.ReadFile(*authority)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(trusted) {
		return errors.New("no certificate in " + *authority)
	}
	token, err := providerToken(*key, *keyID, *teamID)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http2.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool}, StrictMaxConcurrentStreams: true, DisableCompression: true,
	}}
	url, authorization := fmt.Sprintf("https://localhost:%d/3/device/", *port), "bearer "+token
	connection, err := redis.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", *redisPort))
	if err != nil {
		return err
	}
	defer connection.Close()
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)

	jobs := make(chan []byte, *window)
	answers, last := map[string]int{}, time.Time{}
	var lock sync.Mutex
	var senders sync.WaitGroup
	for sender := 0; sender < *window; sender++ {
		senders.Add(1)
		go func() {
			defer senders.Done()
			own, ended := map[string]int{}, time.Time{}
			for text := range jobs {
				status, err := send(client, url, authorization, text)
				if err != nil {
					fmt.Fprintln(os.Stderr, "consumer:", err)
					status = "error"
				}
				own[status]++
				ended = time.Now()
			}
			lock.Lock()
			defer lock.Unlock()
			for status, count := range own {
				answers[status] += count
			}
			if ended.After(last) {
				last = ended
			}
		}()
	}
	fmt.Println("ready")

	var began time.Time
	for isRunning := true; isRunning; {
		popped, err := redis.ByteSlices(connection.Do("LPOP", "push:{default}:jobs", *window))
		if err != nil && err != redis.ErrNil {
			return err
		}
		if began.IsZero() && len(popped) > 0 {
			began = time.Now()
		}
		for _, text := range popped {
			jobs <- text
		}
		wait := time.Duration(0)
		if len(popped) == 0 {
			wait = pause
		}
		select {
		case <-terminated:
			isRunning = false
		case <-time.After(wait):
		}
	}
	close(jobs)
	senders.Wait()
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"answers": answers, "seconds": last.Sub(began).Seconds()})
}

// send returns the status of the answer.
func send(client *http.Client, url, authorization string, text []byte) (string, error) {
	var job job
	if err := json.Unmarshal(text, &job); err != nil {
		return "", err
	}
	request, err := http.NewRequest("POST", url+job.Token, bytes.NewReader(job.Payload))
	if err != nil {
		return "", err
	}
	request.Header["authorization"] = []string{authorization}
	request.Header["apns-topic"] = []string{job.Topic}
	request.Header["apns-push-type"] = []string{job.PushType}
	request.Header["apns-priority"] = []string{strconv.Itoa(job.Priority)}
	request.Header["apns-id"] = []string{uuid()}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return "", err
	}
	return strconv.Itoa(response.StatusCode), nil
}

func uuid() string {
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		panic(err)
	}
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

func providerToken(path, keyID, teamID string) (string, error) {
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
	signed := encode([]byte(fmt.Sprintf(`{"alg":"ES256","kid":"%s"}`, keyID))) + "." +
		encode([]byte(fmt.Sprintf(`{"iss":"%s","iat":%d}`, teamID, time.Now().Unix())))
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
