import CNghttp2

/// An HPACK decoder by nghttp2.
final class HeaderDecoder {
    private(set) var inflater: OpaquePointer?

    struct Failure: Error {
        var code: Int
    }

    init() { nghttp2_hd_inflate_new(&inflater) }

    deinit { nghttp2_hd_inflate_del(inflater) }

    func limit(_ size: Int) { nghttp2_hd_inflate_change_table_size(inflater, size) }

    func decode(_ block: [UInt8]) throws(Failure) -> [HeaderField] {
        try decodeBytes(block).map {
            HeaderField(
                name: String(decoding: $0.name, as: UTF8.self), value: String(decoding: $0.value, as: UTF8.self),
                isNeverIndexed: $0.isNeverIndexed)
        }
    }

    func decodeBytes(
        _ block: [UInt8]
    ) throws(Failure) -> [(name: [UInt8], value: [UInt8], isNeverIndexed: Bool)] {
        var fields: [(name: [UInt8], value: [UInt8], isNeverIndexed: Bool)] = []
        var (position, flags) = (0, Int32(0))
        while flags & Int32(NGHTTP2_HD_INFLATE_FINAL.rawValue) == 0 {
            var field = nghttp2_nv()
            let taken = block.withUnsafeBufferPointer {
                nghttp2_hd_inflate_hd2(
                    inflater, &field, &flags, $0.baseAddress.map { $0 + position }, $0.count - position, 1)
            }
            guard taken >= 0 else { throw Failure(code: taken) }
            position += taken
            guard flags & Int32(NGHTTP2_HD_INFLATE_EMIT.rawValue) != 0 else { continue }
            fields.append(
                (
                    Array(UnsafeBufferPointer(start: field.name, count: field.namelen)),
                    Array(UnsafeBufferPointer(start: field.value, count: field.valuelen)),
                    field.flags & UInt8(NGHTTP2_NV_FLAG_NO_INDEX.rawValue) != 0
                ))
        }
        nghttp2_hd_inflate_end_headers(inflater)
        return fields
    }
}
