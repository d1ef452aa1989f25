#!/bin/sh
# Enqueues pushes with redis-cli. jq writes the JSON, so that any text is quoted correctly.
#
#   REDIS_URL=redis://127.0.0.1:6379 ./enqueue.sh [TOKEN [TEXT]]
set -eu

token=${1:-00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0}
text=${2:-Grüße aus Köln}
jobs='push:{default}:jobs'

# redis-cli needs the name of the user before a password.
url=$(printf %s "${REDIS_URL:-redis://127.0.0.1:6379}" | sed 's|^\(rediss\{0,1\}://\):|\1default:|')

redis() { redis-cli --no-auth-warning -u "$url" -e "$@"; }

# The shortest job. Durations and delays count from `enqueued_at`, or else from the time when a worker first sees the job.
# -x reads the last argument from standard input, so it may contain any bytes.
jq -cnj --arg token "$token" --arg text "$text" '{token: $token, alert: $text, enqueued_at: now}' |
    redis -x RPUSH "$jobs" >/dev/null

# With an id, a job that is enqueued twice keeps its apns-id.
jq -cnj --arg token "$token" --arg text "$text" '{
    id: "order-1742-shipped", token: $token, alert: {title: "Your order", body: $text}, badge: 1, sound: "default",
    priority: 10, expiration: "1h", enqueued_at: now, collapse_id: "order-1742", custom: {order: 1742}
}' | redis -x RPUSH "$jobs" >/dev/null

# Many jobs: `redis-cli --pipe` sends them over one connection. It reads commands in Redis' protocol.
jq -nrj --arg token "$token" --arg text "$text" --arg jobs "$jobs" '
    def bulk: "$\(utf8bytelength)\r\n\(.)\r\n";
    range(100) | {id: "news-\(.)", token: ($token[:-4] + ("000\(.)"[-4:])), alert: $text, enqueued_at: now} | tojson
    | "*3\r\n" + ("RPUSH" | bulk) + ($jobs | bulk) + bulk' |
    redis --pipe >/dev/null

# Only the newest job of a key is sent. Older jobs that wait are dropped. SET and RPUSH belong in one transaction.
for n in 0 1; do
    jq -nrj --arg n "$n" --arg token "$token" --arg jobs "$jobs" '
        def command: "*\(length)\r\n" + (map("$\(utf8bytelength)\r\n\(.)\r\n") | add);
        {id: "courier-1742-\($n)", replaces: "courier-1742", token: $token, alert: "\(2 - ($n | tonumber)) km", expiration: "1h",
         enqueued_at: now} as $job
        | ["MULTI"], ["SET", "push:{default}:newest:courier-1742", $job.id, "EX", "86400"], ["RPUSH", $jobs, ($job | tojson)],
          ["EXEC"] | command' |
        redis --pipe >/dev/null
done

# A token in the set of its environment gets no pushes until the device registers again. `invalid reshard` divides the set by the
# first digits of tokens.
token=$(printf %s "$token" | tr A-F a-f)
name=invalid-tokens
[ "${APNS_ENVIRONMENT:-production}" != sandbox ] || name=invalid-tokens:sandbox
shards=$(redis GET 'push:{shared}:invalid-tokens:division' | cut -d ' ' -f 1)
if [ "${shards:-1}" = 1 ]; then
    set="push:{shared}:$name"
else
    digit=$(printf %s "$token" | cut -c 5)
    set="push:{shared.$shards.$((0x$(printf %.4s "$token") * shards >> 16))}:$name:$digit"
fi
if [ "$(redis SISMEMBER "$set" "$token")" = 1 ]; then
    echo "enqueued 104 jobs; the token is invalid"
else
    echo "enqueued 104 jobs; the token is not known to be invalid"
fi
