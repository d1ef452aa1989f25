-- The counters of campaigns.

-- Beyond this number, the campaigns that were settled longest ago lose their counters.
local MAX_CAMPAIGNS = 10000

-- Adds counts by field to a campaign's counters, which are kept for ninety days.
local function add_to_campaign(campaigns, prefix, now, name, counts)
    local key = prefix .. name
    for field, amount in pairs(counts) do
        redis.pcall('HINCRBY', key, field, amount)
    end
    if redis.pcall('HSETNX', key, 'started_at', now) == 1 then
        local number = redis.pcall('ZCARD', campaigns)
        for _, old in ipairs(type(number) == 'number' and number >= MAX_CAMPAIGNS
            and redis.pcall('ZRANGE', campaigns, 0, 9) or {}) do
            redis.pcall('UNLINK', prefix .. old)
            redis.pcall('ZREM', campaigns, old)
        end
    end
    redis.pcall('HSET', key, 'updated_at', now)
    redis.pcall('PEXPIRE', key, 90 * 86400000)
    redis.pcall('ZADD', campaigns, now, name)
end
