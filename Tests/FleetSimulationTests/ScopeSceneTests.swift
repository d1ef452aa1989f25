import Testing

/// The rules of the scopes together, in virtual time.
struct ScopeSceneTests {
    private typealias Lab = ScopesLab

    /// A scene and the bounds of its outcome. All good notifications must be delivered.
    struct Scene: CustomTestStringConvertible, Sendable {
        let testDescription: String
        var lab = ScopesLab()
        /// The bounds of the 99th percentile and of the maximum of the good notifications' times in the queue.
        var p99: Int64
        var maximum: Int64
        /// The bounds of the requests per second after the first 5 s of an outage, and of the time from its end until the full rate.
        var rate = 0.0
        var back: Int64 = 0
        let arrivals: @Sendable () -> [ScopesLab.Arrival]

        init(
            _ name: String, end: Int64, outage: Range<Int64>? = nil, leak: Double = 0, retriesLeft: Int = 0, p99: Int64,
            maximum: Int64, rate: Double = 0, back: Int64 = 0, _ arrivals: @escaping @Sendable () -> [ScopesLab.Arrival]
        ) {
            testDescription = name
            (self.p99, self.maximum, self.rate, self.back, self.arrivals) = (p99, maximum, rate, back, arrivals)
            if let outage { lab.outage = outage }
            (lab.end, lab.leak, lab.retriesLeft) = (end, leak, retriesLeft)
        }
    }

    /// The time to delivery if the peer is good and answers within 100 ms.
    private static let atOnce: Int64 = 100

