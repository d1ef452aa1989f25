#!/usr/bin/env ruby
# Not tested by running it: Debian has no package of Resque. What Resque writes, {"class":…,"args":[…]}, is tested.
#
# Enqueues pushes with Resque. The worker takes the queue `push`, which no Resque worker must take:
#
#   apns-worker run --queue push --format resque --job-class PushJob
#   REDIS_URL=redis://127.0.0.1:6379 ./resque.rb [TOKEN [TEXT]]
require "resque"

Resque.redis = ENV.fetch("REDIS_URL", "redis://127.0.0.1:6379")

token = ARGV[0] || "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"
text = ARGV[1] || "Grüße aus Köln"

# There is no class PushJob, and none is needed: its name only says what the job is. Resque gives jobs neither id nor time.
Resque.push("push", class: "PushJob", args: [{
  id: "order-1742-shipped", token: token, alert: text, enqueued_at: Time.now.to_f
}])

# What is in the set gets no more pushes until the device registers again. Resque puts `resque:` before other keys.
invalid = Redis.new(url: ENV.fetch("REDIS_URL", "redis://127.0.0.1:6379")).sismember("push:{shared}:invalid-tokens", token.downcase)
puts invalid ? "enqueued 1 job; the token is invalid" : "enqueued 1 job; nothing is known against the token"
