#!/usr/bin/env ruby
# Enqueues pushes with Sidekiq's client. The worker runs beside Sidekiq, on a queue that Sidekiq's processes do not read:
#
#   apns-worker run --queue push --format sidekiq --job-class PushJob
#   REDIS_URL=redis://127.0.0.1:6379 ./sidekiq.rb [TOKEN [TEXT]]
#
# The class PushJob need not exist, because the worker compares only its name. The first argument is the job. Without an `id`, the
# job gets Sidekiq's `jid`. Without `max_attempts`, it gets `retry` plus one. `perform_in` works too: Sidekiq's own processes move
# the job to the list when it is due.
#
# In Rails, with ActiveJob:
#
#   class PushJob < ApplicationJob
#     queue_as :push
#   end
#   PushJob.perform_later(token: user.token, alert: "Hello")
require "sidekiq"

token = ARGV[0] || "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"
text = ARGV[1] || "Grüße aus Köln"

# The shortest job.
Sidekiq::Client.push("class" => "PushJob", "queue" => "push", "args" => [{ "token" => token, "alert" => text }])

# With an id, a job that is enqueued twice keeps its apns-id. Sidekiq adds `enqueued_at`.
Sidekiq::Client.push("class" => "PushJob", "queue" => "push", "retry" => 5, "args" => [{
  "id" => "order-1742-shipped",
  "token" => token,
  "alert" => { "title" => "Your order", "body" => text },
  "badge" => 1,
  "sound" => "default",
  "priority" => 10,
  "expiration" => "1h",
  "collapse_id" => "order-1742",
  "custom" => { "order" => 1742 }
}])

# Many jobs.
jobs = (0...100).map { |n| [{ "id" => "news-#{n}", "token" => token[0...-4] + format("%04d", n), "alert" => text }] }
Sidekiq::Client.push_bulk("class" => "PushJob", "queue" => "push", "args" => jobs)

# Only the newest job of a key is sent. Older jobs that wait are dropped. The key is written before the job is pushed, because a
# worker drops a job if its key names another job.
2.times do |n|
  id = "courier-1742-#{n}"
  Sidekiq.redis { |redis| redis.set("push:{push}:newest:courier-1742", id, ex: 86_400) }
  Sidekiq::Client.push("class" => "PushJob", "queue" => "push", "args" => [{
    "id" => id, "replaces" => "courier-1742", "token" => token, "alert" => "#{2 - n} km", "expiration" => "1h"
  }])
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
environment = ENV.fetch("APNS_ENVIRONMENT", "production")
answer = Sidekiq.redis { |redis| redis.sismember(set_of(token, environment, redis), token) }
# From version 7 on, Sidekiq answers 1 or 0, and 0 is true in Ruby.
if [1, true].include?(answer)
  puts "enqueued 104 jobs; the token is invalid"
else
  puts "enqueued 104 jobs; the token is not known to be invalid"
end
