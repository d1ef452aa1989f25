import HTTPTypes
import Hummingbird
import NIOCore

/// The style sheet, the scripts and the icon, embedded in the program.
package enum WebAssets {
    private struct Asset {
        let type: String
        let bytes: ByteBuffer
        /// Changes with the content, so that browsers can cache the file forever.
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
        "live.js": Asset(PackageResources.live_js, "text/javascript; charset=utf-8"),
        "select.js": Asset(PackageResources.select_js, "text/javascript; charset=utf-8"),
        "compose.js": Asset(PackageResources.compose_js, "text/javascript; charset=utf-8"),
    ]

    /// Returns the name of a file with its version, such as `1f2e.style.css`.
    static func versioned(_ name: String) -> String {
        guard let asset = assets[name] else { preconditionFailure("there is no asset \(name)") }
        return "\(asset.version).\(name)"
    }

    /// Returns a file by name, whatever its version; `nil` if there is none.
    package static func response(_ versioned: String) -> Response? {
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
