#!/usr/bin/env ruby
# Enqueues pushes with Resque. The worker reads the queue `push`, which no Resque worker may read:
#
#   apns-worker run --queue push --format resque --job-class PushJob
#   REDIS_URL=redis://127.0.0.1:6379 ./resque.rb [TOKEN [TEXT]]
#
# The tests do not run this file, because Debian has no package of Resque; they test the format of its jobs.
require "resque"

Resque.redis = ENV.fetch("REDIS_URL", "redis://127.0.0.1:6379")

token = ARGV[0] || "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"
text = ARGV[1] || "Grüße aus Köln"

# The class PushJob need not exist, because the worker compares only its name. Resque adds no id and no time, so the job has both.
Resque.push("push", class: "PushJob", args: [{
  id: "order-1742-shipped", token: token, alert: text, enqueued_at: Time.now.to_f
}])

# Only the newest job of a key is sent. Older jobs that wait are dropped. The key is written before the job is pushed, because a
# worker drops a job if its key names another job. It is written without Resque's prefix `resque:`.
redis = Redis.new(url: ENV.fetch("REDIS_URL", "redis://127.0.0.1:6379"))
redis.set("push:{push}:newest:courier-1742", "courier-1742-0", ex: 86_400)
Resque.push("push", class: "PushJob", args: [{
  id: "courier-1742-0", replaces: "courier-1742", token: token, alert: "2 km", expiration: "1h", enqueued_at: Time.now.to_f
}])

# Returns the set that has a token if it is invalid for the app's topic. `invalid reshard` divides the set by the tokens' first digits.
def set_of(token, environment, redis)
  name = environment == "sandbox" ? "invalid-tokens:sandbox" : "invalid-tokens"
  shards = redis.get("push:{shared}:invalid-tokens:division").to_i
  return "push:{shared}:#{name}" if shards <= 1

  "push:{shared.#{shards}.#{token[0, 4].to_i(16) * shards >> 16}}:#{name}:#{token[4]}"
end

# A token in the set of its environment gets no pushes until the device registers again.
token = token.downcase
invalid = redis.sismember(set_of(token, ENV.fetch("APNS_ENVIRONMENT", "production"), redis), token)
puts invalid ? "enqueued 2 jobs; the token is invalid" : "enqueued 2 jobs; the token is not known to be invalid"
