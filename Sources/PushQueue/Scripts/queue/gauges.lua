-- Counts a queue's jobs in each state atomically: jobs move between the keys all the time, so a reader of one key after
-- the other would miss some jobs and see others twice.
--
-- KEYS  1 jobs            LIST   jobs to send
--       2 inbox           LIST   jobs that blocking waits moved
--       3 retry           ZSET   scheduled and deferred jobs by due time (ms)
--       4 workers         ZSET   lane -> lease end (ms)
--       5 dead            ZSET   dead letters by time (ms)
--       6 paused          STRING why the queue is paused
--       7 dead-bytes      STRING sum of the dead letters' lengths
--       8 gauges          STRING the last reply, MessagePack; expires
--       9 job-commands    HASH   commands about jobs, at most 1,000
--      10 sorted          ZSET   jobs that wait, in the order in which they are sent
--      11 failed          ZSET   jobs that failed, by the due time of their next attempt (ms)
-- ARGV  1 claimed:        prefix of a lane's HASH of claims
--       2 head limit      bytes beyond which the job at the head is not returned
--       3 head            the end of the jobs that is their head, LEFT or RIGHT
--       4 max age         ms for which a reply is returned again: counting hundreds of lanes takes Redis some ms, and
--                         each worker asks. 0 always counts, and keeps no reply
-- Reply { now, jobs, later, failed, claims, dead, paused, due, dead_bytes, head, stopped }
--       now               Redis' time of the count (ms)
--       jobs              including sorted jobs and those of the inbox
--       later             scheduled and deferred jobs, due or not
--       failed            jobs that failed and wait for their next attempt, due or not
--       claims            of all lanes
--       paused            1 or 0
--       due               when the first of `later` and `failed` is due (ms), 0 without one
--       head              the job that probably waits for longest: at the head of the list, or among the sorted jobs; '' without
--                         one, or when it is too large
--       stopped           the number of campaigns that their guards have paused
--
-- Changes nothing but the copy of its reply. The lanes' keys have the queue's hash tag, so they are in the slot of
-- KEYS.
-- Needs: time values dead-letters readings

local jobs, inbox, retry, workers, dead, paused, dead_bytes, gauges, job_commands, sorted, failed = unpack(KEYS)
local claimed_prefix, head_limit, head_end, max_age = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])

local last = max_age > 0 and redis.pcall('GET', gauges)
if type(last) == 'string' then
    local is_packed, reply = pcall(cmsgpack.unpack, last)
    if is_packed and type(reply) == 'table' and #reply == 11 then
        return reply
    end
end

local claims = 0
for _, lane in ipairs(redis.call('ZRANGE', workers, 0, -1)) do
    local own = redis.pcall('HLEN', claimed_prefix .. lane)
    claims = claims + (type(own) == 'number' and own or 0)
end
local first
for _, set in ipairs({ retry, failed }) do
    local due = redis.call('ZRANGE', set, 0, 0, 'WITHSCORES')[2]
    due = due and math.floor(math.max(0, math.min(tonumber(due), 2 ^ 53)))
    first = first and due and math.min(first, due) or first or due
end
local stopped = 0
-- For a key of another type, pcall returns an error, which has no elements.
for _, text in ipairs(redis.pcall('HVALS', job_commands)) do
    local command = string.find(text, '"guard"', 1, true) and decoded_object(text) or {}
    if command.state == 'paused' and command.by == 'guard' then
        stopped = stopped + 1
    end
end
local reply = {
    now_ms(), redis.call('LLEN', jobs) + redis.call('ZCARD', sorted) + redis.call('LLEN', inbox),
    redis.call('ZCARD', retry), redis.call('ZCARD', failed), claims, redis.call('ZCARD', dead), redis.call('EXISTS', paused),
    first or 0, dead_length(dead_bytes), longest_waiting(jobs, head_end == 'RIGHT' and -1 or 0, sorted, head_limit), stopped,
}
if max_age > 0 then
    redis.pcall('SET', gauges, cmsgpack.pack(reply), 'PX', max_age)
end
return reply
