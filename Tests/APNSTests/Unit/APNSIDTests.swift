import APNS
import TestSupport
import Testing

@Suite("An apns-id")
struct APNSIDTests {
    @Test("is written as it was read, in lower case, for random values")
    func roundTrip() throws {
        var generator = SeededGenerator(seed: 7)
        for _ in 0..<2000 {
            let id = APNSID(high: generator.next(), low: generator.next())
            let text = id.description
            #expect(text.utf8.count == APNSID.textLength)
            #expect(text == text.lowercased())
            #expect(APNSID(text.utf8) == id)
            #expect(APNSID(text.uppercased().utf8) == id)
        }
    }

    @Test("has its digits where RFC 9562 has them")
    func layout() {
        let id = APNSID(high: 0x0011_2233_4455_6677, low: 0x8899_AABB_CCDD_EEFF)
        #expect(id.description == "00112233-4455-6677-8899-aabbccddeeff")
    }

    @Test("made from a hash is a UUID of version 8 and keeps the other 122 bits")
    func hashed() {
        #expect(APNSID(hash: (0, 0)).description == "00000000-0000-8000-8000-000000000000")
        #expect(APNSID(hash: (.max, .max)).description == "ffffffff-ffff-8fff-bfff-ffffffffffff")
        #expect(APNSID(hash: (1, 0)) != APNSID(hash: (0, 1)))
    }

    @Test(
        "of another form is refused",
        arguments: [
            "", "00112233445566778899aabbccddeeff", "00112233-4455-6677-8899-aabbccddeef",
            "00112233-4455-6677-8899-aabbccddeefff", "0011223-34455-6677-8899-aabbccddeeff",
            "00112233-4455-6677-8899-aabbccddeefg", "{0112233-4455-6677-8899-aabbccddeef}",
            "00112233_4455-6677-8899-aabbccddeeff", "00112233-4455-6677-8899-aabbccddeeé",
        ])
    func refused(text: String) { #expect(APNSID(text.utf8) == nil) }
}
