"""Runs schemathesis against the API that /api/v1/openapi.json describes."""

import shutil
import subprocess
import unittest

from scene import Scene, eventually, get_json, token


@unittest.skipIf(shutil.which("schemathesis") is None, "schemathesis is not installed")
class API(unittest.TestCase):
    def test_the_answers_are_those_of_the_description(self):
        scene = Scene()
        self.addCleanup(scene.close)
        scene.start_redis()
        scene.start_worker("--simulate-rule", "prefix=410,answer=410", "--results", "all")
        scene.push({"token": token("410"), "payload": {"aps": {"alert": "x"}}},
                   {"token": token("aa"), "payload": {"aps": {"alert": "x" * 5000}}},
                   {"token": token("cc"), "send_at": "2099-01-01T00:00:00Z", "payload": {"aps": {"alert": "x"}}})
        made = scene.run("web-user", "ci", "--role", "operator", "--token")
        users = scene.directory / "users"
        users.write_text(made.stdout)
        web, address = scene.start_web("--users", str(users))
        eventually("a dead letter", lambda: scene.redis("ZCARD", "push:{default}:dead") == 1)
        secret = made.stderr.split()[-1]
        done = subprocess.run(
            ["schemathesis", "run", f"{address}/api/v1/openapi.json", "--header", f"Authorization: Bearer {secret}",
             "--max-examples", "12", "--seed", "7", "--phases", "examples,coverage,fuzzing", "--checks",
             "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
             # This action would stop the worker.
             "--exclude-path-regex", "stop-worker"],
            capture_output=True, text=True, timeout=900, cwd=scene.directory)
        self.assertEqual(done.returncode, 0, (done.stdout + done.stderr)[-8000:])
        self.assertIsNone(web.poll())


if __name__ == "__main__":
    unittest.main(verbosity=2)
