-- Pushes jobs at the tail of a list: all of them or, if too many wait, none. A request with a name pushes them once.
--
-- KEYS  1 list            LIST   jobs
--       2 sorted          ZSET   jobs that wait, in the order in which they are sent
--       3 request         STRING the digest of the jobs of the request with this name
--       then for each job that becomes the newest of its key
--         newest:<key>    STRING its id
-- ARGV  1 command         RPUSH, or LPUSH if the head of the list is its right end
--       2 maximum         if so many jobs wait, nothing is pushed; empty for no maximum
--       3 digest          of the jobs; empty for a request without a name
--       4 seconds         the time for which the request is known
--       then for each job that becomes the newest, in the order of their keys
--         id life         its key is kept for `life` ms
--       then the jobs
-- Reply { pushed, length }
--       pushed            the number of jobs that were pushed: all or 0; -1 if the same request had pushed them, -2 if another
--                         one has this name
--       length            the number of waiting jobs before the push
--
-- If memory is full, Redis refuses the first write of the script, so nothing is pushed. Run twice without a name, it pushes
-- the jobs twice.
-- Needs: base

local FIRST_NEWEST, FIRST_ID = 4, 5
local list, sorted, request = unpack(KEYS)
local command, maximum, digest, seconds = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local jobs = { unpack(ARGV, FIRST_ID + 2 * (#KEYS - FIRST_NEWEST + 1)) }

local wrong = wrong_type({ [list] = 'list', [sorted] = 'zset', [request] = 'string' })
if wrong then
    return wrong
end

local length = redis.call('LLEN', list) + redis.call('ZCARD', sorted)
local known = digest ~= '' and redis.call('GET', request)
if known then
    return { known == digest and -1 or -2, length }
end
if maximum and length >= maximum then
    return { 0, length }
end
call_in_chunks(command, list, jobs)
for i = FIRST_NEWEST, #KEYS do
    local id = FIRST_ID + 2 * (i - FIRST_NEWEST)
    redis.call('SET', KEYS[i], ARGV[id], 'PX', ARGV[id + 1])
end
if digest ~= '' then
    redis.call('SET', request, digest, 'EX', seconds)
end
return { #jobs, length }
