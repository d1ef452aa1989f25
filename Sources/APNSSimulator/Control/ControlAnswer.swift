import FoundationEssentials
import HTTPTypes
import Hummingbird

/// Answers in JSON.
enum ControlAnswer {
    static func json(_ value: some Encodable, status: HTTPResponse.Status = .ok) throws -> Response {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        return json(bytes: Array(try encoder.encode(value)), status: status)
    }

    /// - Parameter bytes: the answer, which is JSON already.
    static func json(bytes: [UInt8], status: HTTPResponse.Status = .ok) -> Response {
        // A line's end, so that a terminal's next prompt begins on a line of its own.
        Response(
            status: status, headers: [.contentType: "application/json"],
            body: ResponseBody(byteBuffer: ByteBuffer(bytes: bytes + [0x0A])))
    }
}
