<?php
// Posts a file with PHP's curl, which sends "Expect: 100-continue" for large bodies: its bytes, and from the file itself.
[, $url, $token, $path] = $argv;
$headers = ["Authorization: Bearer $token", "Content-Type: application/x-ndjson"];
$curl = curl_init($url);
curl_setopt_array($curl, [
    CURLOPT_POST => true, CURLOPT_HTTPHEADER => $headers, CURLOPT_RETURNTRANSFER => true, CURLOPT_NOPROXY => "*",
    CURLOPT_POSTFIELDS => file_get_contents($path),
]);
for ($i = 0; $i < 2; $i++) {
    curl_exec($curl);
    echo "php ", curl_getinfo($curl, CURLINFO_RESPONSE_CODE), "\n";
}
