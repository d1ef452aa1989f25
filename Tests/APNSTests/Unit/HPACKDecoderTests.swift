import Foundation
import TestSupport
import Testing

@testable import APNS

@Suite("HPACK decoder", .timeLimit(.minutes(10)))
struct HPACKDecoderTests {
    private typealias Field = HPACKComparison.Field

    // MARK: RFC 7541, Appendix C

    struct Example: Sendable, CustomTestStringConvertible {
        var section: String
        var blocks: [Block]
        var tableSize = 4096
        var testDescription: String { section }
    }

    struct Block: Sendable {
        var bytes: [UInt8]
        var fields: [String]
        /// The size of the table afterwards.
        var tableSize: Int

        init(_ hex: String, _ fields: [String], _ tableSize: Int) {
            let digits = hex.compactMap(\.hexDigitValue)
            bytes = stride(from: 0, to: digits.count, by: 2).map { UInt8(digits[$0] * 16 + digits[$0 + 1]) }
            (self.fields, self.tableSize) = (fields, tableSize)
        }
    }

    private static let requests: [[String]] = [
        [":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com"],
        [":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com", "cache-control: no-cache"],
        [
            ":method: GET", ":scheme: https", ":path: /index.html", ":authority: www.example.com",
            "custom-key: custom-value",
        ],
    ]
    private static let responses: [[String]] = [
        [
            ":status: 302", "cache-control: private", "date: Mon, 21 Oct 2013 20:13:21 GMT",
            "location: https://www.example.com",
        ],
        [
            ":status: 307", "cache-control: private", "date: Mon, 21 Oct 2013 20:13:21 GMT",
            "location: https://www.example.com",
        ],
        [
            ":status: 200", "cache-control: private", "date: Mon, 21 Oct 2013 20:13:22 GMT",
            "location: https://www.example.com", "content-encoding: gzip",
            "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
        ],
    ]

    static let examples: [Example] = [
        Example(
            section: "C.2.1",
            blocks: [
                Block(
                    "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572", ["custom-key: custom-header"],
                    55)
            ]),
        Example(section: "C.2.2", blocks: [Block("040c 2f73 616d 706c 652f 7061 7468", [":path: /sample/path"], 0)]),
        Example(
            section: "C.2.3", blocks: [Block("1008 7061 7373 776f 7264 0673 6563 7265 74", ["password: secret"], 0)]),
        Example(section: "C.2.4", blocks: [Block("82", [":method: GET"], 0)]),
        Example(
            section: "C.3",
            blocks: [
                Block("8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d", requests[0], 57),
                Block("8286 84be 5808 6e6f 2d63 6163 6865", requests[1], 110),
                Block("8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65", requests[2], 164),
            ]),
        Example(
            section: "C.4",
            blocks: [
                Block("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff", requests[0], 57),
                Block("8286 84be 5886 a8eb 1064 9cbf", requests[1], 110),
                Block("8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf", requests[2], 164),
            ]),
        Example(
            section: "C.5",
            blocks: [
                Block(
                    """
                    4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32
                    3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d
                    """, responses[0], 222),
                Block("4803 3330 37c1 c0bf", responses[1], 222),
                Block(
                    """
                    88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970
                    7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61
                    6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31
                    """, responses[2], 215),
            ], tableSize: 256),
        Example(
            section: "C.6",
            blocks: [
                Block(
                    """
                    4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad
                    1718 63c7 8f0b 97c8 e9ae 82ae 43d3
                    """, responses[0], 222),
                Block("4883 640e ffc1 c0bf", responses[1], 222),
                Block(
                    """
                    88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2
                    e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07
                    """, responses[2], 215),
            ], tableSize: 256),
    ]

    @Test("the RFC's examples are decoded, in parts of all sizes", arguments: examples)
    func appendixC(example: Example) throws {
        for part in 1...80 {
            let comparison = HPACKComparison()
            var prefix = HPACKScript.integer(example.tableSize, prefix: 5, pattern: 0x20)
            for block in example.blocks {
                let outcome = try comparison.decode(prefix + block.bytes, inPartsOf: part)
                let fields = block.fields.map { text in
                    // The first character may be the colon of a pseudo-header field.
                    let end = text.dropFirst().firstIndex(of: ":") ?? text.endIndex
                    return Field(name: String(text[..<end]), value: String(text[end...].dropFirst(2)))
                }
                #expect(outcome == .fields(fields) && comparison.tableSize == block.tableSize)
                prefix = []
            }
        }
    }

