import PrintableText

/// Finds the member that a producer probably meant by an unknown name: a misspelling, or a name from another library or service.
public enum MemberName {
    /// The maximum number of an object's names that are compared with known names. More hints would not help a reader.
    public static let maximumCompared = 100

    private static let jobMembers = Known(JobMember.allCases.map { "\($0.name)" })

    /// Names used by other libraries and services, in lower case without separators.
    private static let others: [String: JobMember] = [
        "to": .token, "device": .token, "devicetoken": .token, "registrationid": .token, "recipient": .token,
        "pushtoken": .token, "deviceid": .token, "apnstoken": .token, "registrationids": .tokens,
        "devicetokens": .tokens,
        "devices": .tokens, "recipients": .tokens, "includeplayerids": .tokens, "includeiostokens": .tokens,
        "includesubscriptionids": .tokens, "rawpayload": .payload,
        "bundleid": .topic, "apnstopic": .topic, "type": .pushType, "apnspushtype": .pushType,
        "ttl": .expiration, "timetolive": .expiration, "expiry": .expiration, "expires": .expiration,
        "expirytime": .expiration, "expiresat": .expiration, "notafter": .expiration, "apnsexpiration": .expiration,
        "apnspriority": .priority, "data": .custom, "userinfo": .custom, "extra": .custom, "customdata": .custom,
        "custompayload": .custom, "payloadextra": .custom, "message": .alert, "title": .alert,
        "body": .alert, "contents": .alert, "notification": .alert,
        "apnscollapseid": .collapseID, "apnsid": .apnsID, "apnsenvironment": .environment,
        "development": .environment, "production": .environment, "sandbox": .environment,
        "collapsekey": .collapseID, "at": .sendAt, "sendafter": .sendAt,
        "deliverafter": .sendAt, "retries": .maxAttempts, "maxretries": .maxAttempts, "retrylimit": .maxAttempts,
        "idempotencykey": .id, "jobid": .id, "notifid": .id, "channelid": .channel,
        "newsstandavailable": .contentAvailable,
        "truncateatwordend": .truncate,
    ]

    static func isJobMember(_ name: String) -> Bool { jobMembers.all.contains(name) }

    /// Returns the name of the member of a job that was probably meant.
    /// - Parameter isObject: true if its value is an object.
    public static func jobMember(like name: String, isObject: Bool) -> String? {
        guard !isJobMember(name) else { return nil }
        // Other libraries put the whole payload into `message`.
        if isObject, plain(name) == "message" { return "payload" }
        return nearest(to: name, among: jobMembers) { plain in others[plain].map { "\($0.name)" } }
    }

    /// Returns the job's member for a setting of another system, such as `apns-priority`; `nil` if the name does not set the environment or
    /// a header of APNs.
    /// - Parameter isHeader: true to accept only the names of APNs' headers, because other names may be the app's own data.
    public static func setting(_ name: String, isHeader: Bool) -> JobMember? {
        guard name.utf8.count <= 40 else { return nil }
        let plain = plain(name)
        guard !isHeader || plain.hasPrefix("apns") else { return nil }
        let member = others[plain] ?? ownSettings[plain]
        return member.flatMap { settings.contains($0) ? $0 : nil }
    }

    private static let ownSettings = Dictionary(uniqueKeysWithValues: settings.map { (plain("\($0.name)"), $0) })
    private static let settings: Set<JobMember> = [
        .topic, .pushType, .priority, .expiration, .collapseID, .apnsID, .environment,
    ]

    /// Known names, and their plain forms: in lower case and without separators.
    struct Known: Sendable {
        let names: [String]
        fileprivate let all: Set<String>
        fileprivate let plain: [[UInt8]]
        fileprivate let places: [[UInt8]: Int]

        init(_ names: [String]) {
            self.names = names
            all = Set(names)
            plain = names.map { Array(MemberName.plain($0).utf8) }
            places = Dictionary(zip(plain, names.indices)) { first, _ in first }
        }
    }

    /// Returns the most similar known name.
    static func nearest(to name: String, among known: Known, _ other: (String) -> String? = { _ in nil }) -> String? {
        guard name.utf8.count <= 40 else { return nil }
        let text = plain(name)
        let plain = Array(text.utf8)
        if let same = known.places[plain] { return known.names[same] }
        if let other = other(text) { return other }
        // Short names have too many neighbours with other meanings.
        let allowed = plain.count >= 8 ? 2 : plain.count >= 4 ? 1 : 0
        guard allowed > 0 else { return nil }
        let near = zip(known.plain, known.names).compactMap { other, name in
            plain.editDistance(to: other, atMost: allowed).map { ($0, name) }
        }
        return near.min { $0 < $1 }?.1
    }

    private static func plain(_ name: String) -> String { name.lowercased().filter { $0 != "_" && $0 != "-" } }

