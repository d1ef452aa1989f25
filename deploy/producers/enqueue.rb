#!/usr/bin/env ruby
# Enqueues pushes with redis-rb.
#
#   REDIS_URL=redis://127.0.0.1:6379 ./enqueue.rb [TOKEN [TEXT]]
require "json"
require "redis"

JOBS = "push:{default}:jobs"

token = ARGV[0] || "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"
text = ARGV[1] || "Grüße aus Köln"

redis = Redis.new(url: ENV.fetch("REDIS_URL", "redis://127.0.0.1:6379"))

# The shortest job. Durations and delays count from `enqueued_at`, or else from the time when a worker first sees the job.
redis.rpush(JOBS, JSON.generate(token: token, alert: text, enqueued_at: Time.now.to_f))

# With an id, a job that is enqueued twice keeps its apns-id.
redis.rpush(JOBS, JSON.generate(
  id: "order-1742-shipped",
  token: token,
  alert: { title: "Your order", body: text },
  badge: 1,
  sound: "default",
  priority: 10,
  expiration: "1h",
  enqueued_at: Time.now.to_f,
  collapse_id: "order-1742",
  custom: { order: 1742 }
))

# Many jobs: RPUSH accepts several at once. Some hundred at a time keep the requests small.
jobs = (0...100).map do |n|
  JSON.generate(
    id: "news-#{n}", token: token[0...-4] + format("%04d", n), alert: text, enqueued_at: Time.now.to_f
  )
end
redis.rpush(JOBS, jobs)

# Only the newest job of a key is sent. Older jobs that wait are dropped. SET and RPUSH belong in one transaction.
2.times do |n|
  id = "courier-1742-#{n}"
  job = { id: id, replaces: "courier-1742", token: token, alert: "#{2 - n} km", expiration: "1h", enqueued_at: Time.now.to_f }
  redis.multi do |transaction|
    transaction.set("push:{default}:newest:courier-1742", id, ex: 86_400)
    transaction.rpush(JOBS, JSON.generate(job))
  end
end

# Returns the set that has a token if it is invalid for the app's topic. `invalid reshard` divides the set by the tokens' first digits.
def set_of(token, environment, redis)
  name = environment == "sandbox" ? "invalid-tokens:sandbox" : "invalid-tokens"
  shards = redis.get("push:{shared}:invalid-tokens:division").to_i
  return "push:{shared}:#{name}" if shards <= 1

  "push:{shared.#{shards}.#{token[0, 4].to_i(16) * shards >> 16}}:#{name}:#{token[4]}"
end

# A token in the set of its environment gets no pushes until the device registers again.
token = token.downcase
if redis.sismember(set_of(token, ENV.fetch("APNS_ENVIRONMENT", "production"), redis), token)
  puts "enqueued 104 jobs; the token is invalid"
else
  puts "enqueued 104 jobs; the token is not known to be invalid"
end
