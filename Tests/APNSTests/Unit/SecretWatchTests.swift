import Foundation
import TestSupport
import Testing

@testable import APNS
@testable import TLS

@Suite("Changes of secrets")
struct SecretWatchStateTests {
    private let old: [[UInt8]] = [[1]]
    private let new: [[UInt8]] = [[2]]
    private let newer: [[UInt8]] = [[3]]
    private let missing = SecretSource.Unreadable(description: "missing")
    private let empty = SecretSource.Unreadable(description: "empty")

    @Test("is a difference from the secret in use that two consecutive checks find")
    func settles() {
        var state = SecretWatchState(inUse: old)
        for _ in 0..<3 { #expect(state.saw(old) == .unchanged) }
        #expect(state.saw(new) == .unchanged)
        #expect(state.saw(new) == .changed)
        // It was neither accepted nor rejected, so it is offered again.
        #expect(state.saw(new) == .changed)
        state.accept()
        #expect(state.saw(new) == .unchanged)
        #expect(state.saw(old) == .unchanged)
        #expect(state.saw(old) == .changed)
    }

    @Test("does not include a file that keeps changing, nor one that changes back")
    func unsettled() {
        var state = SecretWatchState(inUse: old)
        for contents in [new, newer, new, newer, new, old, new, old] { #expect(state.saw(contents) == .unchanged) }
    }

    @Test("is rejected once, and checked again when it changes")
    func rejected() {
        var state = SecretWatchState(inUse: old)
        #expect(state.saw(new) == .unchanged)
        #expect(state.saw(new) == .changed)
        state.reject()
        for _ in 0..<3 { #expect(state.saw(new) == .unchanged) }
        #expect(state.saw(newer) == .unchanged)
        #expect(state.saw(newer) == .changed)
        state.accept()
        #expect(state.saw(new) == .unchanged)
        #expect(state.saw(new) == .changed)
    }

    @Test("is rejected again if the one in use was present in between")
    func rejectedAgain() {
        var state = SecretWatchState(inUse: old)
        _ = state.saw(new)
        #expect(state.saw(new) == .changed)
        state.reject()
        #expect(state.saw(old) == .unchanged)
        #expect(state.saw(new) == .unchanged)
        #expect(state.saw(new) == .changed)
    }

    @Test("does not include an unreadable file, which is logged once for each problem")
    func unreadable() {
        var state = SecretWatchState(inUse: old)
        #expect(state.failed(missing) == .unreadable)
        #expect(state.failed(missing) == .unchanged)
        #expect(state.failed(empty) == .unreadable)
        #expect(state.failed(empty) == .unchanged)
        #expect(state.saw(old) == .unchanged)
        #expect(state.failed(missing) == .unreadable)
        // Two reads in a row: one before the failure does not count.
        #expect(state.saw(new) == .unchanged)
        #expect(state.failed(missing) == .unreadable)
        #expect(state.saw(new) == .unchanged)
        #expect(state.saw(new) == .changed)
    }
}

@Suite("A watch over secrets")
struct SecretWatchTests {
    private struct Bad: Error {}

    /// Returns the result of `renew` as a word.
    private func word(_ renewal: SecretWatch.Renewal<[[UInt8]]>) -> String {
        switch renewal {
        case .unchanged: "unchanged"
        case .renewed(let contents): "renewed \(contents)"
        case .failed(let error): "failed \(error)"
        }
    }

    @Test("builds again when a file was replaced, and otherwise keeps the old one")
    func files() throws {
        try withTemporaryDirectory { directory in
            let file = directory.appending(path: "key")
            let sources = [SecretSource.file(file.path), .bytes([9], name: "passphrase")]
            try Data([1]).write(to: file)
            var watch = SecretWatch(sources, inUse: try sources.map { try $0.read() })
            #expect(watch.canChange)
            var builds = 0
            func look() -> String {
                word(
                    watch.renew { contents in
                        builds += 1
                        if contents[0] == [66] { throw Bad() }
                        return contents
                    })
            }
            #expect(look() == "unchanged")
            try FileManager.default.removeItem(at: file)
            #expect(look().contains("failed cannot read \(file.path)"))
            #expect(look() == "unchanged")
            try Data().write(to: file)
            #expect(look().contains("is empty"))
            #expect(look() == "unchanged")
            try Data([66]).write(to: file)
            #expect(look() == "unchanged")
            #expect(look() == "failed Bad()")
            for _ in 0..<3 { #expect(look() == "unchanged") }
            #expect(builds == 1)
            try Data([2]).write(to: file)
            #expect(look() == "unchanged")
            #expect(look() == "renewed [[2], [9]]")
            for _ in 0..<3 { #expect(look() == "unchanged") }
            #expect(builds == 2)
        }
    }

    @Test("has nothing to watch if no source is a file")
    func constant() {
        #expect(!SecretWatch([.base64("AQ==", name: "X"), .bytes([1], name: "x")], inUse: [[1], [1]]).canChange)
    }
}
