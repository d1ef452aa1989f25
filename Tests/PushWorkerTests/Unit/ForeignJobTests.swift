import Foundation
import NIOCore
import PushJob
import PushQueue
import TestSupport
import Testing

@testable import PushWorker

/// Jobs in the forms of other libraries and services, and the messages that their producers get.
@Suite("Jobs written for other programs")
struct ForeignJobTests {
    enum Verdict: String, Decodable {
        /// The job is sent as its producer meant it, without a hint.
        case sent
        case told
        case refused
    }

    /// A line of the file: a job of another library or service.
    struct Sample: Decodable {
        let origin: String
        private let text: String
        let verdict: Verdict
        /// A part of the hint or refusal.
        let words: String?
        private let formatName: String?
        /// The ID that the job's dead letter must have.
        let id: String?

        /// The job with a whole token.
        var job: String { text.replacing("TOKEN", with: ForeignJobTests.token) }
        var format: JobFormat { formatName == nil ? .native : .sidekiq(classes: []) }

        private enum CodingKeys: String, CodingKey {
            case origin, verdict, words, id
            case text = "job"
            case formatName = "format"
        }
    }

    private static let token = "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"
    private static let now: Int64 = 1_795_000_000_000

    static let corpus: [Sample] = {
        let file = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "foreign-jobs.ndjson")
        do {
            let text = try String(contentsOf: file, encoding: .utf8)
            return try text.split(separator: "\n").map { try JSONDecoder().decode(Sample.self, from: Data($0.utf8)) }
        } catch { fatalError("\(file.path): \(error)") }
    }()

    @Test("are sent as they were meant, or an answer says what to write", arguments: corpus.indices)
    func verdict(_ index: Int) throws {
        let sample = Self.corpus[index]
        let body = ByteBuffer(string: sample.job)
        let review = JobCheck.review(body, as: sample.format, now: Self.now)
        let said = review.defect ?? review.hints.map(\.detail).joined(separator: "\n")
        #expect((review.defect != nil) == (sample.verdict == .refused), "\(sample.origin): \(said)")
        #expect(
            said.isEmpty == (sample.verdict == .sent) && (sample.words.map { said.contains($0) } ?? true),
            "\(sample.origin): \(said)")
        if sample.verdict == .refused {
            let job = JobDecoder.identify(body, as: sample.format)
            #expect(job.id.map { String(buffer: job.text($0)) } == sample.id, "\(sample.origin)")
        }
        // No message contains the token, because messages reach logs.
        #expect(!said.contains(Self.token) && !said.contains("APA91b"))
    }

    @Test(
        "are named if they are not text at all",
        arguments: [
            ([0x1F, 0x8B, 0x08, 0x00], "gzip"), ([0x78, 0x9C, 0xAB, 0x56], "zlib"),
            ([0x28, 0xB5, 0x2F, 0xFD], "Zstandard"), ([0x80, 0x04, 0x95, 0x10], "pickle of Python"),
            ([0x04, 0x08, 0x7B, 0x06], "Ruby's Marshal"), ([0xAC, 0xED, 0x00, 0x05], "Java"),
            ([0x82, 0xA5, 0x74, 0x6F], "MessagePack"), ([0xDE, 0x00, 0x02, 0xA5], "MessagePack"),
            ([0xFF, 0xFE, 0x7B, 0x00], "UTF-16"), ([0x7B, 0x00, 0x22, 0x00], "UTF-16"),
            ([0x00, 0x7B, 0x00, 0x22], "UTF-16"),
        ] as [([UInt8], String)])
    func binary(bytes: [UInt8], words: String) {
        for format in [JobFormat.native, .sidekiq(classes: [])] {
            let review = JobCheck.review(ByteBuffer(bytes: bytes), as: format, now: Self.now)
            #expect(review.defect?.contains(words) == true, "\(review.defect ?? "")")
        }
    }

    @Test("there are at least 60, of at least 15 origins")
    func size() { #expect(Self.corpus.count >= 60 && Set(Self.corpus.map(\.origin)).count >= 15) }

    // MARK: One mistake at a time

    /// Valid jobs that together have all members.
    private static let valid = corpus.filter { $0.origin == "all members" }.map(\.job)

    /// The names of members whose contents the producer chooses.
    private static let own: Set = ["custom", "labels", "content_state", "content-state", "attributes"]

    private static func misspellings(_ name: String) -> [String] {
        let words = name.split { $0 == "_" || $0 == "-" }
        let camel = words.enumerated().map { $0 == 0 ? String($1) : $1.prefix(1).uppercased() + $1.dropFirst() }
            .joined()
        var others = [
            camel, name.prefix(1).uppercased() + name.dropFirst(), name.replacing("_", with: "-"),
            name.replacing("-", with: "_"), words.joined(), name.uppercased(),
        ]
        // A name that is similar to a shorter name may have another meaning.
        if name.utf8.count >= 5 {
            let letters = Array(name)
            let middle = letters.count / 2
            others.append(String(letters[..<middle] + letters[(middle + 1)...]))
            others.append(String(letters[...middle] + letters[middle...]))
            var swapped = letters
            swapped.swapAt(middle, middle - 1)
            others.append(String(swapped))
        }
        return Array(Set(others)).filter { $0 != name }
    }

    /// Returns other values, most of another type.
    private static func others(_ value: Any) -> [Any] {
        var others: [Any] = ["x", 7, 1_795_000_000_000 as Int64, -1, 0.5, true, [value], ["x": 1], "\(value)", ""]
        if let text = value as? String { others += [text.uppercased(), text + "x", " " + text] }
        return others
    }

    /// Returns copies of the object. In each copy one member, of the object or of an object in it, is renamed or changed.
    private static func broken(_ object: [String: Any], _ path: String = "") -> [(what: String, object: [String: Any])]
    {
        var found: [(String, [String: Any])] = []
        for (name, value) in object.sorted(by: { $0.key < $1.key }) {
            let here = path.isEmpty ? name : "\(path).\(name)"
            for other in misspellings(name) {
                var changed = object
                changed[name] = nil
                changed[other] = value
                found.append(("\(here) as \(other)", changed))
            }
            for other in others(value) {
                var changed = object
                changed[name] = other
                found.append(("\(here) is \(other)", changed))
            }
            guard let inner = value as? [String: Any], !own.contains(name) else { continue }
            for (what, part) in broken(inner, here) {
                var changed = object
                changed[name] = part
                found.append((what, changed))
            }
        }
        return found
    }

    private static func sent(_ job: Job) -> [String] {
        let app = RoutedApp(
            AppConfiguration(name: "default", topic: "com.example.app", credential: .providerTokens([])))
        guard let notification = try? app.notification(for: job, identity: ByteBuffer(string: "i"), firstSeen: now)
        else { return [] }
        let tokens = job.tokens.map { $0.map { String(buffer: job.text($0)) } } ?? []
        let payload = (try? JSONSerialization.jsonObject(with: Data(notification.payload.readableBytesView))) ?? [:]
        let sorted = try? JSONSerialization.data(withJSONObject: payload, options: .sortedKeys)
        return tokens + [
            String(decoding: sorted ?? Data(), as: UTF8.self), String(buffer: notification.deviceToken.hex),
            String(buffer: notification.topic),
            "\(notification.pushType) \(notification.priority ?? 0) \(notification.expiration ?? -1)",
            notification.collapseID.map { String(buffer: $0) } ?? "", notification.apnsID.map { "\($0)" } ?? "",
            "\(job.isForProduction) \(job.isForSandbox)",
            "\(job.maxAttempts ?? 0) \(job.sendAt ?? 0) \(job.uniqueFor ?? 0) \(job.onUncertain) \(job.collapsesDuplicates)",
            "\(job.registeredAt ?? 0) \(job.enqueuedAt ?? 0) \(job.keepsResult) \(job.trace.map { "\($0)" } ?? "")",
            [job.id, job.app, job.campaign, job.labels].map { $0.map { String(buffer: job.text($0)) } ?? "" }.joined(
                separator: " "),
        ]
    }

    @Test("with one mistake in a valid job: none goes out as something else in silence")
    func oneMistake() throws {
        var (count, silent) = (0, 0)
        var different: [String] = []
        for text in Self.valid {
            let data = Data(text.utf8)
            let object = try #require(try JSONSerialization.jsonObject(with: data) as? [String: Any])
            let original = JobCheck.review(ByteBuffer(bytes: data), as: .native, now: Self.now)
            #expect(
                original.defect == nil && original.hints.isEmpty, "\(text): \(original.defect ?? "") \(original.hints)")
            let meant = Self.sent(try #require(original.job))
            for (what, changed) in Self.broken(object) {
                count += 1
                let body = ByteBuffer(bytes: try JSONSerialization.data(withJSONObject: changed))
                let review = JobCheck.review(body, as: .native, now: Self.now)
                if review.defect != nil || !review.hints.isEmpty { continue }
                silent += 1
                guard let job = review.job, Self.sent(job) != meant else { continue }
                different.append(what)
            }
        }
        #expect(count > 2000 && silent < count / 2, "\(silent) of \(count)")
        // Only the producer knows the right value of a text or a number.
        let unexpected = different.filter { what in !Self.anyValue.contains { what.hasPrefix("\($0) is ") } }
        #expect(unexpected.isEmpty, "\(unexpected.prefix(60).joined(separator: "\n"))")
    }

    // MARK: Settings of other systems

    /// A place in a job or its payload for settings of another system.
    private struct Place {
        let name: String
        /// True if the app's own data may be there, so that only names of APNs' headers are settings.
        let isOfApp: Bool
        let job: ([String: Any]) -> [String: Any]
    }

    private static var places: [Place] {
        let plain: [String: Any] = ["token": token, "alert": "x"]
        func with(_ name: String, _ value: Any) -> [String: Any] {
            var job = plain
            job[name] = value
            return job
        }
        func payload(_ setting: [String: Any], inAPS: Bool) -> [String: Any] {
            var aps: [String: Any] = ["alert": "x"]
            var payload = inAPS ? [:] : setting
            if inAPS { aps.merge(setting) { $1 } }
            payload["aps"] = aps
            return ["token": token, "payload": payload]
        }
        let own = [
            Place(name: "beside short forms", isOfApp: false) { plain.merging($0) { $1 } },
            Place(name: "beside the payload", isOfApp: false) { payload([:], inAPS: true).merging($0) { $1 } },
            Place(name: "in aps", isOfApp: false) { payload($0, inAPS: true) },
            Place(name: "beside aps", isOfApp: true) { payload($0, inAPS: false) },
            Place(name: "custom", isOfApp: true) { with("custom", $0) },
            Place(name: "payload.headers", isOfApp: true) { payload(["headers": $0], inAPS: false) },
        ]
        let nested = [("apns", "headers"), ("apns", "payload"), ("webpush", "headers")].map { outer, inner in
            Place(name: "\(outer).\(inner)", isOfApp: inner == "payload") { with(outer, [inner: $0] as [String: Any]) }
        }
        let beside = ["headers", "apns", "android", "webpush", "options", "message"].map { name in
            Place(name: name, isOfApp: false) { with(name, $0) }
        }
        return own + nested + beside
    }

    /// The names of each setting in other systems, and values that are not the default.
    private static var settings: [(names: [String], values: [Any])] {
        [
            (["apns-topic", "apns_topic", "apnsTopic", "APNS-TOPIC", "bundle_id", "bundleId"], ["com.example.other"]),
            (["apns-push-type", "apns_push_type", "apnsPushType", "push-type", "pushType"], ["background", "voip"]),
            (["apns-priority", "apns_priority", "apnsPriority"], [5, "5", "high", "normal"]),
            (
                [
                    "apns-expiration", "apns_expiration", "ttl", "TTL", "time_to_live", "timeToLive", "expiry",
                    "expires_at",
                ],
                [3600, "3600", "3600s", 1_795_003_600]
            ),
            (["apns-collapse-id", "apns_collapse_id", "collapse_key", "collapseKey", "collapse-id"], ["c"]),
            (["apns-id", "apns_id", "apnsId"], ["b0bfc6b5-8974-8cff-af1f-221ad60bc293"]),
            (["apns-environment", "apns_environment", "environment", "sandbox", "development"], ["sandbox", true, 1]),
        ]
    }

    @Test("with a setting of another system in any place: none is ignored in silence")
    func foreignSettings() throws {
        var (count, ignored) = (0, [String]())
        for place in Self.places {
            let plain = try JSONSerialization.data(withJSONObject: place.job([:]))
            let without = Self.sent(try JobDecoder.decode(ByteBuffer(bytes: plain)))
            for (names, values) in Self.settings {
                for name in names where !place.isOfApp || name.lowercased().hasPrefix("apns") {
                    for value in values {
                        count += 1
                        let body = try JSONSerialization.data(withJSONObject: place.job([name: value]))
                        let review = JobCheck.review(ByteBuffer(bytes: body), as: .native, now: Self.now)
                        guard review.defect == nil, review.hints.isEmpty, let job = review.job else { continue }
                        // A member of the job itself is not foreign.
                        if Self.sent(job) == without || place.isOfApp {
                            ignored.append("\(place.name): \(name) \(value)")
                        }
                    }
                }
            }
        }
        #expect(
            count > 800 && ignored.isEmpty,
            "\(ignored.count) of \(count): \(ignored.prefix(40).joined(separator: "\n"))")
    }

    /// The members that can have other values of the same type.
    private static let anyValue: [String] = {
        let texts = [
            "id", "app", "topic", "collapse_id", "apns_id", "campaign", "token", "channel", "thread_id", "category",
            "target_content_id", "filter_criteria", "attributes_type", "mdm", "sound", "alert", "sound.name",
        ]
        let numbers = [
            "badge", "sound.volume", "max_attempts", "relevance_score", "send_at", "registered_at", "enqueued_at",
            "stale_date", "timestamp", "dismissal_date",
        ]
        let alert = ["title", "subtitle", "body", "launch_image", "title_loc_key", "loc_key", "action_loc_key"]
        let aps = [
            "alert", "badge", "sound", "thread-id", "category", "target-content-id", "filter-criteria",
            "relevance-score", "stale-date", "timestamp", "dismissal-date", "sound.name", "sound.volume",
            "sound.critical", "attributes-type", "encryptedData", "sessionIdentifier",
            "keyID", "messageIndex", "alert.title", "alert.body",
        ]
        return texts + numbers + alert.map { "alert.\($0)" } + aps.map { "payload.aps.\($0)" }
            + ["custom", "content_state", "attributes", "payload.aps.content-state", "payload.aps.attributes"]
    }()
}
