-- Ends the pause of an app because a probe succeeded, or because the app has another credential now.
--
-- KEYS  1 apps:<app>:paused STRING JSON: reason, detail, since, until, set_at, pause (ms), by,
--                               configuration
-- ARGV  1 configuration   the digest of the lane's configuration of the app
-- Reply { closed }        1 when the pause ended, or there was none; 0 when the app is paused by an operator, who
--                         must end it, or for workers with another configuration
--
-- Run twice, the second run finds nothing.

local paused, configuration = KEYS[1], ARGV[1]
local now = now_ms()

local wrong = wrong_type({ [paused] = 'string' })
if wrong then
    return wrong
end

local state = app_pause(redis.call('GET', paused), now)
if state and not state['until'] or is_of_others(state, configuration, now) then
    return { 0 }
end
redis.call('DEL', paused)
return { 1 }
