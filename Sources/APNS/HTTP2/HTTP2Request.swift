/// A request other than a notification, with any method. A session for it sends nothing else.
struct HTTP2Request: Sendable {
    var method: String
    var authority: String
    var path: String
    /// The fields after the pseudo-header fields.
    var headers: [(name: String, value: String)] = []
    /// A request without a body ends with its HEADERS.
    var body: [UInt8] = []

    private var fields: [(name: String, value: String)] {
        [(":method", method), (":scheme", "https"), (":authority", authority), (":path", path)] + headers
    }

    /// An upper bound for the size of the encoded fields in bytes.
    var bound: Int { fields.reduce(0) { $0 + $1.name.utf8.count + $1.value.utf8.count + 16 } }

    func write(_ encoder: borrowing HPACKEncoder, _ writer: inout ByteWriter) {
        for field in fields { encoder.writeUnindexed(field.name, field.value, &writer) }
    }
}
