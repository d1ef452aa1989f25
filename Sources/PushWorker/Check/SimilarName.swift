import PrintableText
import PushJob
import PushQueue

/// Finds the name that was probably meant by an unknown one.
enum SimilarName {
    static let jobMembers = Set(JobMember.allCases.map { "\($0.name)" })
    static let apsMembers = Set(JobMember.apsMembers.map { "\($0.name)".replacing("_", with: "-") })

    /// Names used by other libraries and services.
    private static let others = [
        "to": "token", "device": "token", "devicetoken": "token", "registrationid": "token",
        "registrationids": "tokens",
        "devicetokens": "tokens", "devices": "tokens", "bundleid": "topic", "apnstopic": "topic", "type": "push_type",
        "apnspushtype": "push_type", "ttl": "expiration", "timetolive": "expiration", "expiry": "expiration",
        "expires": "expiration", "apnsexpiration": "expiration", "apnspriority": "priority", "data": "custom",
        "userinfo": "custom", "extra": "custom", "customdata": "custom", "message": "alert", "title": "alert",
        "body": "alert", "notification": "payload", "apnsid": "apns_id", "apnscollapseid": "collapse_id",
        "at": "send_at",
        "sendafter": "send_at", "retries": "max_attempts", "maxretries": "max_attempts", "idempotencykey": "id",
        "jobid": "id", "channelid": "channel", "custompayload": "custom", "payloadextra": "custom",
        "retrylimit": "max_attempts", "newsstandavailable": "content_available", "truncateatwordend": "truncate",
        "recipient": "token", "recipients": "tokens", "expirytime": "expiration", "notafter": "expiration",
    ]

    static func jobMember(like name: String) -> String? { nearest(to: name, among: jobMembers, others) }

    static func apsMember(like name: String) -> String? { nearest(to: name, among: apsMembers, [:]) }

    private static func nearest(to name: String, among known: Set<String>, _ others: [String: String]) -> String? {
        guard name.utf8.count <= 40 else { return nil }
        let plain = plain(name)
        if let same = known.first(where: { Self.plain($0) == plain }) { return same }
        if let other = others[plain] { return other }
        // Short names have too many neighbours with other meanings.
        let allowed = plain.utf8.count >= 8 ? 2 : plain.utf8.count >= 4 ? 1 : 0
        let near = known.map { (plain.editDistance(to: Self.plain($0)), $0) }.filter { $0.0 <= allowed }
        return near.min { $0 < $1 }?.1
    }

    private static func plain(_ name: String) -> String { name.lowercased().filter { $0 != "_" && $0 != "-" } }
}
