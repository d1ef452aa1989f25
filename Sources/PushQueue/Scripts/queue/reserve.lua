-- Reserves ids: of several jobs with `unique_for` and the same id, only the first is sent.
--
-- KEYS  1 claimed:<lane>  HASH   `<number>.<stamp>` -> job
--       then one for each claim
--         unique:<id>     STRING the origin of the job that has reserved the id; it expires with the reservation
-- ARGV  for each claim, in the order of their keys
--         claim origin ttl
--                         `origin` is the job's first claim, `<lane>:<number>.<stamp>`; the reservation lasts for `ttl` ms
-- Reply { result... }     for each claim:
--                          1  granted, now or before
--                          0  duplicate: another job has reserved the id
--                         -1  lost: the claim was reclaimed, or settled before, and reserves nothing
--
-- Wherever a job moves, its wrapper has its origin, so it gets its own reservation again. Run twice, the second run has the same results.
-- Needs: claims

local claimed, ARGUMENTS = KEYS[1], 3

local wrong = prepare_strings_of_claims()
if wrong then
    return wrong
end

local reply = {}
for i = 1, #KEYS - 1 do
    local unique, place = KEYS[i + 1], ARGUMENTS * i
    local claim, origin, ttl = unpack(ARGV, place - ARGUMENTS + 1, place)
    if redis.call('HEXISTS', claimed, claim) == 0 then
        reply[i] = -1
    elseif redis.call('SET', unique, origin, 'NX', 'PX', ttl) or redis.call('GET', unique) == origin then
        reply[i] = 1
    else
        reply[i] = 0
    end
end
return reply
