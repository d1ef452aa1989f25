import Operations
import PushQueue
import WebPages

/// The Redis servers, and the keys that use the most memory.
struct RedisPage: DashboardPage {
    let path = "/redis"
    let section = Section.redis

    func isLive(_ query: Fields) -> Bool { true }

    func content(_ request: PageRequest) async throws -> PageContent {
        let status = try await request.site.data.fleetStatus()
        let found = try await request.site.data.keySizes()
        let sizes = found.value
        let largest = max(1, sizes.first?.bytes ?? 1)
        let keys = request.list(
            "Keys by size", sizes, heads: ["Key": .init("Key", namesCells: false)],
            empty: Elements.empty("There are no keys yet.", "<p>They appear with the first job or worker.</p>")
        ) { size, column, value in
            switch column.title {
            case "Key": "<span class=\"mono\">\(size.key)</span>"
            case "Memory" where status.largeKeys.contains { $0.key == size.key }:
                Elements.label(Words.bytes(size.bytes), .warning)
            case "Share":
                """
                <progress value="\(size.bytes * 100 / largest)" max="100" aria-label="Compared with the largest key">\
                </progress>
                """
            default: value
            }
        }
        let servers: HTML = """
            \(topology(status, request))\(problems(status))<div class="columns">\(status.servers.map(server))</div>
            """
        return PageContent(
            title: "Redis",
            main: """
                \(Elements.live("servers", servers))
                <h2>Keys by size</h2>\
                <p class="hint">Estimated by Redis from samples. Excludes keys of single jobs, tokens and \
                minutes.</p>\(request.notices(found.unread))\(keys)
                """)
    }

    private func topology(_ status: FleetStatus, _ request: PageRequest) -> HTML {
        let memory = status.servers.compactMap { $0.info?.usedMemory }.reduce(0, +)
        let servers = Words.count(status.servers.count, "server")
        let (name, note) =
            request.source.fleet.isCluster ? ("Cluster", "\(servers) with queues") : (servers, "not a Cluster")
        return """
            <div class="figures">
            \(Elements.figure("Topology", "\(name)", "\(note)"))
            \(Elements.figure("Memory", "\(Words.bytes(memory))", "in use, of all servers"))
            \(Elements.figure("Queues", "\(Words.number(status.queues.count))", "prefix \(status.prefix)"))
            \(Elements.figure("Invalid tokens", "\(Words.number(status.invalidTokens))", "in the set"))
            </div>
            """
    }

    /// The problems of Redis that its servers' cards do not show.
    private func problems(_ status: FleetStatus) -> HTML {
        let inCards = Set(QueueServer.Finding.Kind.allCases.map(\.rawValue))
        return HTML(
            status.problems.filter { $0.kind.part == .redis && !inCards.contains($0.kind.name) }.map {
                Self.problem($0.message, $0.advice, isBad: $0.isCritical)
            })
    }

    private static func problem(_ message: String, _ advice: String, isBad: Bool) -> HTML {
        """
        <div class="problem\(if: isBad, " bad")"><strong>\(Elements.prose(message))</strong>\
        \(Elements.prose(advice))</div>
        """
    }

    private func server(_ server: ServerStatus) -> HTML {
        let findings = server.found.findings
        let hasFailed = findings.contains(where: \.kind.isFailure) || server.found.refusesWrites
        guard let info = server.info else {
            return Elements.card(
                "\(server.found.address)", tone: .bad,
                "<p>The server does not answer <code>INFO</code>, so its memory is not known.</p>")
        }
        let memory = Self.memory(info)
        let isWarned = !findings.isEmpty || memory.tone != .good
        let replicas = info.replicas.map { "\($0)" as HTML }
        let text = findings.map { Self.problem($0.message, $0.advice, isBad: $0.kind.isFailure) }
        let (word, tone): (String, Elements.Tone) =
            hasFailed ? ("needs attention", .bad) : isWarned ? ("near a limit", .warning) : ("fine", .good)
        return Elements.card(
            "\(server.found.address)", tone: tone, tools: Elements.label(word, tone),
            """
            \(text)\(memory.html)\(Elements.facts([
                ("Version", info.version.map { "\($0)" }), ("Role", info.role.map { "\("\($0)")" }),
                ("Eviction", info.evictionPolicy.map { info.evicts ? Elements.label($0, .warning) : "\($0)" }),
                ("Append-only file", info.keepsAppendOnlyFile.map { $0 ? "on" : Elements.label("off", .warning) }),
                ("Replicas", replicas),
                ("In sync", info.replicasInStep.map { count in
                    (info.replicas ?? 0) > count ? Elements.label("\(count)", .warning) : "\(count)"
                }),
                ("Queues", "\(server.queues.joined(separator: ", "))"),
            ]))
            """)
    }

    /// The page warns from this share of the memory limit on. Workers report a problem at a higher share, so there is time to act.
    static let warningShare = 0.75

    /// Returns the memory of a server, with a tone that warns of the limit.
    static func memory(_ info: ServerInfo) -> (html: HTML, tone: Elements.Tone) {
        guard let share = info.memoryShare else {
            let words = info.memoryInWords ?? "unknown"
            return ("<p class=\"memory\">Memory: \(words), without a limit (<code>maxmemory</code>).</p>", .good)
        }
        let tone: Elements.Tone =
            share >= ServerInfo.nearlyFull ? .bad : share >= warningShare ? .warning : .good
        return (
            """
            <p class="memory">Memory: \(info.memoryInWords) \(Elements.label("\(Int(share * 100))%", tone))</p>\
            <progress class="\(tone.rawValue)" value="\(Int(min(1, share) * 1000))" max="1000" \
            aria-label="Memory in use"></progress>
            """, tone
        )
    }
}