    /// Quotes a name for a message if it looks like a name. Any other text is not shown, because it could be a value in the wrong place.
    public static func quoted(_ name: String) -> String {
        let isName = name.utf8.allSatisfy { byte in
            byte &- 0x30 < 10 || (byte | 0x20) &- 0x61 < 26 || byte == UInt8(ascii: "_") || byte == UInt8(ascii: "-")
                || byte == UInt8(ascii: ".") || byte == UInt8(ascii: "$") || byte == UInt8(ascii: ":")
        }
        return isName && (1...40).contains(name.utf8.count) ? "`\(name)`" : "a member with an unusual name"
    }
}

/// A text in another format than a job's, recognized by its first bytes. The raw value explains it.
public enum ForeignText: String, Sendable, CaseIterable {
    case gzip = "it is compressed with gzip; push the JSON text itself"
    case zlib = "it is compressed with zlib; push the JSON text itself"
    case zstandard = "it is compressed with Zstandard; push the JSON text itself"
    case pickle = "it is a pickle of Python; use json.dumps"
    case marshal = "it is written by Ruby's Marshal; use JSON.generate"
    case java = "it is a serialized object of Java; encode the job as JSON"
    case php = "it is serialized by PHP; use json_encode"
    case messagePack = "it looks like MessagePack; encode the job as JSON"
    case utf16 = "it is UTF-16; encode the JSON text as UTF-8"
    case xml = "it looks like XML; encode the job as JSON"
    case base64 = "it looks like JSON in base64; push the JSON text itself"
    case form = "it looks like the parameters of a URL or a form; encode the job as JSON"
    case inspected =
        "its strings are in single quotes, or its names are symbols, as Python and Ruby print an object; encode it as JSON"
    case encodedTwice = "it is a string that contains JSON: it was encoded twice; push the object itself"
    case array = "it is an array; push each of its elements as a job of its own, as `jq -c '.[]'` writes them"
    case several = "it contains several jobs; push each as an element of its own"

    /// - Parameter isJSON: true if the text is valid JSON, so that it can be an array or a string of JSON.
    static func recognize(
        _ bytes: UnsafeRawBufferPointer, in range: Range<Int>, isJSON: Bool = true
    ) -> ForeignText? {
        let text = UnsafeRawBufferPointer(rebasing: bytes[range])
        guard let first = text.first(where: { $0 != 0x20 && $0 != 0x0A && $0 != 0x0D && $0 != 0x09 }) else {
            return nil
        }
        func begins(_ start: [UInt8]) -> Bool { text.starts(with: start) }
        if begins([0x1F, 0x8B]) { return .gzip }
        if first == 0x78, text.count > 2, [0x01, 0x5E, 0x9C, 0xDA].contains(text[1]) { return .zlib }
        if begins([0x28, 0xB5, 0x2F, 0xFD]) { return .zstandard }
        if begins([0xFF, 0xFE]) || begins([0xFE, 0xFF]) || begins([0x7B, 0x00]) || begins([0x00, 0x7B]) {
            return .utf16
        }
        if first == 0x80, text.count > 1, (2...5).contains(text[1]) { return .pickle }
        if begins([0x04, 0x08]) { return .marshal }
        if begins([0xAC, 0xED]) { return .java }
        if (0x80...0x9F).contains(first) || (0xDC...0xDF).contains(first) { return .messagePack }
        switch first {
        case UInt8(ascii: "["): return isJSON ? .array : nil
        case UInt8(ascii: "\""): return isJSON ? .encodedTwice : nil
        case UInt8(ascii: "<"): return .xml
        case UInt8(ascii: "{"): return inBraces(text)
        default: return ofLetters(text)
        }
    }

    private static func inBraces(_ text: UnsafeRawBufferPointer) -> ForeignText? {
        let inner = text.dropFirst().first { $0 > 0x20 }
        if inner == UInt8(ascii: "'") || inner == UInt8(ascii: ":") { return .inspected }
        var scanner = JSONScanner(text)
        scanner.skipWhitespace()
        do throws(JSONError) {
            try scanner.skipValue()
        } catch {
            return error.kind == .expectedColon && text[error.offset...].starts(with: "=>".utf8) ? .inspected : nil
        }
        scanner.skipWhitespace()
        return scanner.next == UInt8(ascii: "{") ? .several : nil
    }

    private static func ofLetters(_ text: UnsafeRawBufferPointer) -> ForeignText? {
        if text.starts(with: "eyJ".utf8) || text.starts(with: "ewog".utf8) { return .base64 }
        let isSerialized = text.count > 3 && text[1] == UInt8(ascii: ":") && text[2] &- UInt8(ascii: "0") < 10
        if isSerialized, text[0] == UInt8(ascii: "a") || text[0] == UInt8(ascii: "O") || text[0] == UInt8(ascii: "s") {
            return .php
        }
        let start = text.prefix(100)
        return start.contains(UInt8(ascii: "=")) && !start.contains(UInt8(ascii: "{")) ? .form : nil
    }
}

