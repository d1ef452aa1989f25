-- Shares one provider token among all workers with the same key: a worker that finds none, or an old one, stores its
-- own.
--
-- KEYS  1 provider-token:<team>:<key> STRING when it was signed (s since 1970), a space, the token
-- ARGV  1 issued          when the offered token was signed, s since 1970
--       2 token           the offered token
--       3 renewal age     the age from which a stored token is replaced, s
--       4 refused         when the token that APNs refused as expired was signed, s since 1970; 0 for none
--       5 life            s for which APNs accepts a token
--       6 tolerance       s by which the worker's clock may differ from Redis'
-- Reply { result, token, now }
--       result            1 when the offered token was stored, 0 when the fleet has another, -1 when the worker's clock
--                         is so wrong that APNs would refuse its tokens
--       token             the token of the fleet; '' when it has none
--       now               Redis' time, s since 1970
--
-- APNs refuses tokens of a key that change more often than every 20 minutes, so the workers must share one. Run twice,
-- the second run finds the token of the first.
-- Needs: time base

local key = KEYS[1]
local issued, token, renewal_age, refused, life, tolerance = unpack(ARGV)
renewal_age, tolerance = tonumber(renewal_age), tonumber(tolerance)

local wrong = wrong_type({ [key] = 'string' })
if wrong then
    return wrong
end

local now = math.floor(now_ms() / 1000)
local stored = redis.call('GET', key)
if stored then
    local stored_at, stored_token = string.match(stored, '^(%d+) (%S+)$')
    stored_at = tonumber(stored_at)
    local is_good = stored_at and stored_at <= now + tolerance and now - stored_at < renewal_age
    -- A refused token is replaced. If another lane has done so already, its token is used.
    if is_good and stored_at ~= tonumber(refused) then
        return { 0, stored_token, now }
    end
end
if math.abs(issued - now) > tolerance then
    return { -1, '', now }
end
write_when_full(key)
redis.call('SET', key, issued .. ' ' .. token, 'EX', life)
return { 1, token, now }
