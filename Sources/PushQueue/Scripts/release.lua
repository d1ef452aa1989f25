-- Gives a worker's unsettled claims back to the head of the list, in their old order, and takes the worker off the roll.
-- For a worker that leaves in peace: what it gives back was not sent, so no reclaim is counted.
--
-- KEYS  1 workers         ZSET   worker -> lease end (ms)
--       2 claimed:<worker> HASH  claim number -> job
--       3 inbox:<worker>  LIST   a job that the worker had not yet claimed
--       4 jobs            LIST   fresh jobs
--       5 next:<worker>   STRING where its claims' numbers had got to
-- ARGV  1 worker          its name
--       2 head            which end of the jobs is their head, LEFT or RIGHT
-- Reply { released }      how many jobs went back
--
-- Run twice, the second run finds nothing.

local wrong = wrong_type({ [KEYS[1]] = 'zset', [KEYS[2]] = 'hash', [KEYS[3]] = 'list', [KEYS[4]] = 'list' })
if wrong then
    return wrong
end

local numbers = redis.call('HKEYS', KEYS[2])
table.sort(numbers, function(a, b) return tonumber(a) > tonumber(b) end)
local inbox = redis.call('LRANGE', KEYS[3], 0, -1)
for i = #inbox, 1, -1 do
    redis.call(push_head(ARGV[2]), KEYS[4], inbox[i])
end
for _, number in ipairs(numbers) do
    redis.call(push_head(ARGV[2]), KEYS[4], redis.call('HGET', KEYS[2], number))
end
redis.call('DEL', KEYS[2], KEYS[3], KEYS[5])
redis.call('ZREM', KEYS[1], ARGV[1])
return { #numbers + #inbox }
