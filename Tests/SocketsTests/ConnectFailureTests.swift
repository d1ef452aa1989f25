import Glibc
import NIOCore
import NIOPosix
import Testing

@testable import Sockets

@Suite("Errors of connecting", .serialized, .timeLimit(.minutes(10)))
struct ConnectFailureTests {
    /// Holds all file descriptors that this process may open.
    private final class Hoard {
        private var held: [Int32] = []

        init() {
            while case let descriptor = open("/dev/null", O_RDONLY | O_CLOEXEC), descriptor >= 0 {
                held.append(descriptor)
            }
        }

        func release() {
            for descriptor in held { close(descriptor) }
            held = []
        }

        deinit { release() }
    }

    private static func failure(host: String, port: Int) async -> String {
        let group = MultiThreadedEventLoopGroup.singleton
        do {
            let channel = try await ClientBootstrap(group: group).connect(host: host, port: port).get()
            try await channel.close()
            return "connected"
        } catch {
            return ConnectFailure.reason(error)
        }
    }

    @Test("a closed port and an invalid name are reported")
    func ordinary() async {
        #expect(await Self.failure(host: "127.0.0.1", port: 1) == "127.0.0.1: Connection refused")
        #expect(
            await Self.failure(host: "no-such-host.invalid", port: 1)
                == #"the host name "no-such-host.invalid" does not resolve"#)
    }

    @Test("without a free file descriptor, the shortage is reported, also if it prevents name resolution")
    func shortage() async throws {
        // A low limit, so that the test opens few descriptors.
        var limit = rlimit()
        let resource = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
        #expect(getrlimit(resource, &limit) == 0)
        var low = limit
        low.rlim_cur = 300
        #expect(setrlimit(resource, &low) == 0)
        defer { setrlimit(resource, &limit) }
        // The event loops of the singleton already have their descriptors.
        #expect(await Self.failure(host: "127.0.0.1", port: 1) == "127.0.0.1: Connection refused")
        #expect(DescriptorLimit.shortage == nil)
        let hoard = Hoard()
        let byAddress = await Self.failure(host: "127.0.0.1", port: 1)
        let byName = await Self.failure(host: "localhost", port: 1)
        hoard.release()
        for words in [byAddress, byName] {
            #expect(words.hasPrefix("this process has no file descriptor of its 300 left; raise the limit"), "\(words)")
        }
        #expect(DescriptorLimit.shortage == nil)
        #expect(DescriptorLimit.current == 300)
        #expect(DescriptorLimit.raise(to: 400) == 400)
        #expect(DescriptorLimit.raise(to: 350) == 400, "a limit that is higher already stays")
    }

    @Test("the machine's shortage is distinguished from the process' own")
    func machine() {
        let error = IOError(errnoCode: ENFILE, reason: "socket")
        #expect(ConnectFailure.reason(error).hasPrefix("this machine has no file descriptor left"))
        #expect(ConnectFailure.reason(IOError(errnoCode: ECONNRESET, reason: "read")) == "Connection reset by peer")
    }
}
