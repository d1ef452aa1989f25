import PrintableText
import Testing

@Suite("Texts without secrets")
struct SecretTextTests {
    private static let base64 =
        "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgevZzL1gdAFr88hb2OF/2NxApJCzGCEDdfSp6VQO30hyhRANCAAQRWz+jn65BtOMv"

    @Test(
        "hide keys, tokens and passwords",
        arguments: [
            ("a -----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY----- b", "a (hidden) b"),
            ("-----BEGIN PRIVATE KEY----- MIIB -----END PRIVATE KEY-----", "(hidden)"),
            (#"x: -----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n."#, #"x: (hidden)\n."#),
            ("cut: -----BEGIN PRIVATE KEY-----\nMIIB", "cut: (hidden)"),
            ("-----BEGIN A-----x-----END A-----, -----BEGIN B-----y-----END B-----", "(hidden), (hidden)"),
            ("cannot read \(base64): File name too long", "cannot read (hidden): File name too long"),
            ("cannot read dir/\(base64)", "cannot read (hidden)"), ("/\(base64)", "(hidden)"),
            ("eyJhbGciOiJFUzI1NiIsImtpZCI6IkFCQzEyM0RFRkcifQ.x", "(hidden).x"),
            ("redis://:s3cret@h, redis://me:p%20w@h:1/2", "redis://:***@h, redis://me:***@h:1/2"),
            ("redis://:pa/ss@host:6379", "redis://:***@host:6379"), ("is redis://:p#?@h; it", "is redis://:***@h; it"),
            (
                "redis+sentinel://h1,h2?master=m&sentinel_password=pw&x=y",
                "redis+sentinel://h1,h2?master=m&sentinel_password=***&x=y"
            ),
            ("user:pw@proxy:3128", "user:***@proxy:3128"), ("http://pu:pw@[::1]:3128", "http://pu:***@[::1]:3128"),
        ])
    func hides(text: String, expected: String) {
        #expect(text.withoutSecrets == expected)
        #expect(text.hasSecrets && !expected.hasSecrets)
    }

    @Test(
        "leave everything else as it is",
        arguments: [
            "", "hello", "/run/secrets/apns/AuthKey_ABC123DEFG.p8",
            "/var/lib/kubelet/pods/0f8b3d9c-1c8e-4a53-9d1e-2f9d2b6c7d11/volumes/kubernetes.io~secret/apns/AuthKey_ABC123DEFG.p8",
            "/home/Ada/Projects2/a-very-long-name-of-a-folder/and-another-one/AuthKey_ABC123DEFG.p8",
            "/tmp/configuration-7E57B1F0-1C8E-4A53-9D1E-2F9D2B6C7D11.yaml",
            "7E57b1F0-1C8E-4A53-9D1E-2F9D2B6C7D11-and-some-more",
            "com.example.app,com.example.app.voip,com.example.app.complication,web.com.example.Site2",
            "redis://h:6379/0", "redis+sentinel://a:1,b:2/?master=m", "redis://me:***@h", "http://user@h",
            "ada@host: why", "TransactionalNotificationsEuropeRegion2Blue", String(repeating: "0f", count: 32),
            "3f2504e0-4f89-11d3-9a0c-0305e82c3301", "0123456789abcdef0123456789abcdef01234567",
            "not ready: Redis refuses claims of the queue default: Redis answered: BUSY Redis is busy running a script.",
        ])
    func keeps(text: String) { #expect(text.withoutSecrets == text) }

    @Test("show a path only if it can be nothing else")
    func paths() {
        for path in [
            "/etc/passwd", "/no/such/file", "./key", "../key", "/no/such.p8", "AuthKey_ABC123DEFG.p8", "certs/ca.pem",
            "/",
        ] { #expect(PathText.shown(path) == path) }
        for other in [
            "", "hunter2-secret", "/s3cret!", "s3cr3t", "aB3/xyz+=", "correct horse", Self.base64, "-----BEGIN x",
            "a\u{0}b.pem", "/\(Self.base64)", "redis://:pw@h/x.pem", "/x\ny.pem",
        ] { #expect(!PathText.isPath(other) && PathText.shown(other).hasPrefix("a text that is not"), "\(other)") }
    }
}
