-- The clock of Redis: the clocks of workers never matter. A test may replace this part (see ClockSource).

-- Microseconds since 1970.
local function now_us()
    local time = redis.call('TIME')
    return time[1] * 1000000 + time[2]
end

-- Milliseconds since 1970.
local function now_ms()
    return math.floor(now_us() / 1000)
end
