import Foundation
import NIOCore
import Testing

@testable import Operations

@Suite struct ShownTests {
    /// A thing with a member of each kind, which Foundation's encoder can encode, too.
    private struct Sample: Shown, Encodable {
        var text = "a/\"b\"\\\u{1}\n\u{7F}\u{202E}é"
        var number = -1
        var decimals = [0.1, 1.0, 1e20, -2.5e-7]
        var flag = true
        var counts = ["b": 2, "a": 1, "A": 3]
        var unknown: String?
        var at: Int64? = 1_795_279_247_000

        static let columns = Columns<Sample>(
            "Sample", "A sample.",
            [
                .init("text", "Text.", in: .all, \.text), .init("number", "Number.", as: .count, \.number),
                .init("decimals", "Decimals.", \.decimals), .init("flag", "Flag.", in: .facts, \.flag),
                .init("counts", "Counts.", \.counts), .init("unknown", "Unknown.", in: .all, \.unknown),
                .init("at", "Time.", as: .time, title: "Time", in: .all, \.at),
                .init("secret", "Secret.", isDetail: true) { _ in "x" },
            ])
    }

    @Test("A thing is written as the system's encoder writes it, with its details if these are wanted")
    func encoding() throws {
        let (sample, encoder) = (Sample(), JSONEncoder())
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        let expected = JSONLine.escaped(String(decoding: try encoder.encode(sample), as: UTF8.self))
        #expect(sample.json() == expected)
        #expect(sample.json(isDetailed: true).contains(#""secret":"x""#))
    }

    @Test("Any number is a time, and has an age")
    func extremeTimes() {
        let ends: [Int64] = [.min, .min + 1, -1, 0, 1, .max - 1, .max]
        for now in [0, 1_795_279_247_000] as [Int64] {
            for time in ends {
                let sample = Sample(at: time)
                #expect(!sample.page(now: now).isEmpty && ColumnKind.age.cell(.number(time), now: now) != nil)
                #expect(Words.since(time, now: now).hasPrefix(" for "))
            }
        }
        for one in ends {
            for other in ends {
                let age = one.since(other)
                #expect(age == -(other.since(one)) && (age > 0) == (one > other), "\(one), \(other)")
            }
        }
    }

    @Test("Tables and facts have the columns with a title, and a dash or nothing for what is unknown")
    func texts() {
        let sample = Sample(text: "x\u{202E}", at: 0)
        #expect(Sample.titles() == ["TEXT", "UNKNOWN", "TIME"])
        #expect(sample.cells(now: 60_000)[1...] == ["-", "1970-01-01T00:00:00Z"])
        #expect(sample.page(now: 60_000).hasSuffix("flag  yes\ntime  1970-01-01T00:00:00Z, 1m ago\n"))
    }
}
