import HTTPTypes
import Hummingbird
import NIOCore

/// The style sheet, the scripts and the icon, embedded in the program.
package enum WebAssets {
    private struct Asset {
        let type: String
        let bytes: ByteBuffer
        /// A hash of the content, so that browsers can cache the file forever.
        let version: String

        init(_ bytes: [UInt8], _ type: String) {
            self.bytes = ByteBuffer(bytes: bytes)
            self.type = type
            // FNV-1a.
            let hash = bytes.reduce(0xcbf2_9ce4_8422_2325 as UInt64) { ($0 ^ UInt64($1)) &* 0x100_0000_01b3 }
            version = String(hash, radix: 16)
        }
    }

    private static let assets: [String: Asset] = [
        "style.css": Asset(PackageResources.style_css, "text/css; charset=utf-8"),
        "icon.svg": Asset(PackageResources.icon_svg, "image/svg+xml"),
        "page.js": Asset(PackageResources.page_js, "text/javascript; charset=utf-8"),
        "actions.js": Asset(PackageResources.actions_js, "text/javascript; charset=utf-8"),
        "live.js": Asset(PackageResources.live_js, "text/javascript; charset=utf-8"),
        "chart.js": Asset(PackageResources.chart_js, "text/javascript; charset=utf-8"),
        "select.js": Asset(PackageResources.select_js, "text/javascript; charset=utf-8"),
        "inbox.js": Asset(PackageResources.inbox_js, "text/javascript; charset=utf-8"),
        "compose.js": Asset(PackageResources.compose_js, "text/javascript; charset=utf-8"),
    ]

    /// Returns the name of a file with its version, such as `1f2e.style.css`.
    static func versioned(_ name: String) -> String {
        guard let asset = assets[name] else { preconditionFailure("there is no asset \(name)") }
        return "\(asset.version).\(name)"
    }

    /// Returns the path of the icon that shows a number of problems.
    package static func icon(_ problems: Int, _ links: Links) -> String {
        links.path(["assets", problems > 0 ? "icon-\(min(problems, 99)).svg" : versioned("icon.svg")])
    }

    /// Returns the icon with a number, by its name `icon-N.svg`.
    private static func numbered(_ name: String) -> Response? {
        guard name.hasPrefix("icon-"), name.hasSuffix(".svg"), let number = Int(name.dropFirst(5).dropLast(4)),
            1...99 ~= number, var icon = assets["icon.svg"].map({ String(buffer: $0.bytes) }),
            let end = icon.firstRange(of: "</svg>")
        else { return nil }
        icon.replaceSubrange(
            end,
            with: """
                <circle cx="22" cy="10" r="10" fill="#c3271b"/><text x="22" y="15" fill="#fff" text-anchor="middle" \
                font-family="sans-serif" font-size="\(number > 9 ? 12 : 14)" font-weight="700">\(number)</text></svg>
                """)
        return Response(
            status: .ok,
            headers: [.contentType: "image/svg+xml", .cacheControl: "public, max-age=86400"],
            body: ResponseBody(byteBuffer: ByteBuffer(string: icon)))
    }

    /// Returns a file by name, whatever its version; `nil` if there is none.
    package static func response(_ versioned: String) -> Response? {
        if let icon = numbered(versioned) { return icon }
        guard let dot = versioned.firstIndex(of: "."),
            let asset = assets[String(versioned[versioned.index(after: dot)...])]
        else { return nil }
        let isCurrent = versioned[..<dot] == asset.version
        return Response(
            status: .ok,
            headers: [
                .contentType: asset.type,
                .cacheControl: isCurrent ? "public, max-age=31536000, immutable" : "no-store",
            ], body: ResponseBody(byteBuffer: asset.bytes))
    }
}
