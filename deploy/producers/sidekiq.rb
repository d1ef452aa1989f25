#!/usr/bin/env ruby
# Enqueues pushes with Sidekiq's client. The worker runs beside Sidekiq, on a queue that Sidekiq's processes do not take:
#
#   apns-worker run --queue push --format sidekiq --job-class PushJob
#   REDIS_URL=redis://127.0.0.1:6379 ./sidekiq.rb [TOKEN [TEXT]]
#
# There is no class PushJob, and none is needed: its name only says what the job is. The first argument is the job; `jid`
# is its id where it has none, and `retry` its `max_attempts`, one more than the retries. `perform_in` works too: Sidekiq's
# own processes put the job onto the list when its time has come.
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

# As short as it gets.
Sidekiq::Client.push("class" => "PushJob", "queue" => "push", "args" => [{ "token" => token, "alert" => text }])

# With an id, so that a job that is enqueued twice by mistake carries one apns-id, and more of what a job may have.
# Sidekiq writes `enqueued_at` itself.
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

# Many.
jobs = (0...100).map { |n| [{ "id" => "news-#{n}", "token" => token[0...-4] + format("%04d", n), "alert" => text }] }
Sidekiq::Client.push_bulk("class" => "PushJob", "queue" => "push", "args" => jobs)

# What is in the set gets no more pushes until the device registers again.
if Sidekiq.redis { |redis| redis.sismember("push:{shared}:invalid-tokens", token.downcase) }
  puts "enqueued 102 jobs; the token is invalid"
else
  puts "enqueued 102 jobs; nothing is known against the token"
end
