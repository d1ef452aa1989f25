-- Pauses an app for the whole fleet because APNs refuses it, or lengthens its pause because a probe was refused too.
--
-- KEYS  1 apps:<app>:paused STRING JSON: reason, detail, since, until, pause (ms), by
-- ARGV  1 worker          who noticed
--       2 reason          its code
--       3 first pause     ms to the first probe
--       4 longest pause   ms between probes at the most
--       5 probe           1 when it was a probe that was refused, else 0
--       6 detail          the explanation of the reason, '' without one
-- Reply { opened, wait }
--       opened            1 when the app was not paused before
--       wait              ms to the next probe, -1 when somebody has paused it by hand: then there is none
--
-- Many requests are under way when a fault shows; their answers are one fault and not many. Run twice, the second run finds
-- the app paused, and changes nothing but after a probe, which is then awaited a little longer.

local now = now_ms()
local wrong = wrong_type({ [KEYS[1]] = 'string' })
if wrong then
    return wrong
end

local state = app_pause(redis.call('GET', KEYS[1]))
if state and not state['until'] then
    return { 0, -1 }
end
local opened = 0
if not state then
    opened = 1
    state = { v = 1, since = now, pause = tonumber(ARGV[3]) }
    state['until'] = now + state.pause
elseif ARGV[5] == '1' then
    state.pause = math.min(state.pause * 2, tonumber(ARGV[4]))
    state['until'] = now + state.pause
end
state.reason = ARGV[2]
state.detail = ARGV[6] ~= '' and ARGV[6] or nil
state.by = ARGV[1]
-- Long after the last that was heard of it, nobody knows whether the fault is still there.
write_when_full(KEYS[1])
redis.call('SET', KEYS[1], cjson.encode(state), 'PX', 86400000)
return { opened, math.max(0, state['until'] - now) }
