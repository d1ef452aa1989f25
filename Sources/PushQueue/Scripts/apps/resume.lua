-- require: types, app-pause
-- Ends the pause of an app because a probe succeeded, or because the app has another credential now.
--
-- KEYS  1 apps:<app>:paused STRING JSON: reason, since, until, pause (ms), by
-- ARGV  none
-- Reply { closed }        1 when the pause ended, or there was none; 0 when the app is paused by an operator, who
--                         must end it
--
-- Run twice, the second run finds nothing.

local paused = KEYS[1]

local wrong = wrong_type({ [paused] = 'string' })
if wrong then
    return wrong
end

local state = app_pause(redis.call('GET', paused))
if state and not state['until'] then
    return { 0 }
end
redis.call('DEL', paused)
return { 1 }
