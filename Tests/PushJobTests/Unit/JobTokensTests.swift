import Foundation
import NIOCore
import Testing

@testable import PushJob

@Suite("Job tokens")
struct JobTokensTests {
    @Test("are keys of a dictionary: those of one length are different texts")
    func keys() throws {
        let job = try decodeJob(#"{"payload":{},"tokens":["aa","bb","cc","bb"]}"#)
        let texts = try #require(job.tokens).map { job.text($0) }
        #expect(Set(texts).count == 3 && texts[1] == texts[3] && texts[0] != texts[1])
    }

    @Test("are read by the thousand, and again from the start")
    func many() throws {
        let expected = (0..<1000).map { "\($0)" }
        let list = expected.map { "\"\($0)\"" }.joined(separator: ",")
        let job = try decodeJob(#"{"payload":{},"tokens":[\#(list)]}"#)
        let tokens = try #require(job.tokens)
        #expect(tokens.count == 1000)
        #expect(job.tokenStrings == expected)
        #expect(job.tokenStrings == expected)
    }

    @Test(
        "are read one by one, in order, whether or not all are written alike",
        arguments: [
            #"["aa","bb","cc"]"#, #"["aa","bb","c"]"#, #"["aa", "bb","cc"]"#, #"["aa","bb" ,"cc"]"#, #"[ "aa","bb"]"#,
            #"["aa","bb" ]"#, #"["aa"]"#, #"["",""]"#, #"["\u0061","bbbbbb"]"#, #"["bbbbbb","\u0061"]"#,
            #"["a","bb","c","dd"]"#, #"[ "aa" , "b\u0062","cc",""  ,"<dd ee>" ]"#,
        ])
    func spellings(list: String) throws {
        let expected = try JSONDecoder().decode([String].self, from: Data(list.utf8))
        let job = try decodeJob(#"{"payload":{},"tokens" : \#(list)}"#)
        #expect(job.tokenStrings == expected && job.token == nil && job.tokenCount == expected.count)
        #expect(try decodeJob(#"{"tokens":\#(list),"payload":{}}"#).tokenStrings == expected)
        let wrapped = #"{"apns_worker":1,"tokens":\#(list),"job":{"token":"x","payload":{}}}"#
        #expect(try decodeJob(wrapped).tokenStrings == expected)
    }

    @Test("a copy of an iterator continues from where it was made")
    func cursor() throws {
        let job = try decodeJob(#"{"payload":{},"tokens":["a","b","c"]}"#)
        var first = try #require(job.tokens).makeIterator()
        _ = first.next()
        var second = first
        #expect(job.string(first.next()) == "b" && job.string(second.next()) == "b")
        #expect((0..<3).map { _ in job.string(first.next()) } == ["c", nil, nil])
    }

    @Test(
        "can be cut out of the original, which remains a document with everything else",
        arguments: [
            (#"{"tokens":["a"],"payload":{}}"#, #"{"payload":{}}"#),
            (#"{"payload":{},"tokens":["a"]}"#, #"{"payload":{}}"#),
            ("{ \"payload\":{} , \n \"tokens\" : [\"a\",\"b\"] \n}", "{ \"payload\":{}  \n}"),
            (#"{"id":"x", "to\u006bens":["a"] , "payload":{}}"#, #"{"id":"x",  "payload":{}}"#),
        ])
    func cut(text: String, rest: String) throws {
        let job = try decodeJob(text)
        #expect(originalWithoutTokens(job) == rest)
        #expect(jobError(rest) == .missingToken(found: nil))
    }

    @Test("only the producer's own tokens are cut out")
    func cutNothing() throws {
        let single = #"{"token":"a","payload":{}}"#
        #expect(originalWithoutTokens(try decodeJob(single)) == single)
        let many = #"{"tokens":["a","b"],"payload":{}}"#
        let wrapped = try decodeJob(#"{"apns_worker":1,"tokens":["b"],"job":\#(many)}"#)
        #expect(originalWithoutTokens(wrapped) == many)
        let cut = try decodeJob(#"{"apns_worker":1,"attempt":2,"job":\#(many)}"#)
        #expect(originalWithoutTokens(cut) == #"{"payload":{}}"#)
    }

    @Test("are split into pieces of a size, each with the commas between its tokens", arguments: [1, 2, 3, 4, 100])
    func pieces(size: Int) throws {
        let text = #"{"payload":{},"tokens":[ "a" , "b\u0062","c", "d" ]}"#
        let job = try decodeJob(text)
        let bytes = Array(text.utf8)
        let pieces = job.tokenPieces(of: size).map { String(decoding: bytes[$0], as: UTF8.self) }
        #expect(pieces.count == (4 + size - 1) / size)
        let again = try pieces.flatMap { piece -> [String?] in
            try #require(try decodeJob(#"{"tokens":[\#(piece)],"payload":{}}"#).tokenStrings)
        }
        #expect(again == ["a", "bb", "c", "d"])
    }
}

/// Returns the original without its tokens, as the script `settle` cuts it for the pieces of a split job.
private func originalWithoutTokens(_ job: Job) -> String {
    let bytes = Array(job.body.readableBytesView)
    let (original, cut) = (job.original, job.tokensMember)
    let rest = bytes[original.lowerBound..<cut.lowerBound] + bytes[cut.upperBound..<original.upperBound]
    return String(decoding: rest, as: UTF8.self)
}