    static let scenes: [Scene] = [
        Scene("1,000/s, all good", end: 40_000, p99: atOnce, maximum: atOnce) { Lab.mix(1000, until: 30_000, bad: 0) },
        Scene("a backlog of 50,000, 5 % bad", end: 60_000, p99: 9000, maximum: 9200) { Lab.batch(50_000, bad: 0.05) },
        Scene("a backlog of 50,000, 20 % bad", end: 60_000, p99: 9200, maximum: 9400) { Lab.batch(50_000, bad: 0.2) },
        Scene("8 good/s beside 30 bad/s", end: 65_000, p99: atOnce, maximum: atOnce) {
            Lab.together(Lab.steady(8, until: 60_000), Lab.steady(30, until: 60_000, isBad: true))
        },
        Scene("8 good/s beside 100 bad/s", end: 65_000, p99: atOnce, maximum: atOnce) {
            Lab.together(Lab.steady(8, until: 60_000), Lab.steady(100, until: 60_000, isBad: true))
        },
        Scene("1 good/s beside 9 bad/s", end: 210_000, p99: atOnce, maximum: atOnce) {
            Lab.together(Lab.steady(1, until: 200_000), Lab.steady(9, until: 200_000, isBad: true))
        },
        Scene("8 good/s beside 1,000 bad/s of a campaign", end: 65_000, p99: atOnce, maximum: 1000) {
            Lab.together(Lab.steady(8, until: 60_000), Lab.steady(1000, until: 60_000, isBad: true, group: "c"))
        },
        Scene("8 good/s, 1,000 bad at 10 s", end: 65_000, p99: 1000, maximum: 1000) {
            Lab.together(Lab.steady(8, until: 60_000), Lab.batch(1000, at: 10_000))
        },
        Scene("1,000 bad at the start, then 8 good/s", end: 65_000, p99: 1000, maximum: 1000) {
            Lab.together(Lab.batch(1000), Lab.steady(8, until: 60_000, since: 500))
        },
        Scene("1,000 bad ones of 1,000 campaigns", end: 45_000, p99: 1000, maximum: 1000) {
            Lab.together(
                (0..<1000).map { Lab.Arrival(at: 0, isBad: true, group: "u\($0)") },
                Lab.steady(8, until: 40_000, since: 500))
        },
        Scene("10 bad campaigns of 2,000 alone for 30 s", end: 65_000, p99: 16_900, maximum: 16_900) {
            Lab.together(
                (0..<10).flatMap { Lab.batch(2000, group: "c\($0)") }, Lab.steady(8, until: 60_000, since: 30_000))
        },
        Scene("10,000 bad in front, a campaign", end: 65_000, p99: 200, maximum: 1000) {
            Lab.together(Lab.batch(10_000, group: "c"), Lab.steady(8, until: 60_000, since: 500))
        },
        Scene("10,000 bad in front, of no campaign", end: 65_000, p99: 10_000, maximum: 10_500) {
            Lab.together(Lab.batch(10_000), Lab.steady(8, until: 60_000, since: 500))
        },
        Scene("30 bad, then 1 good in 20 s", end: 210_000, p99: atOnce, maximum: atOnce) {
            Lab.together(Lab.batch(30), Lab.steady(0.05, until: 200_000, since: 20_000))
        },
        Scene("1 good in 10 s beside 1 bad/s", end: 110_000, p99: atOnce, maximum: atOnce) {
            Lab.together(Lab.steady(0.1, until: 100_000), Lab.steady(1, until: 100_000, isBad: true))
        },
        Scene(
            "1,000/s, outage of 60 s", end: 115_000, outage: 30_000..<90_000, p99: 60_500, maximum: 62_000, rate: 4,
            back: 2000
        ) { Lab.mix(1000, until: 110_000, bad: 0) },
        Scene(
            "1,000/s of 20 campaigns, outage", end: 115_000, outage: 30_000..<90_000, p99: 60_500, maximum: 62_000,
            rate: 4, back: 2000
        ) { Lab.mix(1000, until: 110_000, bad: 0, groups: 20) },
        Scene(
            "1,000/s, outage that accepts 1 %", end: 115_000, outage: 30_000..<90_000, leak: 0.01, p99: 60_500,
            maximum: 62_500, rate: 4, back: 2000
        ) { Lab.mix(1000, until: 110_000, bad: 0) },
        Scene(
            "1,000/s with 5 % bad, outage", end: 115_000, outage: 30_000..<90_000, p99: 61_000, maximum: 63_600,
            rate: 4,
            back: 2000
        ) { Lab.mix(1000, until: 110_000, bad: 0.05) },
        Scene(
            "8 good/s, 30 bad/s, outage of 10 s", end: 95_000, outage: 20_000..<30_000, p99: 14_500, maximum: 15_000,
            rate: 6, back: 5000
        ) { Lab.together(Lab.steady(8, until: 90_000), Lab.steady(30, until: 90_000, isBad: true)) },
        Scene(
            "8 good/s, 100 bad/s, outage of 10 s", end: 155_000, outage: 20_000..<30_000, p99: 30_000, maximum: 31_400,
            rate: 4, back: 20_200
        ) { Lab.together(Lab.steady(8, until: 150_000), Lab.steady(100, until: 150_000, isBad: true)) },
        Scene(
            "8/s, outage of 60 s", end: 115_000, outage: 30_000..<90_000, p99: 60_500, maximum: 68_000, rate: 7,
            back: 2000
        ) { Lab.steady(8, until: 110_000) },
        Scene(
            "2/s, outage of 60 s", end: 115_000, outage: 30_000..<90_000, p99: 61_000, maximum: 83_000, rate: 4,
            back: 2000
        ) { Lab.steady(2, until: 110_000) },
        Scene(
            "a restart in an outage, 20,000 retries", end: 100_000, outage: 0..<40_000, retriesLeft: 20_000,
            p99: 45_000,
            maximum: 68_500, rate: 2
        ) { [] },
        Scene("8/s, outage from the start", end: 65_000, outage: 0..<40_000, p99: 41_000, maximum: 46_000, rate: 4) {
            Lab.steady(8, until: 60_000)
        },
    ]

    @Test("Good notifications are delivered in time.", arguments: scenes)
    func scene(_ scene: Scene) {
        let outcome = scene.lab.run(scene.arrivals())
        #expect(outcome.delivered == outcome.good)
        #expect(outcome.p99 <= scene.p99)
        #expect(outcome.maximum <= scene.maximum)
        guard let rate = outcome.rate else { return }
        #expect(rate <= scene.rate)
        if scene.back > 0 { #expect(outcome.back.map { $0 <= scene.back } == true) }
    }

    @Test("A group in which one in a hundred is good counts as one that is not.")
    func hardlyAnyGood() {
        var lab = Lab()
        lab.end = 25_000
        let outcome = lab.run(Lab.together(Lab.steady(8, until: 20_000), Lab.steady(1000, until: 20_000, isBad: true)))
        #expect(outcome.delivered < outcome.good / 10, "this looks like an outage")
    }
}
