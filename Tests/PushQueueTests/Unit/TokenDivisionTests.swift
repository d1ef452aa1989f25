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
}
