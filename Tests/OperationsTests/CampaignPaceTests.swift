import Testing

@testable import Operations

@Suite("The rate of a campaign over time")
struct CampaignPaceTests {
    private static let day: Int64 = 86_400
    /// A midnight, in seconds since 1970.
    private static let start: Int64 = 20_000 * day

    private static func periods(_ fields: [(after: Int64, length: Int64, ended: Int)]) throws -> [CampaignCounts.Period]
    {
        try fields.map {
            try #require(CampaignCounts.Period("at:\(start + $0.after)/\($0.length)", "\($0.ended)"))
        }
    }

    @Test("Minutes without an outcome are points, and those of all queues are added.")
    func minutes() throws {
        let points = CampaignPace.points(
            of: try Self.periods([(180, 60, 30), (0, 60, 600), (0, 60, 6), (60, 60, 12)]))
        #expect(points.map(\.ended) == [606, 12, 0, 30] && points.map(\.endedPerSecond) == [10.1, 0.2, 0, 0.5])
        #expect(points.map(\.at) == (0..<4).map { (Self.start + $0 * 60) * 1000 })
        #expect(points.allSatisfy { $0.seconds == 60 } && CampaignPace.points(of: []).isEmpty)
    }

    @Test("All points have the length of the longest period, and there are at most 200.")
    func lengths() throws {
        let mixed = CampaignPace.points(
            of: try Self.periods([(0, 60, 1), (540, 60, 2), (600, 600, 4), (1200, 60, 8)]))
        #expect(mixed.map(\.ended) == [3, 4, 8] && mixed.allSatisfy { $0.seconds == 600 })
        // 300 minutes become 30 periods of ten minutes.
        let many = CampaignPace.points(of: try Self.periods((0..<300).map { ($0 * 60, 60, 1) }))
        #expect(many.map(\.ended) == Array(repeating: 10, count: 30))
        let years = CampaignPace.points(of: try Self.periods([(0, 86_400, 1), (900 * Self.day, 86_400, 2)]))
        #expect(years.count == 200 && years.last?.ended == 2 && years.reduce(0) { $0 + $1.ended } == 2)
    }

    @Test(
        "Fields that are not periods are ignored, and none can overflow.",
        arguments: [
            ("at:60/60", "x"), ("at:60/60", "0"), ("at:60/60", "-1"), ("at:61/60", "1"), ("at:60/61", "1"),
            ("at:60", "1"),
            ("at:-60/60", "1"), ("at:60/60/60", "1"), ("at:9223372036854775800/60", "1"), ("delivered", "1"),
            ("at:/", "1"),
        ])
    func hostile(field: String, value: String) throws {
        #expect(CampaignCounts.Period(field, value) == nil)
        let largest = try #require(CampaignCounts.Period("at:60/60", "9223372036854775807"))
        let points = CampaignPace.points(of: Array(repeating: largest, count: 2000))
        #expect(points.count == 1 && (points.first?.ended ?? 0) > 0)
    }
}