/// A job that was written for another program.
enum ForeignJob {
    /// Recognizes the members that a job has in place of a device or a payload.
    /// - Returns: the end of the sentence "the job has no …: "; `nil` if nothing is recognized.
    /// - Parameters:
    ///   - meant: the members that are missing.
    ///   - document: the range of the job's object, which is valid JSON.
    static func instead(
        of meant: Set<JobMember>, _ bytes: UnsafeRawBufferPointer, in document: Range<Int>
    ) -> String? {
        guard let members = try? members(bytes, in: document) else { return nil }
        if let envelope = envelope(members) { return envelope }
        for (name, kind) in members {
            guard let like = MemberName.jobMember(like: name, isObject: kind == .object),
                meant.contains(where: { "\($0.name)" == like })
            else { continue }
            return "it has \(MemberName.quoted(name)); did you mean `\(like)`?"
        }
        if members.contains(where: { $0.name == "message" && $0.kind == .object }) {
            return "it has `message`, as for FCM; put `message.token` into `token`, and its notification into `alert`"
        }
        return members.contains { $0.name == "aps" } ? "it has `aps` at the top level; move it into `payload`" : nil
    }

    /// Returns advice about a message for another program.
    private static func envelope(_ members: [(name: String, kind: JSONKind?)]) -> String? {
        func has(_ name: String, _ kind: JSONKind) -> Bool { members.contains { $0.name == name && $0.kind == kind } }
        func has(_ name: String) -> Bool { members.contains { $0.name == name } }
        if has("class", .text), has("args", .array) {
            return "it is a job of Sidekiq or Resque; run the worker with --format sidekiq or resque"
        }
        let isOfFirstProtocol = has("task", .text) && has("args", .array)
        if isOfFirstProtocol || has("body", .text) && (has("properties", .object) || has("content-encoding", .text)) {
            return "it is a message of Celery; have its task push a job"
        }
        if has("displayName", .text), has("data", .object) {
            return "it is a job of Laravel's queue; have its `handle` push a job"
        }
        if has("notifications", .array) {
            return "it has `notifications`, as for gorush; push each of them as a job of its own"
        }
        if has("APNS") || has("APNS_SANDBOX") || has("TargetArn") {
            return "it is a message for Amazon SNS; put the text of its `APNS` into `payload`, as an object"
        }
        return nil
    }

    /// The names, in lower case, of objects that hold the settings of a push in other systems.
    private static let containers: Set<String> = ["headers", "apns", "ios", "android", "webpush", "options", "message"]
    /// The names of objects that other systems pass to an app as data.
    private static let data: Set<String> = ["payload", "data", "notification", "custom"]

    /// Finds the settings of a push in objects of other systems, which no worker reads. Returns the path of each setting, and the job's
    /// member to use instead.
    static func settings(
        _ bytes: UnsafeRawBufferPointer, in document: Range<Int>
    ) throws(JSONError) -> [(path: String, member: JobMember)] {
        var found: [(path: String, member: JobMember)] = []
        func walk(_ object: JSONScanner, _ path: String, isData: Bool, depth: Int) throws(JSONError) {
            var scanner = object
            var more = try scanner.enterObject()
            while more, found.count < MemberName.maximumCompared {
                let name = JSONText.string(try scanner.name(), in: bytes)
                let lower = name.lowercased()
                if depth > 0, let member = MemberName.setting(name, isHeader: isData) {
                    found.append((path + name, member))
                } else if scanner.next == UInt8(ascii: "{"), depth < 4,
                    containers.contains(lower) || depth > 0 && data.contains(lower)
                {
                    try walk(
                        scanner, "\(path)\(name).", isData: isData || data.contains(lower), depth: depth + 1)
                }
                try scanner.skipValue()
                more = try scanner.nextMember()
            }
        }
        var scanner = JSONScanner(bytes, in: document)
        try scanner.begin()
        try walk(scanner, "", isData: false, depth: 0)
        return found
    }

    /// Returns the names of a job's members, with the kinds of their values: the first ``MemberName/maximumCompared`` that `isIncluded`
    /// accepts.
    static func members(
        _ bytes: UnsafeRawBufferPointer, in document: Range<Int>,
        where isIncluded: (String, _ first: UInt8?) -> Bool = { _, _ in true }
    ) throws(JSONError) -> [(name: String, kind: JSONKind?)] {
        var members: [(name: String, kind: JSONKind?)] = []
        var scanner = JSONScanner(bytes, in: document)
        try scanner.begin()
        var more = try scanner.enterObject()
        while more, members.count < MemberName.maximumCompared {
            let name = JSONText.string(try scanner.name(), in: bytes)
            if isIncluded(name, scanner.next) { members.append((name, JSONKind(first: scanner.next))) }
            try scanner.skipValue()
            more = try scanner.nextMember()
        }
        return members
    }
}
