import NIOCore
import PushJob
import PushQueue

/// A result in the output of commands.
package struct ResultLine {
    package let queue: String
    package let result: StoredResult

    package init(queue: String, result: StoredResult) {
        self.queue = queue
        self.result = result
    }

    /// Returns the JSON object with the token in another form.
    package func json(token: (String) -> String) -> String {
        var json = ByteBuffer()
        guard let text = result["token"] else {
            writeJSON(to: &json)
            return String(buffer: json)
        }
        let fields = result.fields.map { ($0.name, $0.name == "token" ? ByteBuffer(string: token(text)) : $0.value) }
        ResultLine(queue: queue, result: StoredResult(entry: result.entry, index: result.index, fields: fields))
            .writeJSON(to: &json)
        return String(buffer: json)
    }

    /// Appends a JSON object: the known fields, `queue`, and `entry`, which is unique in a queue. `at` is in
    /// milliseconds since 1970.
    /// - Parameter others: members to omit.
    package func writeJSON(to json: inout ByteBuffer, without others: Set<String> = []) {
        let start = json.writerIndex
        json.writeString("{\"queue\":")
        json.writeJSONString(queue)
        if !others.contains("entry") {
            json.writeString(",\"entry\":")
            json.writeJSONString(result.id)
        }
        for (name, value) in result.fields where value.readableBytes > 0 && !others.contains(name) {
            json.writeString(",")
            json.writeJSONString(name == "time" ? "at" : name)
            json.writeString(":")
            if Self.isPlain(name, value) { json.writeImmutableBuffer(value) } else { json.writeJSONString(value) }
        }
        json.writeString("}")
        let line = json.viewBytes(at: start, length: json.writerIndex - start)
        guard let line, line.contains(where: { $0 >= 0x7F }) else { return }
        let escaped = JSONLine.escaped(String(decoding: line, as: UTF8.self))
        json.moveWriterIndex(to: start)
        json.writeString(escaped)
    }

    /// Returns true for a value that is JSON itself. The value is validated, because any producer can write to the
    /// stream.
    private static func isPlain(_ name: String, _ value: ByteBuffer) -> Bool {
        switch name {
        case "status", "attempt", "time":
            return Int(String(buffer: value)).map { "\($0)" == String(buffer: value) } ?? false
        case "labels", "report":
            guard value.readableBytesView.first == UInt8(ascii: "{") else { return false }
            return value.withUnsafeReadableBytes { bytes in
                do throws(JSONError) {
                    try JSONScanner.validate(bytes)
                    return !bytes.contains(0x0A) && !bytes.contains(0x0D)
                } catch {
                    return false
                }
            }
        default: return false
        }
    }
}
