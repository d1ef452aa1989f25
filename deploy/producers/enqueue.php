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
$redis->connect($url['host'], $url['port'] ?? 6379);
if (isset($url['pass'])) {
    $user = $url['user'] ?? '';
    $password = rawurldecode($url['pass']);
    $redis->auth($user === '' ? $password : [$user, $password]);
}

function job(array $members): string
{
    return json_encode($members, JSON_THROW_ON_ERROR | JSON_UNESCAPED_UNICODE | JSON_UNESCAPED_SLASHES);
}

// As short as it gets. Durations and the age of the queue count from `enqueued_at`: without it, from when a worker first sees
// the job.
$redis->rPush(JOBS, job(['token' => $token, 'alert' => $text, 'enqueued_at' => microtime(true)]));

// With an id, so that a job that is enqueued twice by mistake carries one apns-id, and more of what a job may have.
$redis->rPush(JOBS, job([
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

// Many: one RPUSH takes any number; some hundreds at a time keep the requests small.
$jobs = [];
for ($n = 0; $n < 100; $n++) {
    $jobs[] = job([
        'id' => "news-$n",
        'token' => substr($token, 0, -4) . sprintf('%04d', $n),
        'alert' => $text,
        'enqueued_at' => microtime(true),
    ]);
}
$redis->rPush(JOBS, ...$jobs);

// What is in the set gets no more pushes until the device registers again.
if ($redis->sIsMember('push:{shared}:invalid-tokens', strtolower($token))) {
    echo "enqueued 102 jobs; the token is invalid\n";
} else {
    echo "enqueued 102 jobs; nothing is known against the token\n";
}
