import ArgumentParser
import COpenSSL
import FoundationEssentials
import NIOCore
import NIOHTTP1
import Operations
import PrintableText
import PushQueue
import TLS

/// A URL that gets results in signed requests, by the specification "Standard Webhooks". The headers are `webhook-id`, `webhook-timestamp`
/// and `webhook-signature`: the HMAC-SHA256 of `<id>.<timestamp>.<body>` in base64.
struct Webhook: ResultReceiver {
    let post: HTTPPost
    let secret: Renewable<WebhookSecret>

    /// The scheme, host and port.
    var description: String { post.description }

    func hand(over batch: ResultBatch) async -> ResultReception {
        let body = batch.document
        let id = Self.identifier(of: batch)
        let timestamp = "\(Moment.now / 1000)"
        let headers: HTTPHeaders = [
            "webhook-id": id, "webhook-timestamp": timestamp,
            "webhook-signature": secret.current.signature(id: id, timestamp: timestamp, body: body),
        ]
        do {
            return Self.reception(try await post.send(body, headers: headers))
        } catch let failure as HTTPExchange.Failure {
            if case .unreachable = failure { return .unavailable("\(failure)") }
            return .failed("\(failure)")
        } catch {
            return .unavailable("\(error)")
        }
    }

    /// The meaning of an answer. `CallbackTests` and docs/results.md have the same table.
    private static func reception(_ answer: HTTPExchange.Answer) -> ResultReception {
        let problem = "it answered \(answer.status)"
        let retryAfter = answer.retryAfter.map { min($0, 3600) * 1000 }
        return switch answer.status {
        case 200..<300: .accepted
        case 300..<400: .failed("\(problem); redirections are not followed")
        // The fault is in these results.
        case 400, 413, 415, 422: .refused(problem)
        // The fault is in the URL or the sender, whatever the results are.
        case 401, 403, 404, 410: .closed(problem)
        // The problem is the rate or the time, not the results.
        case 408, 425, 429: .unavailable(problem, retryAfter: retryAfter)
        // A server error, or a condition that may end, such as 402 or 451. A result is at fault only if it fails while others are accepted.
        default: .failed(problem, retryAfter: retryAfter)
        }
    }

    /// Returns the identifier of a batch, which is the same for the same results, so that a receiver recognizes a repetition.
    private static func identifier(of batch: ResultBatch) -> String {
        var text = ByteBuffer(string: batch.queue)
        for result in batch.results { text.writeString(" \(result.id)") }
        let digest = WebhookSecret.authenticationCode(of: text, key: Array("apns-worker".utf8))
        return digest.prefix(16).hex
    }
}

/// The secret that signs requests. Its descriptions never include its contents.
struct WebhookSecret: Sendable, CustomStringConvertible, CustomReflectable {
    private let key: [UInt8]

    /// - Parameter text: `whsec_` and base64, or any text of at least 16 bytes.
    /// - Throws: `ValidationError`.
    init(_ text: String) throws {
        let text = text.trimmed
        if text.hasPrefix("whsec_") {
            guard let bytes = Data(base64Encoded: String(text.dropFirst(6))) else {
                throw ValidationError("the webhook's secret is not base64 after whsec_")
            }
            key = Array(bytes)
        } else {
            key = Array(text.utf8)
        }
        guard key.count >= 16 else {
            throw ValidationError(
                "the webhook's secret has fewer than 16 bytes; make one with: echo whsec_$(openssl rand -base64 32)")
        }
    }

    /// Returns the value of `webhook-signature`.
    func signature(id: String, timestamp: String, body: ByteBuffer) -> String {
        var signed = ByteBuffer(string: "\(id).\(timestamp).")
        signed.writeImmutableBuffer(body)
        return "v1," + Data(Self.authenticationCode(of: signed, key: key)).base64EncodedString()
    }

    /// Returns the HMAC-SHA256 of a message.
    static func authenticationCode(of message: ByteBuffer, key: [UInt8]) -> [UInt8] {
        var code = [UInt8](repeating: 0, count: 32)
        var length = 0
        let pointer = message.withUnsafeReadableBytes { bytes in
            EVP_Q_mac(
                nil, "HMAC", nil, "SHA256", nil, key, key.count, bytes.baseAddress?.assumingMemoryBound(to: UInt8.self),
                bytes.count, &code, code.count, &length)
        }
        precondition(pointer != nil && length == code.count, "OpenSSL has no HMAC-SHA256")
        return code
    }

    /// A placeholder, which hides the secret.
    var description: String { "(not shown)" }
    /// An empty mirror, which hides the secret.
    var customMirror: Mirror { Mirror(self, children: []) }
}
