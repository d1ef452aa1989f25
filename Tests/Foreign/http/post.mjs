// Posts a file with fetch: its bytes, and a stream of unknown length.
import { readFileSync } from "node:fs";

const [url, token, path] = process.argv.slice(2);
const body = readFileSync(path);
const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/x-ndjson" };
const stream = new ReadableStream({
  start(controller) {
    controller.enqueue(new Uint8Array(body.subarray(0, 1000)));
    controller.enqueue(new Uint8Array(body.subarray(1000)));
    controller.close();
  },
});
for (const content of [body, stream]) {
  const answer = await fetch(url, { method: "POST", headers, body: content, duplex: "half" });
  // Without this, the connection keeps the process.
  await answer.text();
  console.log("fetch", answer.status);
}
