-- Shares one provider token among all workers with the same key: whoever finds it missing or old puts its own there.
--
-- KEYS  1 provider-token:<team>:<key> STRING when it was signed (s since 1970), a space, the token
-- ARGV  1 issued          when the token that is offered was signed, s since 1970
--       2 token           the token that is offered
--       3 renewal age     s from which the token that is there is replaced
--       4 refused         when the token that APNs called expired was signed, or 0
--       5 life            s for which APNs takes a token
--       6 tolerance       s by which the worker's clock may differ from Redis'
-- Reply { taken, token, now }
--       taken             1 when the offered token is the fleet's now, 0 when another is, -1 when the worker's clock is so
--                         wrong that its tokens would be of no use to anybody
--       token             the fleet's
--       now               Redis' time, s since 1970
--
-- APNs does not take a key's tokens when they change more often than every 20 minutes: fifty workers must not each have one.
-- Run twice, the second run finds the token of the first.

local wrong = wrong_type({ [KEYS[1]] = 'string' })
if wrong then
    return wrong
end

local now = math.floor(now_ms() / 1000)
local issued, refused = tonumber(ARGV[1]), tonumber(ARGV[4])
local stored = redis.call('GET', KEYS[1])
if stored then
    local at, token = string.match(stored, '^(%d+) (%S+)$')
    at = tonumber(at)
    local is_good = at and at <= now + tonumber(ARGV[6]) and now - at < tonumber(ARGV[3])
    -- One that was refused is replaced by a later one only: the others have not heard of it yet.
    if is_good and at ~= refused then
        return { 0, token, now }
    end
end
if math.abs(issued - now) > tonumber(ARGV[6]) then
    return { -1, '', now }
end
write_when_full(KEYS[1])
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2], 'EX', ARGV[5])
return { 1, ARGV[2], now }
