-- Pauses an app for all workers with the same configuration because APNs refuses it, or lengthens its pause because a
-- probe was refused too.
--
-- KEYS  1 apps:<app>:paused STRING JSON: reason, detail, since, until, set_at, pause (ms), by,
--                               configuration
-- ARGV  1 worker          the lane that was refused
--       2 reason          its code
--       3 first pause     ms to the first probe
--       4 longest pause   the maximum pause between probes, ms
--       5 probe           1 when it was a probe that was refused, else 0
--       6 detail          the explanation of the reason, '' without one
--       7 configuration   the digest of the lane's configuration of the app
-- Reply { opened, wait }
--       opened            1 when the app was not paused before
--       wait              ms to the next probe, -1 when the app is paused by an operator: then there is no probe
--
-- Many requests are in flight when a fault begins; their answers count as one fault. Run twice, the second run finds
-- the app paused, and changes nothing except after a probe: then it doubles the pause again.

local paused = KEYS[1]
local worker, reason, first_pause, longest_pause, is_probe, detail, configuration = unpack(ARGV)
local now = now_ms()

local wrong = wrong_type({ [paused] = 'string' })
if wrong then
    return wrong
end

local state = app_pause(redis.call('GET', paused), now)
if state and not state['until'] then
    return { 0, -1 }
end
if is_of_others(state, configuration, now) then
    return { 0, tonumber(first_pause) }
end
local opened = 0
if not state or (state.configuration or configuration) ~= configuration then
    opened = 1
    state = { v = 1, since = now, pause = tonumber(first_pause) }
    state['until'], state.set_at = now + state.pause, now
elseif is_probe == '1' then
    state.pause = math.min(state.pause * 2, tonumber(longest_pause))
    state['until'], state.set_at = now + state.pause, now
end
state.reason = reason
state.detail = detail ~= '' and detail or nil
state.by = worker
state.configuration = configuration
-- Expires a day after the last refusal: the fault may be fixed by then.
write_when_full(paused)
redis.call('SET', paused, cjson.encode(state), 'PX', 86400000)
return { opened, math.max(0, state['until'] - now) }
