-- Makes jobs with `replaces` and `send_at` the newest of their keys, each once: when it becomes due for the first time.
--
-- KEYS  1 claimed:<lane>  HASH   the lane's claims; they let the script write while memory is full
--       then for each job
--         announced:<id>  STRING exists once the job has become the newest
--         newest:<key>    STRING the id of the newest job of the key
-- ARGV  for each job, in the order of their keys
--         id life         the keys are kept for `life` ms
-- Reply the number of jobs that became the newest
--
-- Run twice, the second run changes nothing: a job that waits for a retry stays older than those that came after it was due.
-- Needs: claims

local wrong = prepare_strings_of_claims()
if wrong then
    return wrong
end

local count = 0
for i = 1, #ARGV, 2 do
    local id, life = ARGV[i], ARGV[i + 1]
    if redis.call('SET', KEYS[i + 1], 1, 'NX', 'PX', life) then
        redis.call('SET', KEYS[i + 2], id, 'PX', life)
        count = count + 1
    end
end
return count
