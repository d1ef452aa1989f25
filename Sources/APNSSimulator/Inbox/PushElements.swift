import PrintableText
import WebPages

/// The parts of a push that several pages of the inbox show.
enum PushElements {
    /// The age of a time, with the time in UTC as its tooltip. A script keeps it up to date.
    static func age(_ milliseconds: Int64) -> HTML {
        """
        <time datetime="\(utcTime(milliseconds / 1000))" title="\(EpochTime.text(seconds: milliseconds / 1000))" \
        data-age="\(milliseconds)">\(age(milliseconds, now: WallClock.milliseconds()))</time>
        """
    }

    static func device(_ notification: ReceivedNotification) -> HTML {
        """
        <div class="device\(if: !notification.accepted, " refused")">\
        \(notification.preview.banner(when: age(notification.time), refusal: notification.refusal))</div>
        """
    }

    static func answer(_ notification: ReceivedNotification) -> HTML {
        let tone: Elements.Tone =
            switch notification.outcome {
            case _ where notification.isSuccess: .good
            case .answered(429, _), .answered(500..., _): .warning
            default: .bad
            }
        return Elements.label(notification.answerText, tone)
    }

    /// The device or the channel, with a link to all its pushes.
    static func target(_ notification: ReceivedNotification) -> HTML {
        guard let name = notification.token ?? notification.channel else {
            return "<span class=\"muted\">no token</span>"
        }
        var filter = InboxFilter()
        filter.token = name.lowercased()
        let isShort = name.count <= 16
        return """
            \(if: notification.token == nil, "channel ")<a class="mono" href="\(filter.path)" \
            title="\(name)">\(name.prefix(16) + (isShort ? "" : "…"))</a>
            """
    }

    /// Returns an age such as `5 s ago`; inbox.js has the same units.
    static func age(_ milliseconds: Int64, now: Int64) -> String {
        let seconds = max(0, now - milliseconds) / 1000
        switch seconds {
        case ..<120: return "\(seconds) s ago"
        case ..<7200: return "\(seconds / 60) min ago"
        case ..<172_800: return "\(seconds / 3600) h ago"
        default: return "\(seconds / 86_400) days ago"
        }
    }
}
