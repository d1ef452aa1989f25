// Enqueues pushes with redigo.
//
//	go mod init push && go get github.com/gomodule/redigo
//	REDIS_URL=redis://127.0.0.1:6379 go run enqueue.go [TOKEN [TEXT]]
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

const jobs = "push:{default}:jobs"

// Job has the members that are used here; `apns-worker schema` prints the schema with all members.
type Job struct {
	ID         string         `json:"id,omitempty"`
	Token      string         `json:"token"`
	Alert      any            `json:"alert,omitempty"`
	Badge      *int           `json:"badge,omitempty"`
	Sound      string         `json:"sound,omitempty"`
	Priority   int            `json:"priority,omitempty"`
	Expiration string         `json:"expiration,omitempty"`
	EnqueuedAt int64          `json:"enqueued_at"`
	CollapseID string         `json:"collapse_id,omitempty"`
	Replaces   string         `json:"replaces,omitempty"`
	Custom     map[string]any `json:"custom,omitempty"`
}

// setOf returns the set that has a token if it is invalid for the app's topic. `invalid reshard` divides it by tokens' first digits.
func setOf(connection redis.Conn, token, environment string) string {
	name := "invalid-tokens"
	if environment == "sandbox" {
		name = "invalid-tokens:sandbox"
	}
	division, err := redis.String(connection.Do("GET", "push:{shared}:invalid-tokens:division"))
	if err == redis.ErrNil {
		division = "1"
	} else if err != nil {
		log.Fatal(err)
	}
	shards, first := int64(1), int64(0)
	if _, err := fmt.Sscan(division, &shards); err != nil {
		log.Fatal(err)
	}
	if shards == 1 {
		return "push:{shared}:" + name
	}
	if _, err := fmt.Sscanf(token[:4], "%x", &first); err != nil {
		log.Fatal(err)
	}
	return fmt.Sprintf("push:{shared.%d.%d}:%s:%c", shards, first*shards>>16, name, token[4])
}

func main() {
	token := argument(1, "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0")
	text := argument(2, "Grüße aus Köln")
	url := os.Getenv("REDIS_URL")
	if url == "" {
		url = "redis://127.0.0.1:6379"
	}
	connection, err := redis.DialURL(url)
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()

	// The shortest job. Durations and delays count from `enqueued_at`, or else from the time when a worker first sees the job.
	now := time.Now().Unix()
	enqueue(connection, Job{Token: token, Alert: text, EnqueuedAt: now})

	// With an id, a job that is enqueued twice keeps its apns-id.
	one := 1
	enqueue(connection, Job{
		ID:         "order-1742-shipped",
		Token:      token,
		Alert:      map[string]string{"title": "Your order", "body": text},
		Badge:      &one,
		Sound:      "default",
		Priority:   10,
		Expiration: "1h",
		EnqueuedAt: now,
		CollapseID: "order-1742",
		Custom:     map[string]any{"order": 1742},
	})

	// Many jobs: RPUSH accepts several at once. Some hundred at a time keep the requests small.
	var many []Job
	for n := 0; n < 100; n++ {
		number := fmt.Sprintf("%04d", n)
		many = append(many, Job{
			ID: fmt.Sprint("news-", n), Token: token[:len(token)-4] + number, Alert: text, EnqueuedAt: now,
		})
	}
	enqueue(connection, many...)

	// Only the newest job of a key is sent. Older jobs that wait are dropped. SET and RPUSH belong in one transaction.
	for n := 0; n < 2; n++ {
		job := Job{
			ID: fmt.Sprint("courier-1742-", n), Replaces: "courier-1742", Token: token, Alert: fmt.Sprint(2-n, " km"),
			Expiration: "1h", EnqueuedAt: now,
		}
		text, err := json.Marshal(job)
		if err != nil {
			log.Fatal(err)
		}
		connection.Send("MULTI")
		connection.Send("SET", "push:{default}:newest:"+job.Replaces, job.ID, "EX", 86400)
		connection.Send("RPUSH", jobs, text)
		if _, err := connection.Do("EXEC"); err != nil {
			log.Fatal(err)
		}
	}

	// A token in the set of its environment gets no pushes until the device registers again.
	token = strings.ToLower(token)
	isInvalid, err := redis.Bool(connection.Do("SISMEMBER", setOf(connection, token, os.Getenv("APNS_ENVIRONMENT")), token))
	if err != nil {
		log.Fatal(err)
	}
	if isInvalid {
		fmt.Println("enqueued 104 jobs; the token is invalid")
	} else {
		fmt.Println("enqueued 104 jobs; the token is not known to be invalid")
	}
}

func enqueue(connection redis.Conn, all ...Job) {
	arguments := redis.Args{}.Add(jobs)
	for _, job := range all {
		text, err := json.Marshal(job)
		if err != nil {
			log.Fatal(err)
		}
		arguments = arguments.Add(text)
	}
	if _, err := connection.Do("RPUSH", arguments...); err != nil {
		log.Fatal(err)
	}
}

func argument(place int, otherwise string) string {
	if len(os.Args) > place {
		return os.Args[place]
	}
	return otherwise
}
