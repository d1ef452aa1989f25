-- What a queue holds in each state, and how long the next job has waited, in one moment: for metrics.
--
-- KEYS  1 jobs            LIST   fresh jobs
--       2 retry           ZSET   wrapped jobs by due time (ms)
--       3 workers         ZSET   worker -> lease end (ms)
--       4 dead            ZSET   dead letters by time (ms)
--       5 paused          STRING why the queue is paused
-- ARGV  1 claimed:        prefix of a worker's HASH, claim number -> job
--       2 inbox:          prefix of a worker's LIST of at most one job
--       3 head limit      bytes of the job at the head beyond which it is not told
--       4 head            which end of the jobs is their head, LEFT or RIGHT
-- Reply { now, jobs, retries, claims, dead, paused, due, head }
--       now               Redis' time (ms)
--       paused            1 or 0
--       due               when the first of the retries is due (ms), 0 without one
--       head              the job at the head of the list; nil without one, or when it is too large
--
-- Changes nothing. The workers' keys have the queue's hash tag, so they are in the slot of KEYS.

local claims = 0
for _, worker in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
    claims = claims + redis.call('HLEN', ARGV[1] .. worker) + redis.call('LLEN', ARGV[2] .. worker)
end
local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
local head = redis.call('LINDEX', KEYS[1], ARGV[4] == 'RIGHT' and -1 or 0)
if head and #head > tonumber(ARGV[3]) then
    head = false
end
return {
    now_ms(), redis.call('LLEN', KEYS[1]), redis.call('ZCARD', KEYS[2]), claims, redis.call('ZCARD', KEYS[4]),
    redis.call('EXISTS', KEYS[5]), first[2] and math.floor(tonumber(first[2])) or 0, head,
}
