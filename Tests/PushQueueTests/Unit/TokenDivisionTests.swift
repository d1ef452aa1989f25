import NIOCore
import PushQueue
import Testing

@Suite("Dividing tokens into shards")
struct TokenDivisionTests {
    // As Python calculates them with the function of docs/invalid-tokens.md.
    @Test(
        "The first sixteen bits of a token decide its shard",
        arguments: [
            ("0000ff", 16, 0), ("0fff00", 16, 0), ("100000", 16, 1), ("9b810e", 16, 9), ("ffff", 16, 15),
            ("7fffff", 2, 0), ("8000", 2, 1), ("35bf99", 4, 0), ("9b810e", 4, 2), ("ffff00", 4096, 4095),
            ("ab", 16, 10), ("9b810e", 1, 0),
        ])
    func shard(token: String, shards: Int, expected: Int) {
        #expect(TokenDivision.shard(of: ByteBuffer(string: token), among: shards) == expected)
    }
    @Test("A record has the number of shards and, during a change, the other number and the time")
    func records() {
        for (text, division) in [
            ("1", TokenDivision()), ("4096", TokenDivision(shards: 4096)),
            ("1 16 1795279247000", TokenDivision(shards: 1, incomplete: 16, since: 1_795_279_247_000)),
        ] {
            #expect(TokenDivision(text) == division && division.text == text)
        }
        for text in [
            "", "x", "0", "3", "8192", "-1", "1 16", "1 3 5", "1 16 x", "1 16 5 6", "16 copying", "3 1 16 copying",
        ] {
            #expect(TokenDivision(text) == nil, "\(text)")
        }
    }
}
