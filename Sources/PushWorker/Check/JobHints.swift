import APNS
import NIOCore
import PrintableText
import PushJob
import PushQueue

/// Finds likely mistakes in the members of a job outside its payload.
enum JobHints {
    /// Returns hints about a job, even if it can't be sent.
    /// - Parameters:
    ///   - body: the text of the job.
    ///   - now: milliseconds since 1970.
    static func of(_ job: Job, _ body: ByteBuffer, as format: JobFormat, now: Int64) -> [Hint] {
        unknownMembers(body, format) + ignored(job) + names(job) + times(job, now: now) + expirations(job, now: now)
            + tokens(job)
    }

    /// Returns hints about names that look like other names. Names are compared by their bytes.
    private static func names(_ job: Job) -> [Hint] {
        let names: [(member: JobMember, field: JobField?)] = [
            (.id, job.id), (.campaign, job.campaign), (.app, job.app), (.fair, job.fair),
            (.replaces, job.replaces),
        ]
        return names.compactMap { member, field in
            guard let field else { return nil }
            let name = String(buffer: job.text(field))
            guard name.hasHiddenCharacters else { return nil }
            return Hint(
                .name,
                """
                its `\(member.name)` is "\(name.shown)", which looks like "\(name.seen)" and is another name; \
                remove spaces at its ends and invisible characters, and write accents in the composed form (NFC)
                """, subject: "\(member.name)")
        }
    }

    /// Returns hints about unknown members with names like those of known members.
    static func unknownMembers(_ body: ByteBuffer, _ format: JobFormat) -> [Hint] {
        let names = JobDecoder.foreignNames(of: body, as: format)
        let settings = names.settings.map { setting in
            Hint(
                .unknownMember,
                "`\(setting.path)` is not read where it is; if it is meant for this push, write the job's own "
                    + "`\(setting.member.name)`", subject: setting.path)
        }
        return settings
            + names.members.compactMap { member in
                if member.name == "aps" {
                    return Hint(
                        .unknownMember, "it has `aps` at the top level, where it is ignored; move it into `payload`",
                        subject: "aps")
                }
                guard let meant = MemberName.jobMember(like: member.name, isObject: member.isObject) else { return nil }
                return Hint(
                    .unknownMember, "unknown member \(MemberName.quoted(member.name)); did you mean `\(meant)`?",
                    subject: MemberName.quoted(member.name))
            }
    }

    /// Returns hints about members that are ignored.
    private static func ignored(_ job: Job) -> [Hint] {
        var hints = job.ignoredMembers.map { member in
            Hint(
                .ignoredMember, "its `\(member.name)` is ignored: it must be \(member.expectation)",
                subject: "\(member.name)")
        }
        if job.apnsID != nil, job.tokens != nil {
            hints.append(
                Hint(
                    .ignoredMember, "its `apns_id` is ignored, because each of its `tokens` has an apns-id of its own",
                    subject: "apns_id"))
        }
        return hints
    }

    /// Returns hints about an expiration that has passed, or has no certain start.
    private static func expirations(_ job: Job, now: Int64) -> [Hint] {
        if let second = job.expirationSecond(firstSeen: now), second > 0, second * 1000 <= now {
            let isDuration = if case .epoch(let second) = job.expiration { second < firstTime } else { false }
            // ``times(_:now:)`` reports a duration that is read as a time.
            if isDuration { return [] }
            return [
                Hint(
                    .time, "it has expired and would end as `expired`, without being sent", subject: "expired")
            ]
        }
        guard case .after = job.expiration, job.enqueuedAt == nil else { return [] }
        return [
            Hint(
                .time,
                "its `expiration` is a duration, and it has no `enqueued_at`: the duration counts from the time at "
                    + "which a worker first sees the job, even if it has waited for long by then", subject: "undated")
        ]
    }

    /// The earliest time that is plausible, in seconds: 2001. Smaller numbers are probably durations.
    private static let firstTime: Int64 = 1_000_000_000

    /// Returns hints about times that are valid, but probably not meant.
    static func times(_ job: Job, now: Int64) -> [Hint] {
        var hints: [Hint] = []
        func add(_ member: JobMember, _ detail: String) { hints.append(Hint(.time, detail, subject: "\(member.name)")) }
        for (member, time) in [(JobMember.enqueuedAt, job.enqueuedAt), (.registeredAt, job.registeredAt)] {
            guard let time, time > now + Job.clockTolerance else { continue }
            let text = utcTime(time / 1000)
            add(member, "its `\(member.name)` is \(text), which is ahead of the clock of Redis; it counts as now")
        }
        if let sendAt = job.sendAt {
            if sendAt > now + JobTime.farAhead {
                add(.sendAt, "its `send_at` is \(utcTime(sendAt / 1000)), in more than a year")
            } else if sendAt < firstTime * 1000 {
                let text = utcTime(sendAt / 1000)
                add(.sendAt, "its `send_at` is \(text), a time that has passed; a number is seconds since 1970")
            }
        }
        if case .epoch(let second) = job.expiration, second > 0, second < firstTime {
            add(
                .expiration,
                "its `expiration` is \(utcTime(second)), a time that has passed; write a duration as \"1h\" or \"3600s\""
            )
        }
        return hints
    }

    /// Returns hints about tokens that are repeated or look cut off.
    private static func tokens(_ job: Job) -> [Hint] {
        var hints: [Hint] = []
        if let tokens = job.tokens {
            let repeated = tokens.count - DistinctTokens(tokens, of: job).count
            let which = repeated == 1 ? "1 of its tokens is" : "\(repeated) of its tokens are"
            if repeated > 0 {
                hints.append(Hint(.token, "\(which) repeated; each device gets one notification", subject: "repeated"))
            }
        }
        let fields = job.tokens.map { Array($0) } ?? job.token.map { [$0] } ?? []
        for field in fields {
            do throws(DeviceToken.Invalid) {
                guard try DeviceToken(job.text(field)).hex.readableBytes < DeviceToken.wholeDigits else { continue }
            } catch {
                // A malformed token is reported as an error.
                continue
            }
            return hints + [
                Hint(
                    .token,
                    "a token has \(job.text(field).readableBytes) characters; Apple's have at least \(DeviceToken.wholeDigits). Is it complete?"
                )
            ]
        }
        return hints
    }
}
