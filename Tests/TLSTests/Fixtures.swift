import TestSupport

typealias Fixtures = TestCertificates
