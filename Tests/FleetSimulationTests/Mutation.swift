import Foundation
import NIOCore

@testable import PushQueue
@testable import PushWorker

/// A rule of the protocol or of the engine that is removed, to show that the checks detect this.
enum Mutation: String, CaseIterable, Sendable {
    // Rules of the scripts.

    /// All claims have the same stamp.
    case constantStamp
    /// A settlement that does not find its claim ends another claim.
    case settlesAnyClaim
    /// A reclaimed job does not keep its identity.
    case reclaimForgetsOrigin
    /// Lanes are reclaimed before their lease has ended.
    case reclaimIgnoresLease
    /// An ID is reserved although another job has it.
    case reservesWithoutNX
    /// A retry is not written.
    case retryLosesBody
    /// A failed job is lost when its claim is released.
    case givesBackNoFailedJob
    /// A repeated claim claims more jobs under the same numbers.
    case claimGivesNumbersAgain
    /// A claim that arrives late claims jobs.
    case lateClaimTakesJobs
    /// A claim returns as many jobs as are allowed, regardless of their size.
    case claimsAnySize
    /// The scripts that free memory are refused if the memory is full.
    case stopsWhenMemoryIsFull
    /// Claims return the jobs that were pushed last.
    case claimsNewestFirst
    /// A claim does not write the jobs that it sorts.
    case sortLosesJobs
    /// Claimed jobs stay among the sorted jobs.
    case sortedJobsStay
    /// A claim does not renew the lease.
    case claimsWithoutRenewing
    /// Portions of an app's rate can be used too early.
    case grantsRateEarly
    /// Each worker replaces the fleet's provider token.
    case sharesNoProviderToken
    /// A scheduled job that waits for a retry becomes the newest again.
    case announcesAgain
    /// A repeated settlement adds its sums to the minutes' counters again.
    case countsMinutesAgain

    // Rules of the engine.

    /// Jobs are settled before their invalid tokens are written.
    case settlesBeforeMarkingInvalid
    /// An unanswered settlement is not sent again.
    case dropsResentSettlements
    /// Forgotten claims are not searched for.
    case skipsRecovery
    /// A lane searches for forgotten claims among the claims of another lane.
    case recoversOthersClaims
    /// A lane reclaims as soon as it finds an expired lane.
    case reclaimsAtOnce
    /// A settlement counts as confirmed although its connection was lost.
    case confirmsFailedSettlements
    /// A settlement counts as confirmed although Redis refused it.
    case confirmsRefusedSettlements
    /// A lane's estimate of Redis' time is five seconds ahead.
    case goesByOwnClock
    /// Lanes forget the tokens that APNs throttles.
    case forgetsThrottles
    /// Lanes do not read the tokens that other lanes have throttled.
    case hidesThrottles
    /// Tokens are not announced, and lanes use a filter of invalid tokens that is not current.
    case trustsOldFilters
    /// A token stays in the set although APNs accepts it.
    case leavesAcceptedTokens
    /// A lane sends its own provider token although the fleet has another provider token.
    case ignoresFleetToken
    /// Claims do not return the commands of operators.
    case claimHidesCommands
    /// Provider tokens have a signature of zeros.
    case sendsUnsignedTokens
    /// After standing still, a lane enforces its deadlines before it reads answers that have arrived.
    case enforcesDeadlinesLate
    /// Answers are written only when all notifications of their job have ended.
    case settlesOnlyWholeJobs

    /// Lanes send jobs that another job has replaced.
    case sendsReplaced
    /// Lanes drop the newest job.
    case dropsNewest

    // Rules about blame. For each, ``plan`` returns a plan that needs the rule.

    /// A scope is slow if half of its answers are failures.
    case slowedByHalf
    /// A few failures slow a scope down.
    case concludesFromFew
    /// The probes of a slow scope have no pauses between them.
    case probesWithoutPauses
    /// A slow scope sends no probe for an hour.
    case probesTooLate
    /// Failed jobs take turns with other jobs.
    case failedTakeTurns
    /// All lanes of all workers share one register of scopes.
    case sharesScopes
    /// A refused credential is tried again on the connections that are open.
    case triesOldConnections
    /// The failure of a notification that failed before counts like a first failure.
    case retriesAreWitnesses
    /// The scopes of campaigns are unknown.
    case hidesCampaigns
    case everyFailureSpends
    case noFailureSpends

    /// A plan that needs the removed rule of blame.
    var plan: BlamePlan? {
        switch self {
        case .slowedByHalf: BlamePlan(.serviceUnavailable, .thirtyPerSecond)
        case .concludesFromFew: BlamePlan(.invalidProviderToken, .thirtyPerSecond)
        case .probesWithoutPauses, .probesTooLate: .outage(.serviceUnavailable)
        case .failedTakeTurns: .saturated
        case .sharesScopes: .proxy(.invalidProviderToken)
        case .triesOldConnections: .stuckConnections(.invalidProviderToken)
        case .retriesAreWitnesses: BlamePlan(.serviceUnavailable, .thousand, length: 60_000)
        case .hidesCampaigns: BlamePlan(.invalidProviderToken, .thousand, hasCampaign: true, streams: 20)
        case .everyFailureSpends: BlamePlan(.serviceUnavailable, .once, length: 60_000)
        case .noFailureSpends: BlamePlan(.invalidProviderToken, .once, length: 60_000)
        default: nil
        }
    }

