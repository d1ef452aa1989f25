// Enqueues pushes with node-redis (npm install redis).
//
//   REDIS_URL=redis://127.0.0.1:6379 node enqueue.mjs [TOKEN [TEXT]]
import { createClient } from "redis";

const JOBS = "push:{default}:jobs";

const [
  token = "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0",
  text = "Grüße aus Köln",
] = process.argv.slice(2);

const redis = createClient({ url: process.env.REDIS_URL ?? "redis://127.0.0.1:6379" });
await redis.connect();

// The shortest job. Durations and delays count from `enqueued_at`, or else from the time when a worker first sees the job.
await redis.rPush(JOBS, JSON.stringify({ token, alert: text, enqueued_at: Date.now() / 1000 }));

// With an id, a job that is enqueued twice keeps its apns-id.
await redis.rPush(
  JOBS,
  JSON.stringify({
    id: "order-1742-shipped",
    token,
    alert: { title: "Your order", body: text },
    badge: 1,
    sound: "default",
    priority: 10,
    expiration: "1h",
    enqueued_at: Date.now() / 1000,
    collapse_id: "order-1742",
    custom: { order: 1742 },
  }),
);

// Many jobs: RPUSH accepts several at once. Some hundred at a time keep the requests small.
const jobs = Array.from({ length: 100 }, (_, n) =>
  JSON.stringify({
    id: `news-${n}`,
    token: token.slice(0, -4) + String(n).padStart(4, "0"),
    alert: text,
    enqueued_at: Date.now() / 1000,
  }),
);
await redis.rPush(JOBS, jobs);

// Only the newest job of a key is sent. Older jobs that wait are dropped. SET and RPUSH belong in one transaction.
for (const n of [0, 1]) {
  const id = `courier-1742-${n}`;
  const job = { id, replaces: "courier-1742", token, alert: `${2 - n} km`, expiration: "1h", enqueued_at: Date.now() / 1000 };
  await redis
    .multi()
    .set("push:{default}:newest:courier-1742", id, { EX: 86400 })
    .rPush(JOBS, JSON.stringify(job))
    .exec();
}

// Returns the set that has a token if it is invalid for the app's topic. `invalid reshard` divides the set by the tokens' first digits.
async function setOf(token, environment) {
  const name = environment === "sandbox" ? "invalid-tokens:sandbox" : "invalid-tokens";
  const shards = parseInt((await redis.get("push:{shared}:invalid-tokens:division")) ?? "1", 10);
  if (shards === 1) return `push:{shared}:${name}`;
  const shard = Math.floor((parseInt(token.slice(0, 4), 16) * shards) / 65536);
  return `push:{shared.${shards}.${shard}}:${name}:${token[4]}`;
}

// A token in the set of its environment gets no pushes until the device registers again.
const lower = token.toLowerCase();
const isInvalid = await redis.sIsMember(await setOf(lower, process.env.APNS_ENVIRONMENT ?? "production"), lower);
console.log(`enqueued 104 jobs; ${isInvalid ? "the token is invalid" : "the token is not known to be invalid"}`);

await redis.quit();
