import NIOCore
import PushJob

/// A notification of rpush for APNs, to predict what would happen to the job that says the same.
///
/// Sources: rpush 9.2, `client/redis/notification.rb`, `client/active_model/apns/notification.rb` and
/// `daemon/apnsp8/delivery.rb`; modis 4, `persistence.rb`: each field of a hash is a value of MessagePack, and fields
/// with their default values are omitted.
///
/// The job is what rpush sends, not what the notification says: over HTTP/2, rpush sends `apns-priority` 10 and
/// `apns-expiration` 0 unless `data` has `headers`.
package struct RpushNotification {
    /// The reason why a notification can't be read.
    package struct Unreadable: Error, Equatable, CustomStringConvertible {
        /// One sentence without the notification's values.
        package let description: String

        /// The forecast of the notification.
        package var forecast: JobForecast {
            JobForecast(findings: [.init(.notSent, "unreadable", description)])
        }
    }

    /// The fields as JSON texts. Those that are null are left out.
    private var fields: [String: ByteBuffer]
    /// True if it comes from Redis, where rpush does not wait for `deliver_after`.
    private let isFromRedis: Bool

    /// Reads the fields of a hash in Redis.
    /// - Parameter hash: names and values.
    package init(hash: [(name: String, value: ByteBuffer)]) throws(Unreadable) {
        fields = [:]
        isFromRedis = true
        // The default, which is not stored.
        fields["sound"] = ByteBuffer(string: #""default""#)
        for (name, value) in hash {
            do throws(MessagePackText.Malformed) {
                fields[name] = try MessagePackText.json(value)
            } catch {
                throw Unreadable(description: "its `\(Self.known(name))` can't be read: \(error)")
            }
        }
        removeNulls()
    }

    /// Reads a row of the table `rpush_notifications` as a JSON object. It may have the `bundle_id` of its app.
    /// - Parameter row: the names of the columns and their values.
    package init(row: ByteBuffer) throws(Unreadable) {
        fields = [:]
        isFromRedis = false
        do throws(JSONError) {
            for (name, value) in try JSONMembers.read(row) ?? [] { fields[name] = value }
        } catch {
            throw Unreadable(description: "the row is not JSON: \(error)")
        }
        guard !fields.isEmpty else { throw Unreadable(description: "the row is not a JSON object with members") }
        for name in ["alert", "sound"] {
            // Tables of older versions have no such column.
            let isJSON = fields["\(name)_is_json"].map(Self.isTrue)
            guard isJSON ?? true, let text = text(name) else { continue }
            let inner = ByteBuffer(string: text)
            if JSONMembers.isJSON(inner) {
                fields[name] = inner
            } else if isJSON == true {
                throw Unreadable(description: "its `\(name)` is not JSON")
            }
        }
        for name in ["data", "url_args"] {
            if let text = text(name) { fields[name] = ByteBuffer(string: text) }
        }
        removeNulls()
    }

    private mutating func removeNulls() { fields = fields.filter { $0.value != ByteBuffer(string: "null") } }

    /// The ID of the notification, in decimal.
    package var id: String? { fields["id"].map { String(buffer: $0) } }

    /// The ID of the app, in decimal; `nil` if the notification has none.
    package var appID: String? {
        fields["app_id"].map { String(buffer: $0) }.flatMap { Int64($0) == nil ? nil : $0 }
    }

    /// Reads the text of a field of another hash, such as the `bundle_id` of an app.
    /// - Returns: `nil` if it is not a text.
    package static func text(ofField value: ByteBuffer) -> String? {
        guard let json = try? MessagePackText.json(value) else { return nil }
        return JSONMembers.text(json)
    }

    // MARK: Fields

    /// The names that can be in a message; others are the producer's.
    private static func known(_ name: String) -> String {
        ["alert", "sound", "badge", "data", "category", "thread_id", "url_args", "device_token", "type"].contains(name)
            ? name : "…"
    }

    private func text(_ name: String) -> String? { fields[name].flatMap(JSONMembers.text) }

    private static func isTrue(_ value: ByteBuffer) -> Bool {
        value == ByteBuffer(string: "true") || value == ByteBuffer(string: "1")
    }

    private func isTrue(_ name: String) -> Bool { fields[name].map(Self.isTrue) ?? false }

    private func integer(_ name: String) -> Int64? { fields[name].flatMap { Int64(String(buffer: $0)) } }

    /// Returns a time as rpush or a database writes it, in milliseconds since 1970: a list of seven parts, or a text,
    /// which is in UTC if it has no offset.
    private func time(_ name: String) -> Int64? {
        guard let value = fields[name] else { return nil }
        guard var text = text(name) else {
            let parts = String(buffer: value).split { "[],\" ".contains($0) }.map(String.init)
            guard parts.count == 7 else { return nil }
            let two = parts.map { $0.count == 1 ? "0" + $0 : $0 }
            return JobTime.milliseconds(
                "\(two[0])-\(two[1])-\(two[2])T\(two[3]):\(two[4]):\(two[5])\(two[6])")
        }
        if text.hasSuffix(" UTC") { text = String(text.dropLast(4)) }
        return JobTime.milliseconds(text) ?? JobTime.milliseconds(text + "Z")
    }

    // MARK: The job

    /// The protocol over which rpush sends.
    private enum Service { case binary, http2 }

    private var service: Service? {
        let path = (text("type") ?? "").split(separator: "::")
        guard path.count > 1, path.last == "Notification" else { return nil }
        return switch path[path.count - 2] {
        case "Apns": .binary
        case "Apns2", "Apnsp8": .http2
        default: nil
        }
    }

    /// Returns the reason for which rpush would not send it through APNs.
    var skipped: JobForecast.Finding? {
        if isTrue("delivered") || isTrue("failed") {
            return .init(.skipped, "ended", "rpush has delivered it, or has ended it as failed")
        }
        if service == nil { return .init(.skipped, "other_service", "it is not a notification for APNs") }
        return nil
    }

    /// The names by which rpush stores options of a notification in `data`.
    private enum Mark {
        static let mdm = "__rpush_mdm__"
        static let mutableContent = "__rpush_mutable_content__"
        static let contentAvailable = "__rpush_content_available__"
    }

    /// The job that says what rpush sends, in the native format.
    struct Translation {
        var job = JSONMembers.Writer()
        var findings: [JobForecast.Finding] = []
    }

    /// Translates it to a job.
    /// - Parameters:
    ///   - topic: the `bundle_id` of its app.
    ///   - now: milliseconds since 1970.
    func translation(topic: String?, now: Int64) throws(Unreadable) -> Translation {
        var result = Translation()
        let isHTTP2 = service == .http2
        let data = try fields["data"].map { value throws(Unreadable) in try members(value, "data") } ?? []
        let headers = isHTTP2 ? try headers(data) : []
        if let id { result.job.write("id", text: id) }
        if let token = text("device_token") { result.job.write("token", text: token) }
        let given = Set(headers.map(\.name))
        if !given.contains("apns-topic"), let topic = topic ?? text("bundle_id") {
            result.job.write("topic", text: topic)
        }
        for (name, value) in headers {
            switch name {
            case "apns-topic": result.job.write("topic", text: value)
            case "apns-push-type": result.job.write("push_type", text: value)
            case "apns-collapse-id": result.job.write("collapse_id", text: value)
            case "apns-id": result.job.write("apns_id", text: value)
            case "apns-priority": result.job.write("priority", numberOrText: value)
            case "apns-expiration": result.job.write("expiration", numberOrText: value)
            default:
                result.findings.append(
                    .init(.different, "header", "its `data` has a header that jobs do not have, which is not sent"))
            }
        }
        if isHTTP2 {
            addDefaults(given, &result)
        } else {
            result.job.write("expiration", numberOrText: integer("expiry").map { "\(now / 1000 + $0)" } ?? "0")
            if let priority = fields["priority"] { result.job.write("priority", json: priority) }
        }
        let payload = try payload(data, isHTTP2: isHTTP2)
        if isHTTP2, payload.isBackground, !given.contains("apns-push-type") {
            result.findings.append(
                .init(
                    .different, "push_type",
                    "rpush sends no `apns-push-type`; it would be sent as push type background, with priority 5"))
        }
        result.job.write("payload", json: payload.text)
        addTimes(now, &result)
        return result
    }

    /// Adds the values that rpush sends over HTTP/2 unless `data` has headers for them.
    private func addDefaults(_ given: Set<String>, _ result: inout Translation) {
        if !given.contains("apns-expiration") {
            result.job.write("expiration", numberOrText: "0")
            if let expiry = integer("expiry"), expiry != Self.defaultExpiry {
                result.findings.append(
                    .init(
                        .different, "expiry",
                        "rpush does not send its `expiry` over HTTP/2, but `apns-expiration` 0; a job's `expiration` is sent"
                    ))
            }
        }
        if !given.contains("apns-priority"), let priority = integer("priority"), priority != 10 {
            result.findings.append(
                .init(
                    .different, "priority",
                    "rpush does not send its `priority` over HTTP/2, but 10; a job's `priority` is sent"))
        }
    }

    /// A day, in seconds.
    private static let defaultExpiry: Int64 = 86_400

    private func addTimes(_ now: Int64, _ result: inout Translation) {
        if let due = time("deliver_after"), due > now {
            result.job.write("send_at", numberOrText: "\(due / 1000)")
            // A retry has its time in the sorted set of retries.
            if isFromRedis, integer("retries") ?? 0 == 0 {
                result.findings.append(
                    .init(
                        .different, "deliver_after",
                        "rpush ignores its `deliver_after` in Redis and sends it at once; a job waits for its `send_at`"
                    ))
            }
        }
        if fields["fail_after"] != nil {
            result.findings.append(
                .init(
                    .different, "fail_after",
                    "jobs have nothing like its `fail_after`; an `expiration` also ends the time for which APNs stores it"
                ))
        }
    }

    // MARK: Payload

    private func payload(
        _ data: [(name: String, value: ByteBuffer)], isHTTP2: Bool
    ) throws(Unreadable) -> (text: ByteBuffer, isBackground: Bool) {
        var payload = JSONMembers.Writer()
        if let magic = data.last(where: { $0.name == Mark.mdm }) {
            payload.write("mdm", json: magic.value)
            return (payload.text, false)
        }
        var aps = JSONMembers.Writer()
        var shows = false
        for (name, member) in [
            ("alert", "alert"), ("badge", "badge"), ("sound", "sound"), ("category", "category"),
            ("url_args", "url-args"), ("thread_id", "thread-id"),
        ] {
            guard let value = fields[name], value != ByteBuffer(string: "false") else { continue }
            // A table has YAML here.
            guard JSONMembers.isJSON(value) else { throw Unreadable(description: "its `\(name)` is not JSON") }
            aps.write(member, json: value)
            if ["alert", "badge", "sound"].contains(name) { shows = true }
        }
        func isMarked(_ mark: String) -> Bool { data.contains { $0.name == mark && JSONMembers.isTruthy($0.value) } }
        if isMarked(Mark.mutableContent) { aps.write("mutable-content", numberOrText: "1") }
        let isContentAvailable = isMarked(Mark.contentAvailable)
        if isContentAvailable { aps.write("content-available", numberOrText: "1") }
        let own = data.last { $0.name == "aps" }
        payload.write("aps", json: own?.value ?? aps.text)
        for (name, value) in data
        where name != "aps" && name != Mark.mutableContent && name != Mark.contentAvailable
            && !(isHTTP2 && name == "headers")
        {
            payload.write(name, json: value)
        }
        return (payload.text, isContentAvailable && !shows && own == nil)
    }

    /// Returns the members of an object.
    private func members(
        _ value: ByteBuffer, _ name: String
    ) throws(Unreadable) -> [(name: String, value: ByteBuffer)] {
        do throws(JSONError) {
            if let members = try JSONMembers.read(value) { return members }
        } catch {
            throw Unreadable(description: "its `\(name)` is not JSON: \(error)")
        }
        throw Unreadable(description: "its `\(name)` is not an object")
    }

    /// Returns the HTTP/2 headers in `data`, with their values as texts.
    private func headers(
        _ data: [(name: String, value: ByteBuffer)]
    ) throws(Unreadable) -> [(name: String, value: String)] {
        guard let headers = data.last(where: { $0.name == "headers" })?.value, JSONMembers.isTruthy(headers) else {
            return []
        }
        return try members(headers, "headers").map { name, value in
            (name.lowercased(), JSONMembers.text(value) ?? String(buffer: value))
        }
    }

    // MARK: Forecast

    /// Predicts what would happen to the job that says what rpush sends for the notification.
    /// - Parameters:
    ///   - check: the check of the job.
    ///   - topic: the `bundle_id` of its app.
    ///   - now: milliseconds since 1970.
    package func forecast(by check: JobCheck, topic: String? = nil, now: Int64) -> JobForecast {
        if let skipped { return JobForecast(findings: [skipped]) }
        do throws(Unreadable) {
            let translation = try translation(topic: topic, now: now)
            var forecast = check.forecast(translation.job.text, now: now)
            forecast.findings += translation.findings
            return forecast
        } catch {
            return error.forecast
        }
    }
}
