-- The counters of days.

-- Returns the date of a time in UTC, such as '2026-11-21' (Howard Hinnant's civil_from_days).
local function date(now)
    local day = math.floor(now / 86400000) + 719468
    local era = math.floor(day / 146097)
    local of_era = day - era * 146097
    local year = math.floor(
        (of_era - math.floor(of_era / 1460) + math.floor(of_era / 36524) - math.floor(of_era / 146096)) / 365)
    local of_year = of_era - (365 * year + math.floor(year / 4) - math.floor(year / 100))
    local month = math.floor((5 * of_year + 2) / 153)
    local of_month = of_year - math.floor((153 * month + 2) / 5) + 1
    month = month < 10 and month + 3 or month - 9
    return string.format('%04d-%02d-%02d', year + era * 400 + (month <= 2 and 1 or 0), month, of_month)
end

-- Returns the key of the day's counters. `stats` is the key without its day.
local function stats_key(stats, now)
    return stats .. date(now)
end

-- APNs and producers choose some reasons, so once a day has this many counters, each further reason is counted as `other`.
local MAX_COUNTERS_WITH_REASON = 500

-- Adds to one of the day's counters, which are kept for forty days. A field that does not hold a number is left alone.
local function count(stats, now, field, amount)
    if amount ~= 0 then
        local key = stats_key(stats, now)
        if string.find(field, ':', 1, true) then
            local fields = redis.pcall('HLEN', key)
            if type(fields) == 'number' and fields >= MAX_COUNTERS_WITH_REASON and redis.call('HEXISTS', key, field) == 0 then
                field = string.gsub(field, ':.*', ':other')
            end
        end
        if redis.pcall('HINCRBY', key, field, amount) == amount then
            redis.call('EXPIRE', key, 40 * 86400)
        end
    end
end
