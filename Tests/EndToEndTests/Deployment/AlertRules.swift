import Foundation
import Operations

/// Makes deploy/helm/apns-worker/files/alerts.yaml from the table of problems.
enum AlertRules {
    static let path = "helm/apns-worker/files/alerts.yaml"

    static var text: String {
        let groups = Problem.Kind.Part.allCases.map { part in
            let rules = Problem.table.filter { $0.part == part }.compactMap { kind in
                kind.alert.map { rule($0, of: kind) }
            }
            return "      # Problems of \(part.title)\n\n" + rules.joined(separator: "\n")
        }
        return """
            # Alert rules for workers, generated from the table of problems: UPDATE_DOCS=1 scripts/test e2e DocumentationReference
            # writes this file. Severity "page": act at once, even at night; "ticket": act within a working day. `action` is the first
            # step, and `problem` the kind in `apns-worker status --json`. docs/operating.md has all of them, docs/observing.md the metrics.
            #
            # increase() ignores the first value of a series. A new worker may count jobs before its first scrape, so some rules also
            # use the counter itself while the process is young. Deployments with different Redis servers need different labels `job`.
            #
            #   promtool check rules deploy/helm/apns-worker/files/alerts.yaml
            groups:
              - name: apns-worker
                interval: 30s
                rules:
            \(groups.joined(separator: "\n"))
            """
    }

    private static func rule(_ alert: Problem.Alert, of kind: Problem.Kind) -> String {
        """
              - alert: \(alert.name)
                expr: \(folded(alert.expression, indent: 10, keepsLines: true))
        \(alert.duration.map { "        for: \($0)\n" } ?? "")\
                labels: {severity: \(alert.severity.rawValue)}
                annotations:
                  problem: \(kind.name)
                  summary: \(folded(alert.summary, indent: 12))
                  description: \(folded(alert.description, indent: 12))
                  action: \(folded(plain(kind.action), indent: 12))

        """
    }

    /// Returns a text in YAML's folded style, which needs no escapes, in lines of at most 140 columns.
    private static func folded(_ text: String, indent: Int, keepsLines: Bool = false) -> String {
        var lines: [String] = []
        if keepsLines {
            lines = text.split(separator: "\n").map(String.init)
        } else {
            for word in text.split(separator: " ") {
                if let last = lines.last, indent + last.count + 1 + word.count <= 140 {
                    lines[lines.count - 1] = "\(last) \(word)"
                } else {
                    lines.append(String(word))
                }
            }
        }
        return ">-\n" + lines.map { String(repeating: " ", count: indent) + $0 }.joined(separator: "\n")
    }

    /// Returns a text without Markdown.
    private static func plain(_ text: String) -> String {
        text.replacing(/\[([^\]]*)\]\([^)]*\)/) { String($0.1) }.replacing("`", with: "")
    }
}

extension Problem.Kind.Part {
    var title: String {
        switch self {
        case .redis: "Redis"
        case .queues: "queues and jobs"
        case .workers: "workers"
        case .apps: "apps and APNs"
        }
    }
}
