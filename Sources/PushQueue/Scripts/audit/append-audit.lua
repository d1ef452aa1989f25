-- Adds an entry to the audit log.
--
-- KEYS  1 audit           STREAM the last actions on all queues
-- ARGV  1 max entries     the approximate number of entries that are kept
--       then any number of (field value)...
-- Reply                   the id of the entry
--
-- Run twice, it adds a second entry.

local audit = unpack(KEYS)

local wrong = wrong_type({ [audit] = 'stream' })
if wrong then
    return wrong
end
write_when_full(audit)
return redis.call('XADD', audit, 'MAXLEN', '~', ARGV[1], '*', unpack(ARGV, 2))
