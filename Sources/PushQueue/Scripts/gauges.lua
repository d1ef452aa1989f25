-- What a queue holds in each state, and how long the next job has waited, in one moment: for metrics.
--
-- KEYS  1 jobs            LIST   jobs to send
--       2 inbox           LIST   jobs that blocking waits moved
--       3 retry           ZSET   wrapped jobs by due time (ms)
--       4 workers         ZSET   lane -> lease end (ms)
--       5 dead            ZSET   dead letters by time (ms)
--       6 paused          STRING why the queue is paused
--       7 dead-bytes      STRING sum of the dead letters' lengths
--       8 gauges          STRING the last reply, MessagePack; expires
-- ARGV  1 claimed:        prefix of a lane's HASH of claims
--       2 head limit      bytes of the job at the head beyond which it is not returned
--       3 head            which end of the jobs is their head, LEFT or RIGHT
--       4 max age         ms that a reply is returned again: with hundreds of lanes it costs Redis milliseconds, and each
--                         worker asks
-- Reply { now, jobs, retries, claims, dead, paused, due, dead_bytes, head }
--       now               when it was counted by Redis' clock (ms)
--       jobs              with those of the inbox
--       paused            1 or 0
--       due               when the first of the retries is due (ms), 0 without one
--       head              the job at the head of the list; '' without one, or when it is too large
--
-- Changes nothing but the copy of its reply. The lanes' keys have the queue's hash tag, so they are in the slot of KEYS.

local last = redis.pcall('GET', KEYS[8])
if type(last) == 'string' then
    local is_packed, reply = pcall(cmsgpack.unpack, last)
    if is_packed and type(reply) == 'table' and #reply == 9 then
        return reply
    end
end

local claims = 0
for _, lane in ipairs(redis.call('ZRANGE', KEYS[4], 0, -1)) do
    local own = redis.pcall('HLEN', ARGV[1] .. lane)
    claims = claims + (type(own) == 'number' and own or 0)
end
local first = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
local head = redis.call('LINDEX', KEYS[1], ARGV[3] == 'RIGHT' and -1 or 0)
if not head or #head > tonumber(ARGV[2]) then
    head = ''
end
local reply = {
    now_ms(), redis.call('LLEN', KEYS[1]) + redis.call('LLEN', KEYS[2]), redis.call('ZCARD', KEYS[3]), claims,
    redis.call('ZCARD', KEYS[5]), redis.call('EXISTS', KEYS[6]),
    first[2] and math.floor(math.max(0, math.min(tonumber(first[2]), 2 ^ 53))) or 0,
    dead_length(KEYS[7]), head,
}
redis.pcall('SET', KEYS[8], cmsgpack.pack(reply), 'PX', ARGV[4])
return reply
