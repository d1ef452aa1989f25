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

# The shortest job. Durations and delays count from `enqueued_at`; without it, from the moment a worker first sees the job.
redis.rpush(JOBS, JSON.generate(token: token, alert: text, enqueued_at: Time.now.to_f))

# An id gives a job that is enqueued twice the same apns-id.
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

# Many jobs: RPUSH accepts several at once. A few hundred at a time keep the requests small.
jobs = (0...100).map do |n|
  JSON.generate(
    id: "news-#{n}", token: token[0...-4] + format("%04d", n), alert: text, enqueued_at: Time.now.to_f
  )
end
redis.rpush(JOBS, jobs)

# Tokens in this set get no pushes until the device registers again.
if redis.sismember("push:{shared}:invalid-tokens", token.downcase)
  puts "enqueued 102 jobs; the token is invalid"
else
  puts "enqueued 102 jobs; the token is not known to be invalid"
end
