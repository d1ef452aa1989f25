import CNghttp2

/// The HPACK decoder of the scripted peer.
final class HeaderDecoder {
    private var inflater: OpaquePointer?

    struct Failure: Error {
        var code: Int
    }

    init() { nghttp2_hd_inflate_new(&inflater) }

    deinit { nghttp2_hd_inflate_del(inflater) }

    /// Sets SETTINGS_HEADER_TABLE_SIZE.
    func limit(_ size: Int) { nghttp2_hd_inflate_change_table_size(inflater, size) }

    func decode(_ block: [UInt8]) throws -> [HeaderField] {
        var fields: [HeaderField] = []
        try block.withUnsafeBufferPointer { block in
            var position = 0
            while true {
                var field = nghttp2_nv()
                var flags: Int32 = 0
                let taken = nghttp2_hd_inflate_hd2(
                    inflater, &field, &flags, block.baseAddress.map { $0 + position }, block.count - position, 1)
                guard taken >= 0 else { throw Failure(code: taken) }
                position += taken
                if flags & Int32(NGHTTP2_HD_INFLATE_EMIT.rawValue) != 0 {
                    let text = { (start: UnsafeMutablePointer<UInt8>?, count: Int) in
                        String(decoding: UnsafeBufferPointer(start: start, count: count), as: UTF8.self)
                    }
                    fields.append(
                        HeaderField(
                            name: text(field.name, field.namelen), value: text(field.value, field.valuelen),
                            isNeverIndexed: field.flags & UInt8(NGHTTP2_NV_FLAG_NO_INDEX.rawValue) != 0))
                }
                if flags & Int32(NGHTTP2_HD_INFLATE_FINAL.rawValue) != 0 { break }
            }
        }
        nghttp2_hd_inflate_end_headers(inflater)
        return fields
    }
}
