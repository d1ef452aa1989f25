import ArgumentParser
import COpenSSL
import FoundationEssentials
import NIOCore
import NIOHTTP1
import Operations
import PrintableText
import PushQueue
import TLS

/// A URL to which results are posted, signed according to the specification "Standard Webhooks": the headers
/// `webhook-id`, `webhook-timestamp` and `webhook-signature`, the last with the HMAC-SHA256 of
/// `<id>.<timestamp>.<body>` in base64.
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
            if case .unreachable = failure { return .unreachable("\(failure)") }
            return .failed("\(failure)")
        } catch {
            return .unreachable("\(error)")
        }
    }

    private static func reception(_ answer: HTTPExchange.Answer) -> ResultReception {
        let problem = "it answered \(answer.status)"
        switch answer.status {
        case 200..<300: return .accepted
        case 300..<400: return .failed("\(problem); redirections are not followed")
        // These statuses concern the sender, the URL or the rate, not the results.
        case 401, 403, 404, 405, 407, 408, 409, 421, 425, 429: break
        case 400..<500: return .refused(problem)
        default: break
        }
        return .failed(problem, retryAfter: answer.retryAfter.map { min(max(0, $0), 3600) * 1000 })
    }

    /// Returns the identifier of a batch, which is the same for the same results, so that a receiver recognizes a
    /// repetition.
    private static func identifier(of batch: ResultBatch) -> String {
        var text = ByteBuffer(string: batch.queue)
        for result in batch.results { text.writeString(" \(result.id)") }
        let digest = WebhookSecret.authenticationCode(of: text, key: Array("apns-worker".utf8))
        return digest.prefix(16).hex
    }
}

/// The secret with which requests are signed. Its descriptions never include its contents.
struct WebhookSecret: Sendable, CustomStringConvertible, CustomReflectable {
    private let key: [UInt8]

    /// - Parameter text: `whsec_` and base64, or any text of at least 16 bytes.
    /// - Throws: `ValidationError`.
    init(_ text: String) throws {
        let text = text.trimmed
        if text.hasPrefix("whsec_") {
            guard let bytes = Data(base64Encoded: String(text.dropFirst(6))) else {
                throw ValidationError("the webhook's secret begins with whsec_, and the rest is not base64")
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
