-- How many jobs a queue holds, counted in one moment: jobs move between the keys all the time, and a reader of one key after
-- the other would miss some and see others twice.
--
-- KEYS  1 jobs            LIST   jobs to send
--       2 inbox           LIST   jobs that blocking waits moved
--       3 retry           ZSET   wrapped jobs by due time (ms)
--       4 workers         ZSET   lane -> lease end (ms)
-- ARGV  1 claimed:        prefix of a lane's HASH of claims
-- Reply { jobs, retries, claims }
--       jobs              with those of the inbox
--       claims            of all lanes
--
-- Changes nothing. The lanes' keys have the queue's hash tag, so they are in the slot of KEYS.

local claims = 0
for _, lane in ipairs(redis.call('ZRANGE', KEYS[4], 0, -1)) do
    claims = claims + redis.call('HLEN', ARGV[1] .. lane)
end
return { redis.call('LLEN', KEYS[1]) + redis.call('LLEN', KEYS[2]), redis.call('ZCARD', KEYS[3]), claims }
