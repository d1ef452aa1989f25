#!/usr/bin/env php
<?php
// Enqueues pushes with phpredis.
//
//   REDIS_URL=redis://127.0.0.1:6379 ./enqueue.php [TOKEN [TEXT]]
const JOBS = 'push:{default}:jobs';

$token = $argv[1] ?? '00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0';
$text = $argv[2] ?? 'Grüße aus Köln';

$url = parse_url(getenv('REDIS_URL') ?: 'redis://127.0.0.1:6379');
$redis = new Redis();
$redis->connect(($url['scheme'] === 'rediss' ? 'tls://' : '') . $url['host'], $url['port'] ?? 6379);
if (isset($url['pass'])) {
    $user = rawurldecode($url['user'] ?? '');
    $password = rawurldecode($url['pass']);
    $redis->auth($user === '' ? $password : [$user, $password]);
}
$database = (int) ltrim($url['path'] ?? '', '/');
if ($database !== 0) {
    $redis->select($database);
}

function job(array $members): string
{
    return json_encode($members, JSON_THROW_ON_ERROR | JSON_UNESCAPED_UNICODE | JSON_UNESCAPED_SLASHES);
}

function push(Redis $redis, string ...$jobs): void
{
    // phpredis returns `false` for an error of Redis.
    if ($redis->rPush(JOBS, ...$jobs) === false) {
        throw new RuntimeException($redis->getLastError());
    }
}

// The shortest job. Durations and delays count from `enqueued_at`, or else from the time when a worker first sees the job.
push($redis, job(['token' => $token, 'alert' => $text, 'enqueued_at' => microtime(true)]));

// With an id, a job that is enqueued twice keeps its apns-id.
push($redis, job([
    'id' => 'order-1742-shipped',
    'token' => $token,
    'alert' => ['title' => 'Your order', 'body' => $text],
    'badge' => 1,
    'sound' => 'default',
    'priority' => 10,
    'expiration' => '1h',
    'enqueued_at' => microtime(true),
    'collapse_id' => 'order-1742',
    'custom' => ['order' => 1742],
]));

// Many jobs: RPUSH accepts several at once. Some hundred at a time keep the requests small.
$jobs = [];
for ($n = 0; $n < 100; $n++) {
    $jobs[] = job([
        'id' => "news-$n",
        'token' => substr($token, 0, -4) . sprintf('%04d', $n),
        'alert' => $text,
        'enqueued_at' => microtime(true),
    ]);
}
push($redis, ...$jobs);

// Only the newest job of a key is sent. Older jobs that wait are dropped. SET and RPUSH belong in one transaction.
for ($n = 0; $n < 2; $n++) {
    $id = "courier-1742-$n";
    $members = ['id' => $id, 'replaces' => 'courier-1742', 'token' => $token, 'alert' => (2 - $n) . ' km'];
    $job = job($members + ['expiration' => '1h', 'enqueued_at' => microtime(true)]);
    $transaction = $redis->multi()->set('push:{default}:newest:courier-1742', $id, ['ex' => 86400])->rPush(JOBS, $job);
    if (in_array(false, $transaction->exec() ?: [false], true)) {
        throw new RuntimeException($redis->getLastError());
    }
}

// Returns the set that has a token if it is invalid for the app's topic. `invalid reshard` divides the set by the tokens' first digits.
function setOf(string $token, string $environment, Redis $redis): string
{
    $name = $environment === 'sandbox' ? 'invalid-tokens:sandbox' : 'invalid-tokens';
    $shards = (int) $redis->get('push:{shared}:invalid-tokens:division');
    if ($shards <= 1) {
        return "push:{shared}:$name";
    }
    $shard = hexdec(substr($token, 0, 4)) * $shards >> 16;
    return "push:{shared.$shards.$shard}:$name:$token[4]";
}

// A token in the set of its environment gets no pushes until the device registers again.
$token = strtolower($token);
if ($redis->sIsMember(setOf($token, getenv('APNS_ENVIRONMENT') ?: 'production', $redis), $token)) {
    echo "enqueued 104 jobs; the token is invalid\n";
} else {
    echo "enqueued 104 jobs; the token is not known to be invalid\n";
}