    // MARK: Violations

    struct Violation: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var outcome: HPACKComparison.Outcome
        /// All blocks except the last are valid.
        var blocks: [[UInt8]]

        init(_ testDescription: String, _ violation: HPACKViolation, _ blocks: [UInt8]...) {
            (self.testDescription, outcome, self.blocks) = (testDescription, .refused(violation), blocks)
        }
    }

    /// A field `x: y` that is added to the table.
    private static let added: [UInt8] = [0x40, 1, 0x78, 1, 0x79]

    static let violations: [Violation] = [
        Violation("§4.2: a change of the table's size after a field", .tableSize, [0x88, 0x20]),
        Violation("§5.1: an integer with too many bytes", .integer, [0xFF, 0x80, 0x80, 0x80, 0x80, 0x80, 0]),
        Violation("§5.1: an integer that overflows", .integer, [UInt8](repeating: 0xFF, count: 12)),
        Violation("§5.1: a string that is too long", .integer, [0, 0x7F, 0x82, 0xFF, 3]),
        Violation("§5.1: an integer without an end", .truncated, [0xFF, 0x80]),
        Violation("§5.2: a string beyond the block", .truncated, [0, 1, 0x78, 5, 0x79]),
        Violation("§5.2: a name beyond the block", .truncated, [0, 5, 0x78]),
        Violation("§5.2: no value", .truncated, [0, 1, 0x78]),
        Violation("§5.2: padding of more than seven bits", .padding, [0, 1, 0x78, 0x82, 0x07, 0xFF]),
        Violation("§5.2: only padding", .padding, [0, 1, 0x78, 0x81, 0xFF]),
        Violation("§5.2: padding with zeros", .padding, [0, 1, 0x78, 0x81, 0x18]),
        Violation("§5.2: half a code", .padding, [0, 1, 0x78, 0x82, 0xFF, 0xC0]),
        Violation("§5.2: the end-of-string symbol", .endOfString, [0, 1, 0x78, 0x84, 0xFF, 0xFF, 0xFF, 0xFF]),
        Violation(
            "§5.2: the end-of-string symbol after another", .endOfString,
            [0, 1, 0x78, 0x85, 0x1F, 0xFF, 0xFF, 0xFF, 0xFF]),
        Violation("§5.2: a name with the end-of-string symbol", .endOfString, [0, 0x84, 255, 255, 255, 255, 0]),
        Violation("§6.1: index 0", .index, [0x80]),
        Violation("§6.1: an index beyond the static table", .index, [0xBE]),
        Violation("§6.1: an index beyond the dynamic table", .index, added, [0xBE, 0xBF]),
        Violation("§6.1: the largest index", .index, [0xFF, 0x80, 0xFF, 0xFF, 0xFF, 0x0F]),
        Violation("§6.2.1: a name beyond the dynamic table", .index, [0x7E, 1, 0x79]),
        Violation("§6.2.2: a name beyond the dynamic table", .index, [0x0F, 62 - 15, 1, 0x79]),
        Violation("§6.3: a table larger than the setting", .tableSize, [0x3F, 0xE2, 0x1F]),
        Violation("§4.3: the index of an evicted entry", .index, added, [0x20, 0xBE]),
        Violation(
            "§4.4: an index after too large a field", .index, [0x3F, 33], added, tooLarge),
    ]

    /// A field that is larger than a table of 64 bytes, and the index of the newest entry.
    private static let tooLarge: [UInt8] = {
        var bytes: [UInt8] = [0x40, 0, 33]
        bytes.append(contentsOf: [UInt8](repeating: 0x20, count: 33))
        bytes.append(0xBE)
        return bytes
    }()

    @Test("a violation is refused for its reason, by nghttp2 too", arguments: violations)
    func violation(violation: Violation) throws {
        for part in [1, 2, 3, .max] {
            let comparison = HPACKComparison()
            for (number, block) in violation.blocks.enumerated() {
                let outcome = try comparison.decode(block, inPartsOf: part)
                if number == violation.blocks.count - 1 {
                    #expect(outcome == violation.outcome)
                } else if case .fields = outcome {
                } else {
                    Issue.record("block \(number): \(outcome)")
                }
            }
        }
    }

    @Test("§4.2: two changes of the table's size are accepted, a third is refused")
    func sizeChanges() throws {
        let comparison = HPACKComparison()
        #expect(try comparison.decode([0x20, 0x3F, 0xE1, 0x1F]) == .fields([]))
        #expect(try comparison.decode([0x20, 0x20, 0x88]) == .fields([Field(name: ":status", value: "200")]))
        #expect(try comparison.decode([0x20, 0x20, 0x20, 0x88]) == .refusedForSizeChanges)
    }

    @Test("§4.4: a field may have the name of the entry that it evicts, and one larger than the table empties it")
    func eviction() throws {
        let comparison = HPACKComparison()
        // The table is reduced to 64 bytes, which is one field with a value of 31 bytes.
        let value = [UInt8](repeating: 0x7A, count: 31)
        _ = try comparison.decode([0x3F, 33] + Self.added)
        #expect(
            try comparison.decode([0x7E, 31] + value) == .fields([Field(name: [0x78], value: value)]))
        #expect(comparison.tableSize == 64)
        #expect(
            try comparison.decode([0x7E, 32] + value + [0x7A])
                == .fields([Field(name: [0x78], value: value + [0x7A])]))
        #expect(comparison.tableSize == 0)
    }

    // MARK: The comparison with nghttp2

    private static let seeds = ProcessInfo.processInfo.environment["APNS_WORKER_HTTP2_SEEDS"].flatMap { Int($0) } ?? 200

    @Test("generated blocks are decoded as by nghttp2, with the same tables")
    func generated() throws {
        for seed in 0..<UInt64(Self.seeds) {
            var script = HPACKScript(seed: seed)
            let comparison = HPACKComparison()
            for number in 0..<20 {
                let (bytes, fields) = script.block()
                let part = [1, 2, 7, 100, .max][script.number(0..<5)]
                let outcome = try comparison.decode(bytes, inPartsOf: part)
                guard outcome == .fields(fields) else {
                    Issue.record("seed \(seed), block \(number): \(outcome)")
                    return
                }
            }
        }
    }

    @Test("damaged blocks are decoded or refused as by nghttp2")
    func damaged() throws {
        var refused: [HPACKViolation: Int] = [:]
        var accepted = 0
        for seed in 0..<UInt64(Self.seeds * 10) {
            var script = HPACKScript(seed: seed)
            let comparison = HPACKComparison()
            for _ in 0..<4 {
                let (bytes, _) = script.block()
                let damaged = script.damaged(bytes)
                let outcome: HPACKComparison.Outcome
                do throws(FuzzViolation) {
                    outcome = try comparison.decode(damaged, inPartsOf: [1, 5, .max][script.number(0..<3)])
                } catch {
                    Issue.record("seed \(seed): \(error), \(damaged)")
                    return
                }
                if case .fields = outcome {
                    accepted += 1
                } else {
                    if case .refused(let violation) = outcome { refused[violation, default: 0] += 1 }
                    break
                }
            }
        }
        // Nearly every kind of violation occurs. The end-of-string symbol, of 30 ones, is rare.
        #expect(accepted > Self.seeds && refused.count >= 5, "\(accepted) \(refused)")
    }

    @Test("the decoder and nghttp2 agree on each input of the fuzzer's corpus")
    func corpus() throws {
        let inputs = try FuzzCorpus.read("hpack")
        #expect(inputs.count > 50)
        for (line, bytes) in inputs.enumerated() {
            do throws(FuzzViolation) { try HPACKComparison.run(bytes) } catch {
                Issue.record("hpack.corpus:\(line + 1): \(error)")
            }
        }
    }
}

extension HPACKComparison.Field {
    fileprivate init(name: String, value: String) { self.init(name: Array(name.utf8), value: Array(value.utf8)) }
}
