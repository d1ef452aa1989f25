-- How many jobs a queue holds, counted in one moment: jobs move between the keys all the time, and whoever read them one
-- after the other would miss some and see others twice.
--
-- KEYS  1 jobs            LIST   fresh jobs
--       2 retry           ZSET   wrapped jobs by due time (ms)
--       3 workers         ZSET   worker -> lease end (ms)
-- ARGV  1 claimed:        prefix of a worker's HASH, claim number -> job
--       2 inbox:          prefix of a worker's LIST of at most one job
-- Reply { jobs, retries, claims }
--       claims            of all workers, their inboxes included
--
-- Changes nothing. The workers' keys have the queue's hash tag, so they are in the slot of KEYS.

local claims = 0
for _, worker in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
    claims = claims + redis.call('HLEN', ARGV[1] .. worker) + redis.call('LLEN', ARGV[2] .. worker)
end
return { redis.call('LLEN', KEYS[1]), redis.call('ZCARD', KEYS[2]), claims }