    /// Changes a lane's rules about scopes.
    func change(_ scopes: Scopes) {
        switch self {
        case .slowedByHalf:
            for kind in scopes.rules.indices { scopes.rules[kind].share = 2 }
        case .concludesFromFew:
            for kind in scopes.rules.indices { scopes.rules[kind].fewest = 2; scopes.rules[kind].share = 2 }
        case .probesWithoutPauses:
            for kind in scopes.rules.indices {
                (scopes.rules[kind].first, scopes.rules[kind].longest) = (1, 1)
            }
        case .probesTooLate:
            for kind in scopes.rules.indices {
                (scopes.rules[kind].first, scopes.rules[kind].longest) = (3_600_000, 3_600_000)
            }
        default: break
        }
    }

    /// Changes a job that a lane has claimed.
    func change(_ body: ByteBuffer) -> ByteBuffer {
        switch self {
        case .retriesAreWitnesses, .failedTakeTurns: body.replacing(#""error":{"#, by: #""other":{"#)
        case .hidesCampaigns: body.replacing(#","campaign":"bad""#, by: "")
        default: body
        }
    }

    /// The text in a script and its replacement.
    var patch: (find: String, by: String)? {
        switch self {
        case .constantStamp: ("local stamp = string.format('%s%x', nonce, now_in_us % 2 ^ 44)", "local stamp = 'same'")
        case .settlesAnyClaim:
            (
                "own = own + redis.call('HDEL', claimed, unpack(ARGV, start, math.min(start + CHUNK - 1, last)))",
                """
                for i = start, math.min(start + CHUNK - 1, last) do
                    local field = ARGV[i]
                    if redis.call('HEXISTS', claimed, field) == 0 then field = redis.call('HKEYS', claimed)[1] end
                    if field then own = own + redis.call('HDEL', claimed, field) end
                end
                """
            )
        case .reclaimIgnoresLease: ("if not lease or tonumber(lease) >= now then", "if not lease then")
        case .reclaimForgetsOrigin:
            (#"origin = members.origin and '' or ',"origin":' .."#, #"origin = true and '' or "#)
        case .reservesWithoutNX: ("'NX', 'PX', ttl", "'PX', ttl")
        case .announcesAgain: ("1, 'NX', 'PX', life", "1, 'PX', life")
        case .retryLosesBody:
            ("redis.call('ZADD', has_failed(job) and failed or retry, due, job)", "")
        case .givesBackNoFailedJob:
            ("redis.call('ZADD', failed, 'NX', now, body) == 0", "false")
        case .lateClaimTakesJobs: ("elseif next_number and first < tonumber(next_number) then", "elseif false then")
        case .claimGivesNumbersAgain:
            ("local known = limit > 0 and redis.pcall('GET', next_key)", "local known = nil")
        case .claimsNewestFirst:
            (
                "fresh = list_place(jobs, head,",
                "fresh = list_place(jobs, head == 'RIGHT' and 'LEFT' or 'RIGHT',"
            )
        case .sortLosesJobs: ("call_in_chunks('ZADD', sorted, members)", "")
        case .sortedJobsStay: ("redis.call('ZREMRANGEBYRANK', sorted, 0, n - 1)", "")
        case .claimsAnySize: ("tonumber(max_job_bytes), tonumber(max_bytes)", "tonumber(max_job_bytes), 2 ^ 40")
        case .stopsWhenMemoryIsFull: ("redis.call('PERSIST', key)", "")
        case .claimHidesCommands: ("(version or '') ~= known_version", "false")
        case .claimsWithoutRenewing:
            ("'XX', 'CH', lease_end, lane", "'XX', 'CH', redis.call('ZSCORE', workers, lane) or 0, lane")
        case .grantsRateEarly: ("math.ceil((start - now) / 1000)", "math.ceil((start - now) / 2000) - 1000")
        case .sharesNoProviderToken: ("if is_good and stored_at ~= tonumber(refused) then", "if false then")
        case .countsMinutesAgain: ("if minutes and (settled > 0 or lost == 0) then", "if minutes then")
        case .trustsOldFilters: ("for _, tokens in ipairs(ARGV) do", "for _, tokens in ipairs({}) do")
        case .everyFailureSpends:
            (
                "local attempt = (members.attempt or 1) + (spends and 1 or 0)",
                "spends = true local attempt = (members.attempt or 1) + 1"
            )
        case .noFailureSpends:
            (
                "local attempt = (members.attempt or 1) + (spends and 1 or 0)",
                "spends = false local attempt = members.attempt or 1"
            )
        default: nil
        }
    }
}

extension ByteBuffer {
    /// Returns the text with the first occurrence of a part replaced.
    fileprivate func replacing(_ part: String, by other: String) -> ByteBuffer {
        let text = String(buffer: self)
        guard let range = text.firstRange(of: part) else { return self }
        return ByteBuffer(string: text.replacingCharacters(in: range, with: other))
    }
}
