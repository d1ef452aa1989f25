import APNS
import NIOCore
import PushJob
import PushQueue

/// Likely mistakes in a job, whether or not it can be sent. A worker must not complain about them, because it leaves
/// unknown members to the producer.
enum JobHints {
    /// - Returns: one sentence per mistake; none if the job contains no object to examine.
    static func of(_ body: ByteBuffer, as format: JobFormat) -> [String] {
        guard let document = JobDecoder.document(of: body, as: format),
            let members = JSONValue.read(document)?.members
        else { return [] }
        if format == .native, members["args"]?.elements != nil, members["class"] != nil {
            return [
                "it looks like a job of Sidekiq or Resque: run the worker with --format sidekiq or resque;"
                    + " `check --job` has the same flag"
            ]
        }
        return unknownMembers(members) + payload(members) + alert(members) + tokens(members)
            + labels(body, members, format)
    }

    private static func unknownMembers(_ members: [String: JSONValue]) -> [String] {
        var hints: [String] = []
        for name in members.keys.sorted() where !SimilarName.jobMembers.contains(name) {
            if name == "aps" {
                hints.append("it has `aps` at the top level, where it is ignored; move it into `payload`")
            } else if let meant = SimilarName.jobMember(like: name) {
                hints.append("unknown member \(quoted(name)); did you mean `\(meant)`?")
            }
        }
        return hints
    }

    /// Returns hints about members that are ignored because they are not valid.
    private static func labels(_ body: ByteBuffer, _ members: [String: JSONValue], _ format: JobFormat) -> [String] {
        let job = JobDecoder.identify(body, as: format)
        return [(JobMember.campaign, job.campaign), (.labels, job.labels)].compactMap { member, field in
            guard field == nil, let value = members["\(member.name)"], !value.isNothing else { return nil }
            return "its `\(member.name)` is ignored: it must be \(member.expectation)"
        }
    }

    private static func payload(_ members: [String: JSONValue]) -> [String] {
        guard let payload = members["payload"]?.members else { return [] }
        guard let aps = payload["aps"] else {
            if payload["mdm"] != nil { return [] }
            return ["its `payload` has no `aps`: nothing is shown unless the app shows it"]
        }
        guard let aps = aps.members else { return ["its `payload` has an `aps` that is not an object"] }
        var hints: [String] = []
        for name in aps.keys.sorted() where !SimilarName.apsMembers.contains(name) {
            guard let meant = SimilarName.apsMember(like: name) else { continue }
            hints.append("`aps` has \(quoted(name)), which Apple does not define; did you mean `\(meant)`?")
        }
        for name in payload.keys.sorted() where name != "aps" && SimilarName.apsMembers.contains(name) {
            hints.append("its `payload` has `\(name)` next to `aps`, where iOS ignores it; move it into `aps`")
        }
        return hints
    }

    private static func alert(_ members: [String: JSONValue]) -> [String] {
        let alert = members["alert"] ?? members["payload"]?.members?["aps"]?.members?["alert"]
        if alert?.text == "" { return ["its `alert` is empty: nothing is shown"] }
        guard let parts = alert?.members else { return [] }
        let shown = ["title", "subtitle", "body", "loc-key", "loc_key", "title-loc-key", "title_loc_key"]
        guard shown.allSatisfy({ parts[$0]?.isNothing ?? true }) else { return [] }
        return ["its `alert` has no text: nothing is shown without `title` or `body`"]
    }

    private static func tokens(_ members: [String: JSONValue]) -> [String] {
        let listed = members["tokens"]?.elements?.compactMap(\.text) ?? []
        let tokens = members["token"]?.text.map { [$0] } ?? listed
        if tokens.contains(where: isFromFirebase) {
            return [
                "a token looks like a Firebase (FCM) token, which APNs does not accept; have the app send the token of"
                    + " `didRegisterForRemoteNotificationsWithDeviceToken`"
            ]
        }
        if tokens.contains(where: { $0.hasPrefix("ExponentPushToken[") || $0.hasPrefix("ExpoPushToken[") }) {
            return ["a token is an Expo token; have the app send the result of `getDevicePushTokenAsync`"]
        }
        // A token that is not hex has its own error; this one looks complete but is not.
        if tokens.contains(where: { $0.hasPrefix("{length") }) {
            return [
                "a token is the description of a `Data` object, which lacks most of its bytes; have the app send"
                    + " `deviceToken.map { String(format: \"%02x\", $0) }.joined()`"
            ]
        }
        let short = tokens.filter { (try? DeviceToken($0)).map { $0.hex.readableBytes < 64 } ?? false }
        guard let first = short.first else { return [] }
        return ["a token has \(first.utf8.count) characters; Apple's have at least 64. Is it complete?"]
    }

    // An instance ID, a colon, and a part that begins with APA91b.
    private static func isFromFirebase(_ token: String) -> Bool {
        token.contains(":APA91") || token.hasPrefix("APA91") || (token.utf8.count > 100 && token.contains(":"))
    }

    /// Returns a member's name if it can be printed: it is untrusted text.
    private static func quoted(_ name: String) -> String {
        let isPlain = name.utf8.count <= 60 && name.unicodeScalars.allSatisfy { $0.value >= 0x20 && $0.value < 0x7F }
        return isPlain ? "`\(name)`" : "a member with an unprintable name"
    }
}
